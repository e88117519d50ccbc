"""One model file, seen twice, each time in a process of its own: what the product shows, and what eager PyTorch binds.

Both are texts: a place "12:8-12:9 binding x in Net.forward" and the values seen there, "('f32', (2, 3))".
"""

from __future__ import annotations

import random
import re
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from mase_server.protocol.records import TracedModel
from mase_server.protocol.request import TraceRequest
from mase_server.protocol.snapshot import KINDS, Payload
from mase_server.tracing.execution.running import Trials
from mase_server.tracing.execution.substitutes import loaded_where_present
from mase_server.tracing.importing.source import decode_source
from mase_server.tracing.inputs.spec import inputs_at
from mase_server.tracing.models.find import find_models
from mase_server.tracing.models.found import Found, call_arguments, plain_hooks
from mase_server.tracing.recording.shadow import Shadows
from mase_server.worker import job
from mase_server.worker.job import trace
from mase_server.worker.payload import to_plain_data

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.ground_truth.record import Recorder

# A judged repository's own package of this name must be found.
sys.path.pop(0)
for _name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
    del sys.modules[_name]

#: Rewritten code, kept from one file of a package to the next as the server keeps it from save to save.
_CACHE = tempfile.TemporaryDirectory()


#: Runs of a model whose code throws Python's own dice.
DICE = 16


@dataclass(frozen=True, slots=True)
class File:
    """A model file and the folder that an editor would have open."""

    folder: str
    path: str

    def __str__(self) -> str:
        return f"{self.folder}::{self.path}"

    @classmethod
    def parse(cls, text: str) -> File:
        """The inverse of `str`; without a folder, the file's own."""
        folder, _, path = text.strip().rpartition("::")
        return cls(folder or str(Path(path).parent), path)

    @property
    def source(self) -> str:
        """The file's text."""
        return decode_source(Path(self.path).read_bytes())


def product(file: File, main: Collection[str] = ()) -> dict[str, Any]:
    """What the product's own job shows with nothing configured, or {"died": why}; it instruments this process.

    main: names of classes and of functions, such as {"Net", "Net.forward"}; main_first is the processor time until
    there were shapes of one of them.
    """
    started, used, first, main_first = time.perf_counter(), _processor_seconds(), list[float](), list[float]()
    payloads: list[Payload] = []

    def emit(message: dict[str, Any]) -> None:
        if "payload" in message:
            payloads.append(payload := message["payload"])
            if payload["models"] and not first:
                first.append(time.perf_counter() - started)
            if not main_first and not _shown(payload).isdisjoint(main):
                main_first.append(_processor_seconds() - used)

    try:
        trace(_request(file), emit)
    except BaseException as error:  # noqa: BLE001 - a crash of the product is a row of the table
        return {"died": _told(error)}
    last = payloads[-1]
    return {
        "rows": _rows(last),
        "models": [_model(model) for model in last["models"]],
        "types": sorted({kind for _, _, kind in last["scopes"]}),
        "unshown": [{key: one[key] for key in ("name", "line", "why")} for one in last["unshown"]],
        "problems": [{key: one[key] for key in ("severity", "code", "line", "message")} for one in last["problems"]],
        "first": first[0] if first else None,
        "main_first": main_first[0] if main_first else None,
        "seconds": time.perf_counter() - started,
        "fit": last["fit"].decode(),
    }


def _processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _shown(payload: Payload) -> set[str]:
    """The models of a payload, and the functions of the file itself that have shapes."""
    sites = payload["sites"]
    functions = {function for function, file in zip(sites["function"], sites["file"], strict=True) if file == 0}
    return functions | {model["name"] for model in payload["models"]}


def _model(model: TracedModel) -> dict[str, Any]:
    inputs = {name: repr(_plain(value)) for name, value in model["inputs"].items()}
    kept = {key: model[key] for key in ("name", "inputs_from", "arguments_from", "found")}
    return {**kept, "inputs": inputs, "arguments": _arguments(model["arguments"])}


