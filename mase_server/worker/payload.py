"""Writing a payload: from recordings to the columns that cross the wire.

This includes the table of nodes, the diagnostics on branches that a forward took because of a value, and the files and
positions that all rows refer to.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import linecache
import platform
import re
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mase_server.dependencies import Dependency
from mase_server.dtypes import SHORT
from mase_server.ir.build import attribute, used_calls
from mase_server.ops.paths import identity
from mase_server.ops.table import named_arguments, op_info, parameters_of, weights_of
from mase_server.ops.types import Kwargs, OpCall, OpInfo, TensorType
from mase_server.protocol.records import (
    ClassRecord,
    FileRecord,
    ModelComment,
    NodeDetails,
    TracedModel,
    UnrunCode,
    UnshownModel,
    WrittenComment,
)
from mase_server.protocol.request import TraceRequest
from mase_server.protocol.snapshot import COLUMNS, MAX_SCOPES, SCHEMA, Payload, Problem, Scope
from mase_server.protocol.wire import pack_blob
from mase_server.tracing.diagnosis.failure import write_repr
from mase_server.tracing.diagnosis.problems import Context
from mase_server.tracing.guards import CONDITIONS
from mase_server.tracing.importing.segments import Unrun
from mase_server.tracing.importing.source import list_nodes, read_saved
from mase_server.tracing.inputs.comments import NOTHING_ASSUMED, Comment
from mase_server.tracing.models.found import Found, Unshown
from mase_server.tracing.recording.calls import Call, Constant, Event, Reports, Run, references, with_types
from mase_server.tracing.recording.positions import Mark, Position, resolve_mark
from mase_server.tracing.recording.values import DictOf, TupleOf, Value
from mase_server.tracing.symbols.fitting import Expr
from mase_server.tracing.symbols.probing import Wire, name_of
from mase_server.visible import reveal, reveal_lines, reveal_within
from mase_server.worker.traced import Live, Origins, Sources, Traced


class PayloadWriter:
    """Writes the payload of one file, again when more is known. live: the state that the last payload refers to."""

    def __init__(self, request: TraceRequest, source: bytes, reports: Reports, places: Places) -> None:
        self.request, self.reports, self.places = request, reports, places
        self.sha256 = hashlib.sha256(source).hexdigest()
        self.live = Live(request, [])

    def write(
        self,
        traced: Sequence[Traced],
        problems: Sequence[Problem],
        unshown: Sequence[Unshown] = (),
        unrun: Sequence[UnrunCode] = (),
        *,
        seconds: float,
        complete: bool,
        dependencies: Sequence[Dependency] = (),
        preload: Sequence[str] = (),
        fit: bytes = b"",
    ) -> Payload:
        """The payload for these models, problems and models that cannot be shown."""
        tables = _Tables(self.reports, self.places, [one.wire() for one in traced], Wire(None, final=complete))
        for index, one in enumerate(traced):
            tables.add_scopes(index, one)
        nodes = NodeWriter(self.places, tables)
        models = []
        for index, one in enumerate(traced):
            # An early payload has shapes only: the details that a hover shows follow with the symbols.
            flops = nodes.write(index, one) if complete else None
            tables.add_events(index, one, nodes.rows)
            models.append(model_map(one, flops, sum(used_calls(one.run)), self.places))
        tables.add_outside(traced)
        values = [tables.values[value] for value in tables.rows["value"]]
        self.live = Live(self.request, traced, tables.where, values)
        return {
            "schema": SCHEMA,
            "file": self.request.path,
            "sha256": self.sha256,
            "generation": self.request.generation,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "seconds": seconds,
            "complete": complete,
            "models": models,
            "files": self._list_files(),
            "values": tables.values,
            "scopes": tables.scopes,
            "classes": self.places.classes({kind for _, _, kind in tables.scopes}, self.request.folder),
            "problems": [problem.bounded().to_wire() for problem in problems],
            "unshown": [_describe_unshown(one) for one in unshown],
            "unrun": list(unrun),
            "dependencies": [[one.kind, one.path, one.seen] for one in dependencies],
            "preload": list(preload),
            "fit": fit,
            "weights": [weights_of(one.found.model) for one in traced],
            "transforms": [],
            "sites": tables.sites,
            "rows": tables.rows,
            "nodes": nodes.columns,
        }

    def _list_files(self) -> list[FileRecord]:
        folder = self.request.folder.rstrip("/") + "/"
        return [
            {
                "path": path,
                "sha256": self.sha256 if path == self.request.path else _hash_file(path),
                "library": not path.startswith(folder) or "/site-packages/" in path,
            }
            for path in self.places.files
        ]


def _describe_unshown(unshown: Unshown) -> UnshownModel:
    at = unshown.problem
    return {
        "name": unshown.name, "why": reveal_lines(unshown.why), "step": reveal_lines(unshown.step),
        "code": unshown.problem.code,
        "line": at.line, "column": at.column, "end_line": at.end_line, "end_column": at.end_column,
    }  # fmt: skip


def describe_unrun(unrun: Unrun, file: int) -> UnrunCode:
    """Code of a file that did not run, as whole lines."""
    line, *reason = unrun.reason or (0, "", "", "")
    return {
        "file_index": file, "line": unrun.line, "column": unrun.column, "end_line": unrun.end_line + 1, "end_column": 0,
        "decider": line, "reason": reveal_within(reason),
    }  # fmt: skip


def _hash_file(path: str) -> str:
    try:
        return hashlib.sha256(read_saved(path)).hexdigest()
    except OSError:
        return ""


class _Tables:
    """Sites, rows, values and scopes of a payload, as they are added."""

    def __init__(self, reports: Reports, places: Places, wires: Sequence[Wire], other: Wire) -> None:
        self.reports, self.places, self.wires = reports, places, [*wires, other]
        self.values: list[Any] = []
        self.scopes: list[Scope] = []
        self.sites: dict[str, list[Any]] = {name: [] for name in COLUMNS["sites"]}
        self.rows: dict[str, list[Any]] = {name: [] for name in COLUMNS["rows"]}
        self._site_rows: dict[int, int] = {}
        self._rows_at: dict[tuple[Any, ...], int] = {}
        self._value_rows: dict[Any, int] = {}
        self.where: list[Sources] = []
        self._kept: list[Sequence[Value]] = []
        self._first_scope: dict[int, int] = {}

    def add_scopes(self, model: int, traced: Traced) -> None:
        """The module instances that the recording went through."""
        self._first_scope[model] = len(self.scopes)
        self.scopes.extend((model, path, reveal(kind.__name__)) for path, kind in traced.run.scopes)

    def scope(self, model: int, scope: int) -> int:
        """The row of a recording's scope."""
        return self._first_scope[model] + scope

    def value(self, model: int, values: Sequence[Value]) -> int:
        """The row of a value, given as its value in each run of a model."""
        key = (model, *(identity(value) if type(value) is TensorType else value for value in values))
        found = self._value_rows.get(key)
        if found is None:
            found = self._value_rows[key] = len(self.values)
            self._kept.append(values)
            self.values.append(self.wires[model].value(values, SHORT))
        return found

    def site(self, index: int) -> int:
        """The row of a site of the reports; recompiled code reuses the rows of its sites."""
        found = self._site_rows.get(index)
        if found is None:
            path, site = self.reports.sites[index]
            row = (
                self.places.file(path), site.line, site.column, site.end_line, site.end_column,
                site.name, site.kind, site.function,
            )  # fmt: skip
            found = self._site_rows[index] = self._rows_at.setdefault(row, len(self._rows_at))
            if found == len(self.sites["file"]):
                for name, value in zip(COLUMNS["sites"], row, strict=True):
                    self.sites[name].append(value)
        return found

    def add_events(self, model: int, traced: Traced, node_rows: Sequence[int]) -> None:
        """Add the values that were bound while the model ran: equal values at one site become one row."""
        groups: dict[tuple[int, int], tuple[list[int], dict[int, None], int, Origins]] = {}
        where = Sources(list(node_rows))
        self.where.append(where)
        # A model that is shown only for lack of a better one adds nothing at sites that another model already fills.
        taken = set(self.rows["site"]) if traced.found.rest else set()
        for events in align_events([run.events for run in traced.runs]):
            first = events[0]
            key = (self.site(first.site), self.value(model, [event.value for event in events]))
            if key[0] in taken:
                continue
            node = node_rows[first.node] if 0 <= first.node < len(node_rows) else -1
            count, scopes, _, origins = groups.setdefault(key, ([0], {}, node, []))
            count[0] += 1
            origins.append(first.calls)
            if len(scopes) < MAX_SCOPES:
                scopes[self.scope(model, first.scope)] = None
        for (site, value), (count, scopes, node, origins) in groups.items():
            where.rows[len(self.rows["site"])] = origins
            self._append_row(site, value, model, count[0], list(scopes), node)

    def add_outside(self, traced: Sequence[Traced]) -> None:
        """Add the values that were bound at import, in constructors and around the calls of the models."""
        groups: dict[tuple[int, int, int], Origins] = {}
        for event, kept in zip(self.reports.outside, self.reports.kept, strict=True):
            model = next((index for index, one in enumerate(traced) if one.knows(kept)), -1)
            values = traced[model].values_of(kept) if model >= 0 else [event.value]
            key = (self.site(event.site), self.value(model, values), model)
            groups.setdefault(key, []).append(traced[model].origins(kept) if model >= 0 else ())
        for (site, value, model), origins in groups.items():
            if model >= 0:
                self.where[model].rows[len(self.rows["site"])] = origins
            self._append_row(site, value, model, len(origins), [], -1)

    def _append_row(self, *row: Any) -> None:
        for name, value in zip(COLUMNS["rows"], row, strict=True):
            self.rows[name].append(value)


