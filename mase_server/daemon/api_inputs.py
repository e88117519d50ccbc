"""API functions on named sets of inputs: choose one, try others, and compare two of them."""

from __future__ import annotations

import ast
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mase_server.daemon.api_files import get_opener_name, list_inputs, tracked_of
from mase_server.daemon.api_graphs import find_shown_model
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.methods import MODEL, Api, ApiError, ApiMethod, Params
from mase_server.daemon.store import SiteView
from mase_server.daemon.trials import Trial
from mase_server.protocol import answers
from mase_server.protocol.records import ModelRecord
from mase_server.protocol.request import TraceOptions, owner_of
from mase_server.protocol.snapshot import Problem

# The fields of an inputs form as the text of one comment, and which field a column of that text belongs to.

_SHORT = reprlib.Repr()
_SHORT.maxstring = 80


@dataclass(frozen=True, slots=True)
class Said:
    """The text behind `mase:`. spans: (start, end, field) of each field's content; fields are named as "inputs.x"."""

    text: str
    spans: tuple[tuple[int, int, str], ...]

    def field_at(self, column: int) -> str:
        """The field that contains a column or ends right before it; "" if none."""
        return next((field for start, end, field in self.spans if start <= column <= end), "")


def compose_comment_text(call: str, arguments: Mapping[str, str] | None, inputs: Mapping[str, str]) -> Said:
    """Compose `Net(width=3); x: f32[B=2, 3]` from texts by name, without empty ones. arguments: None for no call."""
    written = _Written()
    if arguments is not None and call:
        written.add(f"{call}(")
        written.fields("arguments", arguments, "=", ", ")
        written.add(")")
    if written.text and any(map(str.strip, inputs.values())):
        written.add("; ")
    written.fields("inputs", inputs, ": ", "; ")
    return Said(written.text, tuple(written.spans))


def one_line(text: str) -> str:
    """The text without its line breaks; blanks inside a line stay, because they may be in a string literal."""
    return " ".join(line.strip() for line in text.splitlines()).strip()


class _Written:
    def __init__(self) -> None:
        self.text = ""
        self.spans: list[tuple[int, int, str]] = []

    def add(self, text: str) -> None:
        self.text += text

    def fields(self, group: str, texts: Mapping[str, str], sign: str, between: str) -> None:
        given = [(name, one_line(text)) for name, text in texts.items() if text.strip()]
        for number, (name, text) in enumerate(given):
            self.add(between if number else "")
            start = len(self.text)
            self.add(f"{name}{sign}{text}")
            self.spans.append((start, len(self.text), f"{group}.{name}"))