def _arguments(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Constructor arguments as texts that are the same in every process."""
    return {name: re.sub(r" at 0x[0-9a-f]+", "", repr(to_plain_data(value))) for name, value in arguments.items()}


def eager(file: File, fit: str = "") -> dict[str, Any]:
    """What each model that the product finds binds on real tensors of the inputs that it shows.

    fit: what the product's trace learned, so that the same inputs are found again.
    """
    shadows = Shadows()
    hooks = replace(plain_hooks(shadows), attempt=Trials(shadows).attempt)
    try:
        request = replace(_request(file), fit=fit.encode() or None)
        found = list(find_models(request, file.source, replace(hooks, remembered=job.read_known_inputs(request.fit))))
    except BaseException as error:  # noqa: BLE001 - what eager cannot do, it cannot judge
        return {"died": _told(error)}
    return {"models": [_run(file, one, shadows) for one in found if isinstance(one, Found)]}


def _request(file: File) -> TraceRequest:
    return TraceRequest(file.path, file.folder, "", 1, scratch=tempfile.mkdtemp(), bytecode_cache=_CACHE.name)


def _rows(payload: Payload) -> list[tuple[str, int, str]]:
    """(place, model's index, value) of everything shown in the file itself, without plain expressions."""
    sites, rows = payload["sites"], payload["rows"]
    found = []
    for site, model, value in zip(rows["site"], rows["model"], rows["value"], strict=True):
        kind = KINDS[sites["kind"][site]]
        if kind != "expression" and sites["file"][site] == 0:
            position = [sites[key][site] for key in ("line", "column", "end_line", "end_column")]
            place = _place((*position, kind, sites["name"][site], sites["function"][site]))
            found.append((place, model, repr(_plain(payload["values"][value]))))
    return found


def _place(fields: tuple[Any, ...]) -> str:
    line, column, end_line, end_column, kind, name, function = fields
    return f"{line}:{column}-{end_line}:{end_column} {kind} {name} in {function}"


def _plain(value: Any) -> Any:
    """A payload's value as the recorder describes it; a size that is told to be unknown is "?"."""
    match value:
        case None:
            return None
        case [dtype, shape, symbols] if symbols:
            sizes = zip(shape, symbols, strict=True)
            return (dtype, tuple("?" if "?" in symbol else size for size, symbol in sizes))
        case [dtype, shape, *_]:
            return (dtype, tuple(shape))
        case {"tuple": items}:
            return ("tuple", tuple(_plain(each) for each in items))
        case {"dict": items}:
            return ("dict", tuple((key, _plain(each)) for key, each in items.items()))
    return ("python", value["python"])


def _run(file: File, found: Found, shadows: Shadows) -> dict[str, Any]:
    """One model for real, again where Python's own dice were thrown. error: why eager did not run it to its end."""
    truth: dict[str, set[str]] = {}
    for seed in range(DICE):
        recorder, error, before = Recorder(Path(file.path)), "", seeded(seed)
        try:
            # Published weights are not here; what is made without them has the same shapes.
            with loaded_where_present(), recorder.recording(), torch.no_grad(), _OnCpu():
                made = found.model if found.construct is None else found.construct()
                model = _real(made, shadows)
                model.train(found.training)  # a class's own may give nothing back
                args, kwargs = call_arguments(model, inputs_at(found.spec))
                model(*args, **kwargs)
        except BaseException as raised:  # noqa: BLE001 - what eager cannot do, it cannot judge
            error = _told(raised, file.path)
        for place, seen in recorder.truth.items():
            truth.setdefault(_place(astuple(place)), set()).update(map(repr, seen))
        if error or random.getstate() == before:
            break
    places = {place: sorted(seen) for place, seen in truth.items()}
    return {"name": found.name, "arguments": _arguments(found.arguments), "error": error, "truth": places}


def seeded(seed: int) -> Any:
    """Seed all dice; the state of Python's own."""
    torch.manual_seed(seed)
    random.seed(seed)
    return random.getstate()


def _real(model: nn.Module, shadows: Shadows) -> nn.Module:
    """The model itself, with values where it has been made on meta: those that are known, else small random ones."""

    def value(tensor: torch.Tensor) -> torch.Tensor:
        known = shadows.get(tensor) if tensor.is_meta else tensor.clone()
        if known is not None:
            return known
        return torch.randn(tensor.shape) / 10 if tensor.is_floating_point() else torch.zeros_like(tensor, device="cpu")

    tensors = dict([*model.named_parameters(), *model.named_buffers()])
    values = {name: value(tensor) for name, tensor in tensors.items()}
    for part in model.modules():
        for held in (part, *vars(part).values()):
            _fill_attributes(held, value)
    if any(tensor.is_meta for tensor in tensors.values()):
        model.to_empty(device="cpu").load_state_dict(values, strict=False)
    return model


def _fill_attributes(held: Any, value: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Plain attributes that are tensors, of a module or of an object that it holds, such as a distribution."""
    for name, inner in list(getattr(held, "__dict__", {}).items()):
        if isinstance(inner, torch.Tensor) and inner.is_meta:
            vars(held)[name] = value(inner)


class _OnCpu(TorchFunctionMode):
    """Code that names another device runs on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.to:
            args = tuple("cpu" if _is_device(each) else each for each in args)
        return func(*args, **kwargs)


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device) or (isinstance(value, str) and value.partition(":")[0] in {"cuda", "mps"})


def _told(error: BaseException, path: str = "") -> str:
    """An error with the line that raised it: the last one of the file `path`, if there is any."""
    frames = traceback.extract_tb(error.__traceback__)
    where = [each for each in frames if each.filename == path][-1:] or frames[-1:]
    place = f" at {where[0].filename}:{where[0].lineno}" if where else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}{place}"