def align_events(runs: Sequence[Sequence[Event]]) -> Iterator[tuple[Event, ...]]:
    """The events of all runs side by side; only the base run's if the runs did not bind the same names."""
    base = [event.site for event in runs[0]]
    same = [events for events in runs if [event.site for event in events] == base]
    return zip(*(same if len(same) == len(runs) else runs[:1]), strict=True)


def model_map(traced: Traced, flops: int | None, nodes: int, places: Places) -> TracedModel:
    """One entry of "models"."""
    found, probed = traced.found, traced.probed
    parameters, parameter_bytes = parameters_of(found.model)
    line, column, end_line, end_column = places.model(found.name)
    wire = traced.wire()
    inputs = {
        name: wire.value([run.calls[index].value for run in traced.runs], SHORT)
        for name, index in traced.run.placeholders.items()
    }
    assumed = found.comment or NOTHING_ASSUMED
    if traced.error is not None:
        assumed = Comment(None, "the forward fails with the assumed inputs")
    line_above, column_above = places.above(found.name)
    comment: ModelComment = {
        "text": reveal_within(assumed.text), "why": reveal_within(assumed.why),
        "inputs": reveal_within(assumed.inputs), "line": line_above, "column": column_above,
        "written": list_written_comments(found),
    }  # fmt: skip
    told: TracedModel = {
        "name": traced.name, "file_index": 0,
        "line": line, "column": column, "end_line": end_line, "end_column": end_column,
        "arguments": {name: to_plain_data(value) for name, value in found.arguments.items()},
        "inputs": inputs, "inputs_from": found.inputs_from, "arguments_from": found.arguments_from,
        "found": reveal(found.found), "mode": "train" if found.training else "eval", "rung": traced.session.rung,
        "nodes": nodes, "parameters": parameters, "parameter_bytes": parameter_bytes, "flops": flops,
        "complete": traced.error is None,
        "generic": probed is not None and probed.generic,
        "symbols": {} if probed is None else dict(probed.symbols),
        "fixed": reveal_within(fixed_texts(traced)), "guards": reveal_within(traced.guards()),
        "seconds": traced.seconds,
        "rest": found.rest, "sets": list(found.sets), "set": found.set, "comment": comment,
        "builders": list(found.builders), "builder": found.builder,
    }  # fmt: skip
    if found.form is not None:
        told["form"] = found.form
    return told