def find_bad_arguments(arguments: Mapping[str, str], *, literal: bool) -> Iterator[tuple[str, str]]:
    """(field, why) for each argument that is no Python expression or, with `literal`, no plain value."""
    for name, text in arguments.items():
        whole = one_line(text)
        if not whole:
            continue
        try:
            node = ast.parse(whole, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            what = getattr(error, "msg", None) or str(error)
            yield f"arguments.{name}", f"{_SHORT.repr(whole)} is no Python expression: {what}"
            continue
        if literal and not _is_literal(node):
            yield (
                f"arguments.{name}",
                f"{_SHORT.repr(whole)} is no plain value: what is given over this connection is not run",
            )


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return True


#: The figures of a set with which nothing could be traced.
_NOTHING: answers.InputFigures = {
    "set": "", "inputs": None, "inputs_from": "", "arguments_from": "", "found": "", "outputs": None,
    "parameters": None, "parameter_bytes": None, "flops": None, "bytes": None, "nodes": None, "seconds": None,
    "form": None,
}  # fmt: skip


async def pick_inputs(api: Api, params: Params) -> list[answers.Inputs]:
    """Trace a model with a named set of inputs from now on; answers as `mase/inputs` once it is traced.

    set: one of its "sets", as in `# mase[small]: x: f32[1, 3]`, or of its "builders", as in `resnet18()`; "" for the
    comments without a name.  Without `set` the choice is forgotten.  The choice is kept for this user, even after the
    server ends.
    """
    snapshot, index = find_shown_model(api, params)
    model = snapshot.payload["models"][index]
    name = params.get("set")
    if name is not None:
        _known_set(snapshot.titles[index], name, [*model["sets"], *model["builders"]])
    api.daemon.opened(snapshot.path, by=get_opener_name(api, snapshot.path))
    api.daemon.pick_inputs(snapshot.path, owner_of(model["name"]), name)
    await api.daemon.wait(snapshot.path)
    return await list_inputs(api, {"path": snapshot.path})


async def try_inputs(api: Api, params: Params) -> answers.InputTrial:
    """Try a set of inputs without changing the shown trace: "form", "problems", and a model's figures.

    set: "" for the comments without a name, or a name, which may be new; without it, the one in use.
    inputs, arguments: texts by name that replace those of the set, as in `{"x": "f32[1, 3]"}`; an empty text removes
    one.  Without both, the set is tried as it is.  comment: the comment to write for it.  A problem has a "field", e.g.
    "inputs.x", or "".  Over a connection, arguments must be plain values: code is not accepted there.
    """
    snapshot, index = find_shown_model(api, params)
    model = snapshot.payload["models"][index]
    name = params.get("set", model["set"])
    said = None
    if "inputs" in params or "arguments" in params:
        wrong = _find_bad_texts(api, params)
        said = compose_comment_text(owner_of(model["name"]), params.get("arguments"), params.get("inputs", {}))
        if wrong:
            return {**_NOTHING, "set": name, "comment": _write_set_comment(name, said), "problems": wrong}
    trial = await _run_set_trial(api, snapshot, model, name, said)
    problems = [_input_problem_to_map(each, said) for each in trial.problems if each.severity in ("error", "warning")]
    unread = any(each.code == "bad-comment" and each.line == 0 for each in trial.problems)
    figures = None if unread else _find_model_figures(trial.snapshot, snapshot.titles[index], model["name"])
    return {**(figures or _NOTHING), "set": name, "comment": _write_set_comment(name, said), "problems": problems}


async def compare_inputs(api: Api, params: Params) -> answers.InputComparison:
    """Compare a model with two sets of inputs: {"path", "model", "before", "after", "rows", "problems"}.

    sets: two names, "" for the comments without a name.  before, after: figures as in `mase/tryInputs`, None if the
    model cannot be traced with that set.  rows: {"line", "column", "name", "kind", "function", "before", "after",
    "differs"} for each place with tensors; before and after: its values, None if it was not reached.
    """
    snapshot, index = find_shown_model(api, params)
    model = snapshot.payload["models"][index]
    names = params["sets"]
    if len(names) != 2:
        raise ApiError("invalid-params", f"sets has {len(names)} names; it takes two, e.g. ['small', 'large']")
    for name in names:
        _known_set(snapshot.titles[index], name, model["sets"])
    trials = [await _run_set_trial(api, snapshot, model, name, None) for name in names]
    title = snapshot.titles[index]
    figures = [_find_model_figures(each.snapshot, title, model["name"]) for each in trials]
    before, after = (each and _figures_of_set(each, name) for each, name in zip(figures, names, strict=True))
    problems = [
        _input_problem_to_map(each, None) for one in trials for each in one.problems if each.severity == "error"
    ]
    rows = compare_sites(snapshot.path, *(each.snapshot for each in trials))
    return {
        "path": snapshot.path, "model": title, "before": before, "after": after, "rows": rows, "problems": problems,
    }  # fmt: skip


def _figures_of_set(figures: answers.InputFigures, name: str) -> answers.InputFigures:
    return {**figures, "set": name}


def _find_model_figures(snapshot: GraphSnapshot | None, *names: str) -> answers.InputFigures | None:
    """The figures of the model with the first of these titles that the trace has."""
    title = next((name for name in names if snapshot is not None and name in snapshot.titles), None)
    return None if snapshot is None or title is None else describe_model_figures(snapshot, title)


def _known_set(title: str, name: str, known: list[str]) -> None:
    if name and name not in known:
        listed = ", ".join(known) or f"none: write one, e.g. `# mase[{name}]: ...` above its class"
        raise ApiError("unknown-inputs", f"{title} has no inputs named {name!r}; it has {listed}", {"sets": known})


async def _run_set_trial(api: Api, snapshot: GraphSnapshot, model: ModelRecord, name: str, said: Said | None) -> Trial:
    tracked = tracked_of(api, snapshot.path)
    owner = owner_of(model["name"])
    wanted = {"model": owner, "set": name, "text": None if said is None else said.text}
    before = tracked.options or TraceOptions()
    options = replace(before, inputs=(), sets={**before.sets, owner: name}, trial=wanted)
    return await api.daemon.tried(snapshot.path, options)


def _find_bad_texts(api: Api, params: Params) -> list[answers.InputProblem]:
    """Check texts of inputs and arguments before anything runs; returns their problems."""
    for key in ("inputs", "arguments"):
        for name, text in params.get(key, {}).items():
            if not (isinstance(text, str) and name.isidentifier()):
                raise ApiError("invalid-params", f"{key}.{name} is {text!r}, expected a text, as in 'f32[1, 3]'")
    found = find_bad_arguments(params.get("arguments", {}), literal=api.session is not None)
    return [{"severity": "error", "field": field, "message": message} for field, message in found]


def _input_problem_to_map(problem: Problem, said: Said | None) -> answers.InputProblem:
    at_field = said is not None and problem.line == 0
    field = said.field_at(problem.column) if said is not None and at_field else ""
    message = problem.message.removeprefix("This comment could not be read: ")
    return {"severity": problem.severity, "field": field, "message": message}


def _write_set_comment(name: str, said: Said | None) -> str:
    if said is None or not said.text:
        return ""
    return f"mase[{name}]: {said.text}" if name else f"mase: {said.text}"


INPUTS = (
    ApiMethod(
        "mase/pickInputs", {**MODEL, "set?": str}, pick_inputs, list[answers.Inputs], answer="inputs", executes=True
    ),
    ApiMethod(
        "mase/tryInputs",
        {**MODEL, "set?": str, "inputs?": dict, "arguments?": dict},
        try_inputs,
        answers.InputTrial,
        executes=True,
    ),
    ApiMethod(
        "mase/compareInputs", {**MODEL, "sets": list[str]}, compare_inputs, answers.InputComparison, executes=True
    ),
)


# The figures of a trace with one set of inputs, and the difference between two traces of one file.

_LAST = 1 << 30
_KINDS = frozenset({"parameter", "binding", "return"})


def describe_model_figures(snapshot: GraphSnapshot, title: str) -> answers.InputFigures:
    """A model's inputs, outputs and the cost of one forward. bytes: read and written by all operators.

    "outputs", "flops" and "bytes" are None if the forward does not reach its end, because they are unknown then.
    """
    index = snapshot.titles.index(title)
    model, nodes = snapshot.payload["models"][index], snapshot.payload["nodes"]
    rows = [row for row, of in enumerate(nodes["model"]) if of == index]
    outputs = [nodes["value"][row] for row in rows if nodes["op"][row] == "output"]
    output = next((snapshot.payload["values"][value] for value in outputs if value >= 0), None)
    traffic = sum(snapshot.node(row).details.get("bytes", 0) for row in rows) if outputs else None
    return {
        "set": model["set"], "inputs": model["inputs"], "inputs_from": model["inputs_from"],
        "arguments_from": model["arguments_from"], "found": model["found"], "outputs": output,
        "parameters": model["parameters"], "parameter_bytes": model["parameter_bytes"],
        "flops": model["flops"] if outputs else None, "bytes": traffic, "nodes": model["nodes"],
        "seconds": snapshot.payload["seconds"], "form": model.get("form"),
    }  # fmt: skip


def compare_sites(path: str, before: GraphSnapshot | None, after: GraphSnapshot | None) -> list[answers.InputRow]:
    """The places of a file with tensors, in order, with their values in both traces."""
    sides = [{each.extent: each for each in _iterate_file_sites(snapshot, path)} for snapshot in (before, after)]
    rows: list[answers.InputRow] = []
    for extent in sorted({**sides[0], **sides[1]}):
        one, two = (side.get(extent) for side in sides)
        either = one or two
        assert either is not None
        values = [None if each is None else _list_values(each) for each in (one, two)]
        differs = [_drop_symbols(each) for each in values]
        rows.append({
            "line": either.line, "column": either.column, "name": either.name, "kind": either.kind,
            "function": either.function, "before": values[0], "after": values[1],
            "differs": differs[0] != differs[1],
        })  # fmt: skip
    return rows


def _iterate_file_sites(snapshot: GraphSnapshot | None, path: str) -> Iterator[SiteView]:
    index = None if snapshot is None else snapshot.index(path)
    return iter(()) if index is None else iter(index.between(1, _LAST, _KINDS))


def _list_values(site: SiteView) -> list[Any]:
    return [value.value for value in site.values]


def _drop_symbols(value: Any) -> Any:
    """The value with the plain numbers of each shape: the name of a dimension makes no difference."""
    if isinstance(value, list | tuple):
        is_tensor = len(value) == 3 and isinstance(value[0], str) and isinstance(value[1], list | tuple)
        return [value[0], list(value[1])] if is_tensor else [_drop_symbols(each) for each in value]
    return {key: _drop_symbols(each) for key, each in value.items()} if isinstance(value, dict) else value