def list_written_comments(found: Found) -> list[WrittenComment]:
    """The comments about a model with their positions. own: is it for this model alone, not for the whole file?"""
    return [
        {"line": each.line, "column": each.start, "end_column": each.column + len(each.text), "set": each.set,
         "text": each.text, "own": each.owner is not None, "skip": each.skip or bool(each.data)}
        for each in found.written
        if each.line
    ]  # fmt: skip


_ROLE_WORDS = {"B": "batch", "T": "length", "S": "length", "U": "length", "H": "height", "W": "width", "N": "nodes"}


def fixed_texts(traced: Traced) -> list[str]:
    """The sizes that the graph is fixed to, with the reasons: "fixed to batch 2: ..."."""
    probed = traced.probed
    if probed is None:
        return []
    texts = []
    for name, reason in probed.fixed.items():
        if name == "B":
            texts.append(f"fixed to batch {probed.points[0][name]}: {reason}")
    if probed.symbols and probed.obstacles and traced.session.rung == "meta":
        sizes = ", ".join(f"{_ROLE_WORDS.get(name, name)} {size}" for name, size in probed.symbols.items())
        texts.append(f"fixed to {sizes}: {probed.obstacles[0]}")
    elif probed.obstacles:
        texts.append(probed.obstacles[0])
    return texts


def to_plain_data(value: Any) -> Any:
    """A constructor argument as data: numbers, texts and lists unchanged, all else as text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)) and len(value) <= 32:
        return [to_plain_data(item) for item in value]
    text = write_repr(value)
    return text if len(text) <= 200 else text[:197] + "..."


# The nodes table of a payload: every call with its operator, cost and place, and a blob that only a hover unpacks.

_MAX_TEXT = 120


@dataclass(frozen=True, slots=True)
class _Operation:
    """Of a call, what its operator, layer and arguments decide. args: names and texts."""

    info: OpInfo
    flops: int
    bytes: int
    args: list[list[str]]

    @classmethod
    def of(cls, call: Call, target: object, given: tuple[Any, Kwargs], module: nn.Module | None) -> _Operation:
        """given: the arguments, with types in place of tensors."""
        info = op_info(call.kind, target, module)
        args, kwargs = plain_types(given)
        operation = OpCall(call.kind, target, args, kwargs, plain_types(call.value), module)
        texts = [[name, text_of(value)] for name, value in named_arguments(operation, info).items()]
        return cls(info, int(info.flops(operation)), int(info.bytes(operation)), texts)


class _NoKeyError(Exception):
    """Equal keys would not mean an equal description, or comparing them would run code of the person's."""


#: Objects that are equal if they are the same for everybody.
_PLAIN = (type(None), type(...), bool, int, str, TensorType, Constant, torch.dtype, torch.device, torch.layout)


def _key_of(value: Any) -> Hashable:
    """A key of nested arguments; 1 and True have different ones."""
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is float:
        return kind, repr(value)  # 0.0 and -0.0 are equal
    if kind in (tuple, list):
        return kind, *map(_key_of, value)
    if kind is dict:
        return kind, *map(_key_of, value.items())
    if kind is slice:
        return kind, _key_of((value.start, value.stop, value.step))
    raise _NoKeyError


def _key_of_layer(module: nn.Module) -> Hashable:
    """A key of a module that an equal layer of PyTorch's own shares; any other module has its own."""
    if not type(module).__module__.startswith("torch.nn.modules.") or module._modules:
        return identity(module)
    tensors = [*module._parameters.items(), *module._buffers.items()]
    types = [(name, None if tensor is None else TensorType.of(tensor)) for name, tensor in tensors]
    try:
        plain = [_key_of(item) for item in vars(module).items() if not item[0].startswith("_")]
    except _NoKeyError:
        return identity(module)
    return identity(type(module)), *types, *plain


class NodeWriter:
    """Fills the columns of "nodes". `rows`: for the model written last, the row of each call, -1 for a call without
    one."""

    def __init__(self, places: Places, tables: _Tables) -> None:
        self.places, self.tables = places, tables
        self.columns: dict[str, list[Any]] = {name: [] for name in COLUMNS["nodes"]}
        self.rows: list[int] = []
        self._layers: dict[int, Hashable] = {}
        self._modules: dict[Hashable, NodeDetails] = {}
        self._operations: dict[Hashable, _Operation] = {}
        #: By identity of code, as `resolve_mark` does.
        self._frames: dict[tuple[int, int], list[Any]] = {}

    def write(self, model: int, traced: Traced) -> int:
        """Write all nodes of one model; return its FLOPs."""
        names = traced.node_names() if traced.error is None else [None] * len(traced.run.calls)
        used = used_calls(traced.run)
        self.rows = [-1] * len(used)
        total = 0
        for index, call in enumerate(traced.run.calls):
            if used[index]:
                self.rows[index] = len(self.columns["name"])
                total += self._write_call(model, traced, index, call, names[index] or _target_name(call, traced))
        return total

    def _write_call(self, model: int, traced: Traced, index: int, call: Call, name: str) -> int:
        module = _module_of(traced.found.model, call)
        done = self._describe_operation(traced, call, module)
        stack = list(map(self._describe_frame, call.stack))
        place = stack[0][:-1] if stack else (-1, 0, 0, 0, 0)
        value = self.tables.value(model, [run.calls[index].value for run in traced.runs])
        blob = pack_blob(self._make_blob(done, call, stack, module))
        info = done.info
        row = (
            name, call.kind, _target_name(call, traced), info.mase_op, info.mase_type, info.family, model,
            self.tables.scope(model, call.scope), value, done.flops, *place, blob,
        )  # fmt: skip
        for column, item in zip(COLUMNS["nodes"], row, strict=True):
            self.columns[column].append(item)
        return done.flops

    def _describe_operation(self, traced: Traced, call: Call, module: nn.Module | None) -> _Operation:
        """The description of a call, which is that of an equal call of an equal layer: most models repeat theirs."""
        target = _resolve_target(call, traced) if module is None else module
        given = with_types((call.args, call.kwargs), traced.run.calls)
        doer = target if isinstance(target, str) else identity(target)
        try:
            key = call.kind, doer if module is None else self._key_of_module(module), _key_of(given), call.value
        except _NoKeyError:
            return _Operation.of(call, target, given, module)
        if (found := self._operations.get(key)) is None:
            found = self._operations[key] = _Operation.of(call, target, given, module)
        return found

    def _key_of_module(self, module: nn.Module) -> Hashable:
        found = self._layers.get(identity(module))
        if found is None:
            found = self._layers[identity(module)] = _key_of_layer(module)
        return found

    def _describe_frame(self, mark: Mark) -> list[Any]:
        key = identity(mark[0]), mark[1]
        found = self._frames.get(key)
        if found is None:
            position = resolve_mark(mark)
            found = self._frames[key] = [*self.places.row(position), position.function]
        return found

    def _make_blob(self, done: _Operation, call: Call, stack: list[list[Any]], module: nn.Module | None) -> NodeDetails:
        blob: NodeDetails = {
            "args": done.args,
            "bytes": done.bytes,
            "stack": stack,
            "input_nodes": [self.rows[source] for source in call.sources],
        }
        if module is not None:
            blob |= self._describe_module(module) | {"module_path": call.target}
        return blob

    def _describe_module(self, module: nn.Module) -> NodeDetails:
        key = self._key_of_module(module)
        found = self._modules.get(key)
        if found is None:
            count, size = parameters_of(module)
            own = {name: _tensor_text(parameter) for name, parameter in module.named_parameters()}
            text = write_repr(module)
            found = self._modules[key] = {
                "module": text if len(text) < 2000 else f"{type(module).__name__}(...)",
                "parameters": own if len(own) <= 32 else {},
                "parameter_count": count,
                "parameter_bytes": size,
            }
        return found


def _module_of(root: nn.Module, call: Call) -> nn.Module | None:
    if call.kind != "call_module":
        return None
    module: nn.Module = attribute(root, call.target)
    return module


def _resolve_target(call: Call, traced: Traced) -> Any:
    return traced.run.constants[call.target.name] if isinstance(call.target, Constant) else call.target


def _target_name(call: Call, traced: Traced) -> str:
    """The target as text: a callable's own name, or the graph's name for any other constant."""
    if not isinstance(call.target, Constant):
        return reveal(name_of(call.target))
    return reveal(name_of(_resolve_target(call, traced))) if call.kind == "call_function" else call.target.name


def plain_types(value: Any) -> Any:
    """Descriptions of containers as nested tuples and dicts of `TensorType`."""
    if isinstance(value, TupleOf):
        return tuple(plain_types(item) for item in value.items)
    if isinstance(value, DictOf):
        return {key: plain_types(item) for key, item in value.items}
    if isinstance(value, (list, tuple)):
        items = [plain_types(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: plain_types(item) for key, item in value.items()}
    return value


def text_of(value: Any) -> str:
    """A short text of an argument; tensors are f32[2, 16, 768]."""
    if isinstance(value, TensorType):
        return f"{SHORT.get(value.dtype, value.dtype)}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(text_of(item) for item in value[:8]) + (", ..." if len(value) > 8 else "")
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    text = name_of(value) if callable(value) else write_repr(value)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."


def _tensor_text(parameter: nn.Parameter) -> str:
    name = str(parameter.dtype).removeprefix("torch.")
    return f"{SHORT.get(name, name)}[{', '.join(map(str, parameter.shape))}]"


# Branches that a forward took because of a value: its graph holds only for inputs with the same answer.

#: Characters of an expression or of a value that are shown.
_MOST = 60


def branches_taken(traced: Traced, places: Places, context: Context) -> Iterator[Problem]:
    """An information diagnostic at each expression where the user's own code asked for a value, with the answer."""
    answers: dict[Position, dict[str, None]] = {}
    conditions: set[Position] = set()
    varying = _varying_calls(traced.run)
    for look, seen in traced.looks():
        asked_of = references(look.arguments)
        if not isinstance(seen, Expr) and look.stack and not varying.isdisjoint(asked_of):  # sizes are no values
            position = resolve_mark(_asker(look.stack[0]))
            answers.setdefault(position, {})[_shortened(write_repr(look.seen))] = None
            if look.asked in CONDITIONS:
                conditions.add(position)
    for position, seen_there in answers.items():
        if context.owns(position.file):
            _, line, column, end_line, end_column = places.row(position)
            span = line, column, end_line, end_column
            told = f"{_source(position)} was {', then '.join(seen_there)}"
            if position in conditions:
                text = f"Branch taken because {told}: the graph holds only for inputs with the same answer."
            else:
                text = f"{told} in this trace: the graph holds only for inputs with the same value."
            yield Problem(position.file, *span, "information", "value-taken", text)


def _varying_calls(run: Run) -> set[int]:
    """The calls whose values depend on inputs or weights; all others return the same in every call of the model."""
    found: set[int] = set()
    for index, call in enumerate(run.calls):
        attribute = call.kind == "get_attr" and not isinstance(call.target, Constant)
        if call.kind in ("placeholder", "call_module") or attribute or not found.isdisjoint(call.sources):
            found.add(index)
    return found


def _asker(mark: Mark) -> Mark:
    """The instruction that made the tested value, if the marked one tests it: a test may span its whole statement."""
    code, last = mark
    before = -1
    for instruction in dis.get_instructions(code):
        if instruction.offset >= last:
            tests = "JUMP" in instruction.opname or instruction.opname in ("TO_BOOL", "UNARY_NOT")
            return (code, before) if tests and before >= 0 else mark
        before = instruction.offset
    return mark


def _source(position: Position) -> str:
    """The expression at a position, on one line."""
    lines = linecache.getlines(position.file)[position.line - 1 : position.end_line]
    if not lines or position.column < 0:
        return "a value"
    lines[-1] = lines[-1].encode()[: position.end_column].decode(errors="ignore")
    lines[0] = lines[0].encode()[position.column :].decode(errors="ignore")
    return f"`{_shortened(' '.join(' '.join(lines).split()))}`"


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"


# The files and positions of a payload: paths as indices, columns in code points.


_CLASS = re.compile(r"[ \t]*class[ \t]+(?P<name>\w+)")


class Places:
    """The files that a payload refers to; file 0 is the model file itself."""

    def __init__(self, path: str, tree: ast.Module | None) -> None:
        self.files: list[str] = [path]
        self._indices = {path: 0}
        self._parse_file = tree
        self._lines: dict[str, list[str]] = {}
        self._rows: dict[Position, tuple[int, int, int, int, int]] = {}
        self._models: Mapping[str, _Place] | None = None

    def file(self, path: str) -> int:
        """The index of a file."""
        found = self._indices.get(path)
        if found is None:
            found = self._indices[path] = len(self.files)
            self.files.append(path)
        return found

    def row(self, position: Position) -> tuple[int, int, int, int, int]:
        """(file, line, column, end line, end column) with columns in code points."""
        if (found := self._rows.get(position)) is None:
            file, line, end = position.file, position.line, position.end_line
            columns = self.column(file, line, position.column), self.column(file, end, position.end_column)
            found = self._rows[position] = self.file(file), line, columns[0], end, columns[1]
        return found

    def column(self, path: str, line: int, column: int) -> int:
        """A column in UTF-8 bytes as one in code points; an unknown one is 0."""
        if column <= 0:
            return 0
        lines = self._lines.get(path)
        if lines is None:
            lines = self._lines[path] = linecache.getlines(path)
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        return column if text.isascii() else len(text.encode()[:column].decode(errors="ignore"))

    def model(self, name: str) -> tuple[int, int, int, int]:
        """The place of a model in the file: its class, function or variable, else the first place that names it."""
        places = self._find_model_places()
        whole = name.partition("[")[0]
        line, column, end_line, end_column, _ = places.get(whole) or places.get(whole.partition(".")[0], _TOP)
        path = self.files[0]
        return line, self.column(path, line, column), end_line, self.column(path, end_line, end_column)

    def above(self, name: str) -> tuple[int, int]:
        """(line, column) of the statement that makes a model: what is written above it goes there."""
        *_, statement = self._find_model_places().get(name.partition("[")[0].partition(".")[0], _TOP)
        if statement is None:
            return self.model(name)[0], 0
        first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", ()))])
        return first, statement.col_offset

    def classes(self, names: Container[str], folder: str) -> list[ClassRecord]:
        """The statements of the classes with these names in the workspace's files, as `snapshot.CLASS_KEYS` says."""
        found: list[ClassRecord] = []
        for index, path in enumerate(self.files):
            if not path.startswith(folder.rstrip("/") + "/") or "/site-packages/" in path:
                continue
            for number, line in enumerate(linecache.getlines(path), 1):
                if (match := _CLASS.match(line)) and match["name"] in names:
                    found.append({
                        "name": match["name"], "file_index": index, "line": number, "column": match.start("name"),
                        "end_line": number, "end_column": match.end("name"),
                    })  # fmt: skip
        return found

    def _find_model_places(self) -> Mapping[str, _Place]:
        if self._models is None:
            self._models = _model_places(self._parse_file)
        return self._models


#: line, column, end line, end column, columns in UTF-8 bytes; and the statement, if one assigns the name.
_Place = tuple[int, int, int, int, ast.stmt | None]
_TOP: _Place = (1, 0, 1, 0, None)


def _model_places(tree: ast.Module | None) -> dict[str, _Place]:
    """The place of each name: a class before a function, a function before a variable, a variable before a call."""
    found: dict[str, _Place] = {}
    if tree is None:
        return found
    for node in list_nodes(tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            found.setdefault(name, _place_expression(function, None))
    for statement in reversed(tree.body):
        for target in _list_targets(statement):
            found[target.id] = _place_expression(target, statement)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = _place_definition(node, "def ")
    for node in list_nodes(tree):
        if isinstance(node, ast.ClassDef):
            found[node.name] = _place_definition(node, "class ")
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    found[f"{node.name}.{inner.name}"] = _place_definition(inner, "def ")
    return found


def _list_targets(statement: ast.stmt) -> list[ast.Name]:
    """The names that a statement of the module assigns."""
    match statement:
        case ast.Assign(targets=targets):
            return [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        case ast.AnnAssign(target=ast.Name() as name):
            return [name]
    return []


def _place_definition(node: ast.ClassDef | ast.FunctionDef, keyword: str) -> _Place:
    start = node.col_offset + len(keyword)
    return node.lineno, start, node.lineno, start + len(node.name.encode()), node


def _place_expression(node: ast.expr, statement: ast.stmt | None) -> _Place:
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0, statement
