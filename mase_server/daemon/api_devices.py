"""The API functions for devices: what a run of a model needs there, and how long it would take.

The recording of a run (`ir/run_costs.py`) knows no device; here the rates of one are laid over it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from mase_server.daemon.api_files import tracked_of
from mase_server.daemon.api_graphs import describe_model_trace, find_shown_model, rows_of
from mase_server.daemon.channel import CallFailed
from mase_server.daemon.devices import CPU, Device, list_devices, list_parts
from mase_server.daemon.graph_snapshot import GraphSnapshot, NodeRun, ShownRun, Transform
from mase_server.daemon.methods import MODEL, Api, ApiError, ApiMethod, Params
from mase_server.daemon.pipelines import PassError
from mase_server.daemon.project import ProjectError, read_project
from mase_server.daemon.slots import iterate_in_slices
from mase_server.daemon.supervisor import TraceWorker
from mase_server.dtypes import item_bytes
from mase_server.private import write_whole
from mase_server.protocol import answers
from mase_server.protocol.records import RunCosts
from mase_server.protocol.request import TraceOptions, owner_of
from mase_server.suggestions import suggest


def list_known(folder: str) -> dict[str, Device]:
    """The devices by name: those of the table, the parts of hardware, and those that the folder adds; ApiError."""
    try:
        own = read_project(folder)
        parts = {name: Device.of_part(part) for name, part in list_parts(own.parts).items() if part.bandwidth}
        return {**list_devices(), **parts, **{name: Device.of(name, table) for name, table in own.devices.items()}}
    except (ProjectError, ValueError) as error:
        raise ApiError("invalid-params", str(error)) from error


async def describe_devices(api: Api, params: Params) -> answers.Devices:
    """The devices that costs can be estimated for, with the source of their figures; the processor is measured."""
    folder = api.daemon.folder_of(params["path"])
    cpu: answers.DeviceFacts = {
        "name": CPU, "title": "the processors of this machine", "memory": 0, "bandwidth": 0.0, "rates": {},
        "source": "measured when it is first asked for",
    }  # fmt: skip
    return {"devices": [cpu, *(_describe_device(each) for each in list_known(folder).values())]}


def _describe_device(device: Device) -> answers.DeviceFacts:
    return {
        "name": device.name, "title": device.title, "memory": device.memory, "bandwidth": device.bandwidth,
        "rates": dict(device.rates), "source": device.source,
    }  # fmt: skip


async def device_costs(api: Api, params: Params) -> answers.DeviceCosts:
    """The needs of a model's run on a device: memory with the lines that hold it, and an estimate of the time.

    device: a name that `mase/devices` lists, "CPU" unless given.  train: an optimizer (sgd, momentum, adam, adamw,
    adafactor, adam8bit), or "auto" for the file's own: a step of training after the first; without it, inference.
    dtype: fp32, bf16, fp16 or fp64 for parameters and inputs, or amp: the forward under an autocast to bf16.  fit:
    search the largest sizes that fit into `memory` bytes, the device's unless given; for training also those with the
    model's blocks checkpointed.  checkpoint: train with them checkpointed.  parallel: how several devices share the
    run, such as "ddp=8", "fsdp=512" or "tp=8,fsdp=64": all is then told for one of them, with what it sends, at the
    batch that each of them gets.  show: have `mase/costTable` and `mase/graph` tell these costs, too, until the model
    is traced again.  The model runs as it is written, without passes, on tensors without data.
    """
    snapshot, index = find_shown_model(api, params)
    path, title = snapshot.path, snapshot.titles[index]
    device = await _find_device(api, path, params.get("device", CPU))
    memory = int(params.get("memory") or device.memory)
    if params.get("fit") and not memory:
        raise ApiError("invalid-params", f"how much memory has {device.name}? Say it with `memory`")
    told = await api.daemon.record_run(path, title, _plan_run(params, device, memory if params.get("fit") else 0))
    answer = await _describe_run(api, snapshot, index, device, told, memory)
    if params.get("show"):
        api.daemon.show_run(path, title, await lay_over_nodes(api, snapshot, index, answer))
    return answer


def _plan_run(params: Params, device: Device, memory: int = 0) -> dict[str, object]:
    given = {key: params.get(key, "") for key in ("train", "dtype", "parallel")}
    return {
        **given, "gpu": not device.curves, "memory": memory, "checkpoint": bool(params.get("checkpoint")),
        "link": device.link, "rate": device.rate(given["dtype"].replace("fp", "f")),
    }  # fmt: skip


async def _describe_run(
    api: Api, snapshot: GraphSnapshot, index: int, device: Device, told: RunCosts, memory: int
) -> answers.DeviceCosts:
    facts, rows = told["facts"], await _list_rows(told, device)
    seconds, bound = _sum_times(rows)
    return {
        **describe_model_trace(api, snapshot, index),
        **facts,
        "device": _describe_device(device),
        "memory": memory,
        "at_peak": [_describe_holder(told, each) for each in told["held"]],
        "curve": [
            {"step": step, "bytes": size, **_describe_place(told, place)} for step, size, *place in told["curve"]
        ],
        "seconds": seconds, "flops": sum(row["flops"] for row in rows), "bound": bound,
        "communication_seconds": facts["split_seconds"] + device.send(facts["sent_bytes"], facts["devices"]),
        "rows": rows,
    }  # fmt: skip


def _sum_times(rows: Sequence[answers.RunRow]) -> tuple[float, str]:
    """The time of all, and what bounds most of it."""
    by_bound: dict[str, float] = {}
    for row in rows:
        by_bound[row["bound"]] = by_bound.get(row["bound"], 0.0) + row["seconds"]
    return sum(by_bound.values()), max(by_bound, key=by_bound.__getitem__, default="")


# A run beside the graph: what each node takes of it.

#: Names of ATen's operators that a call of another name makes.
_MADE_BY = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot"), ("matmul", "linear", "einsum")),
    "native_layer_norm": ("layer_norm",), "native_batch_norm": ("batch_norm",), "native_group_norm": ("group_norm",),
    "native_dropout": ("dropout",), "convolution": ("conv",), "nll_loss_forward": ("cross_entropy",),
    "_log_softmax": ("cross_entropy",), "clone": ("contiguous",), "_to_copy": ("to", "float", "type"),
}  # fmt: skip


@dataclass(slots=True)
class _NodeIndex:
    """The nodes of a model: those of its layers by path, and the others by the path of their module and their line."""

    layers: dict[str, list[int]] = field(default_factory=dict)
    lines: dict[tuple[str, str, int], list[int]] = field(default_factory=dict)

    def find(self, place: answers.RunPlace, names: Sequence[str], operators: Sequence[str]) -> list[int]:
        """The nodes at a place: those of one of these names if there are any."""
        found = self.layers.get(place["module"])
        if found is None:
            found = self.lines.get((place["module"], place["file"], place["line"]), [])
        return [row for row in found if any(name in operators[row] for name in names)] or found


async def _index_nodes(snapshot: GraphSnapshot, model: int) -> _NodeIndex:
    nodes, index = snapshot.payload["nodes"], _NodeIndex()
    async for row in iterate_in_slices(rows_of(snapshot, model, None)):
        scope, file = nodes["scope"][row], nodes["file"][row]
        if nodes["op"][row] == "call_module":
            index.layers.setdefault(str(nodes["target"][row]), []).append(row)
        elif nodes["op"][row] in ("call_function", "call_method") and scope >= 0 and file >= 0:
            path = snapshot.payload["files"][file]["path"]
            place = str(snapshot.payload["scopes"][scope][1]), path, nodes["line"][row]
            index.lines.setdefault(place, []).append(row)
    return index


async def lay_over_nodes(api: Api, snapshot: GraphSnapshot, model: int, told: answers.DeviceCosts) -> ShownRun:
    """Lay a run over the nodes of a model: the operators of its layer, or of its line and name.

    An operator whose name no call of its line has is shared by them all.
    """
    nodes, index = snapshot.payload["nodes"], await _index_nodes(snapshot, model)
    of_nodes: dict[int, NodeRun] = {}
    rest: dict[str, NodeRun] = {}

    def count(place: answers.RunPlace, names: Sequence[str], part: NodeRun) -> None:
        found = index.find(place, names, nodes["mase_op"])
        for row in found:
            of_nodes.setdefault(row, NodeRun()).add(part, 1 / len(found))
        if not found:
            rest.setdefault(place["module"], NodeRun()).add(part)

    async for one in iterate_in_slices(told["rows"]):
        moved = one["reads_bytes"] + one["writes_bytes"]
        count(one, _list_names(one["operator"]), NodeRun(one["flops"], moved, 0, {one["bound"]: one["seconds"]}))
    for held in told["at_peak"]:
        if held["kind"] == "activation":
            count(held, (), NodeRun(held=held["bytes"]))
    text = api.daemon.traced_text(snapshot.path)
    return ShownRun(snapshot.path, snapshot.sha256, snapshot.generation, text, told, of_nodes, rest)


def _list_names(operator: str) -> Sequence[str]:
    """The names that calls of an ATen operator may have."""
    name = operator.rpartition(".")[2].removesuffix("_data").removesuffix("_backward")
    return (*_MADE_BY.get(name, ()), name.strip("_"))


def _describe_place(told: RunCosts, place: Sequence[int]) -> answers.RunPlace:
    file, line, module = place
    return {"file": told["files"][file], "line": line, "module": told["modules"][module]}


def _describe_holder(told: RunCosts, held: Sequence[Any]) -> answers.PeakHolder:
    kind, *place, size = held
    return {"kind": kind, "bytes": size, **_describe_place(told, place)}


async def _list_rows(told: RunCosts, device: Device) -> list[answers.RunRow]:
    """One row for each operator at each place and phase, the calls of one size after the other."""
    rows: dict[tuple[Any, ...], answers.RunRow] = {}
    async for phase, operator, dtype, *place, flops, reads, writes, count in iterate_in_slices(told["calls"]):
        seconds, bound = device.estimate(operator, dtype, flops, reads + writes)
        key = (phase, operator, dtype, *place)
        row = rows.get(key)
        if row is None:
            row = rows[key] = {
                "phase": phase, "operator": operator, "dtype": dtype, **_describe_place(told, place), "calls": 0,
                "flops": 0, "reads_bytes": 0, "writes_bytes": 0, "bound": bound, "seconds": 0.0,
            }  # fmt: skip
        row["calls"] += count
        row["flops"] += count * flops
        row["reads_bytes"] += count * reads
        row["writes_bytes"] += count * writes
        row["seconds"] += count * seconds
    return list(rows.values())


async def _find_device(api: Api, path: str, name: str) -> Device:
    known = list_known(api.daemon.folder_of(path))
    folded = {each.casefold().replace(" ", ""): each for each in (CPU, *known)}
    found = folded.get(name.casefold().replace(" ", "").replace("-", ""))
    if found is None:
        raise ApiError("invalid-params", f"there is no device {name!r}{suggest(name, [CPU, *known], 'there are')}")
    return await _measure_processor(api, path) if found == CPU else known[found]


async def _measure_processor(api: Api, path: str) -> Device:
    """The processors of this machine as they were measured once, with the torch of the file's interpreter."""
    kept = api.daemon.cache_dir / "processor.json"
    try:
        measured = json.loads(kept.read_text("utf-8"))
    except (OSError, ValueError):
        measured = {}
    fresh = await api.daemon.passes.written("calibrate", path, None, True, measured.get("key", ""))
    if "curves" in fresh:
        measured = fresh
        write_whole(kept, json.dumps(measured))
    return Device.measured(measured)


# Two runs beside each other: of two texts, with two sets of inputs, before and after passes.


async def compare_costs(api: Api, params: Params) -> answers.CostComparison:
    """The difference of two runs of a model on a device: figures, and the lines whose costs differ.

    before, after: {"text": another text of the file}, {"inputs": as in a `# mase:` comment}, {"set": a named set of
    inputs, "" for the comments without a name}, {"passes": true} for the model after its passes; {}, which `after` is
    unless given, for the model as it is shown, without passes.  What passes gain is told from the bits of their number
    formats, as if the device had kernels for these: all bytes shrink with them, and operations take the rate of the
    next element type that the device has; what passes insert is not counted.
    device, train, dtype, checkpoint, parallel: as for `mase/deviceCosts`.
    """
    snapshot, index = find_shown_model(api, params)
    device = await _find_device(api, snapshot.path, params.get("device", CPU))
    sides = [await _run_side(api, params, device, params.get(key) or {}) for key in ("before", "after")]
    (before, earlier), (after, later) = sides
    change = compare_runs(snapshot.path, before, after, earlier, later)
    return {**describe_model_trace(api, snapshot, index), **change, "device": _describe_device(device)}


async def _run_side(
    api: Api, params: Params, device: Device, side: Mapping[str, Any]
) -> tuple[answers.DeviceCosts, str]:
    """The run of one side, and the text of its file."""
    snapshot, index = find_shown_model(api, params)
    path, title = snapshot.path, snapshot.titles[index]
    if wrong := side.keys() - {"text", "inputs", "set", "passes"}:
        raise ApiError("invalid-params", f"a side has no {min(wrong)!r}; it has text, inputs, set or passes")
    text, plan = api.daemon.traced_text(path), _plan_run(params, device)
    if not side.keys() & {"text", "inputs", "set"}:
        told = await _describe_run(api, snapshot, index, device, await api.daemon.record_run(path, title, plan), 0)
        return (await _apply_formats(snapshot, index, device, told) if side.get("passes") else told), text
    model = snapshot.payload["models"][index]
    name, found = side.get("set", model["set"]), list[RunCosts]()
    if name and name not in model["sets"]:
        raise ApiError(
            "unknown-inputs", f"{title} has no inputs named {name!r}{suggest(name, model['sets'], 'it has')}"
        )
    options, owner = tracked_of(api, path).options or TraceOptions(), owner_of(model["name"])
    options = replace(options, sets={**options.sets, owner: name}) if "set" in side or name else options
    if inputs := side.get("inputs"):
        options = replace(options, inputs=tuple(str(inputs).split(";")), inputs_from="option", sets={})

    async def record(worker: TraceWorker) -> None:
        asked = {"model": title, "steps": [], "original": True, "name": "", "run": plan}
        try:
            found.append(await worker.call("run_costs", asked))
        except CallFailed as error:
            raise PassError(error.kind, str(error)) from error

    trial = await api.daemon.tried(path, options, side.get("text"), record)
    if trial.snapshot is None or not found:
        why = next((each.message for each in trial.problems if each.severity == "error"), "nothing of it is traced")
        raise ApiError("no-graph", f"{title} cannot be compared: {why}")
    told = await _describe_run(api, trial.snapshot, trial.snapshot.titles.index(title), device, found[0], 0)
    return told, side.get("text", text)


#: How formats of integers begin.
_INTEGERS = ("fixed", "int", "binary", "scale")


async def _apply_formats(
    snapshot: GraphSnapshot, model: int, device: Device, told: answers.DeviceCosts
) -> answers.DeviceCosts:
    """A run as it would be with the number formats of the passes on its model, and without what these took out."""
    transform = snapshot.transforms.get(model)
    if transform is None:
        raise ApiError("invalid-params", f"no pass is applied to {snapshot.titles[model]}")
    bits, nodes = transform.told.get("formats") or {}, snapshot.payload["nodes"]
    index, rows = await _index_nodes(snapshot, model), list[answers.RunRow]()
    async for one in iterate_in_slices(told["rows"]):
        facts = [transform.node(row) for row in index.find(one, _list_names(one["operator"]), nodes["mase_op"])]
        if facts and all(str(each[3]).startswith("taken out by") for each in facts):
            continue
        format = next((each[0] for each in facts if each[0] in bits), None)
        rows.append(one if format is None else _narrow_row(one, device, format, bits[format]))
    held: list[answers.PeakHolder] = [
        {**each, "bytes": _narrow_holder(each, transform, index, bits)} for each in told["at_peak"]
    ]
    saved = sum(each["bytes"] for each in told["at_peak"]) - sum(each["bytes"] for each in held)
    seconds, bound = _sum_times(rows)
    peak = told["peak_bytes"] - saved
    return {**told, "rows": rows, "at_peak": held, "peak_bytes": peak, "seconds": seconds, "bound": bound}


def _narrow_row(row: answers.RunRow, device: Device, format: str, bits: float) -> answers.RunRow:
    share = min(1.0, bits / (8 * item_bytes(row["dtype"])))
    reads, writes, calls = round(share * row["reads_bytes"]), round(share * row["writes_bytes"]), row["calls"]
    narrow = "i8" if format.startswith(_INTEGERS) else "f8"
    dtype = narrow if bits <= 8 else "f16" if bits <= 16 else row["dtype"]
    seconds, bound = device.estimate(row["operator"], dtype, row["flops"] // calls, (reads + writes) // calls)
    return {**row, "reads_bytes": reads, "writes_bytes": writes, "seconds": calls * seconds, "bound": bound}


def _narrow_holder(held: answers.PeakHolder, transform: Transform, index: _NodeIndex, bits: Mapping[str, float]) -> int:
    before, after = (transform.told.get("summary") or {}).get("parameter_bytes") or (1, 1)
    if held["kind"] == "parameter" and before:
        return round(held["bytes"] * after / before)
    formats = [transform.node(row)[0] for row in index.find(held, (), ())] if held["kind"] == "activation" else []
    found = [bits[each] for each in formats if each in bits]
    return round(held["bytes"] * min(1.0, max(found) / 32)) if found else held["bytes"]


def compare_runs(
    path: str, before: answers.DeviceCosts, after: answers.DeviceCosts, earlier: str, later: str
) -> answers.CostChange:
    """The difference of two runs. earlier, later: the texts of the file `path`; their equal lines belong together."""
    now = _align_lines(earlier, later)
    found: dict[tuple[str, int, int], answers.ChangedLine] = {}

    def find(place: answers.RunPlace, side: int) -> answers.ChangedLine | None:
        file, line = place["file"], place["line"]
        if not line:
            return None
        lines = (now.get(line, 0) if file == path else line, line) if side == 0 else (line, 0)
        key = (file, lines[0], lines[1] if not lines[0] else 0)
        row = found.setdefault(key, {
            "file": file, "line": lines[0], "before_line": 0, "modules": [], "seconds": [0.0, 0.0], "moved": [0, 0],
            "held": [0, 0],
        })  # fmt: skip
        row["before_line"] = line if side == 0 else row["before_line"]
        if place["module"] not in row["modules"]:
            row["modules"].append(place["module"])
        return row

    for side, told in enumerate((before, after)):
        for one in told["rows"]:
            if (row := find(one, side)) is not None:
                row["seconds"][side] += one["seconds"]
                row["moved"][side] += one["reads_bytes"] + one["writes_bytes"]
        for held in told["at_peak"]:
            if (row := find(held, side)) is not None:
                row["held"][side] += held["bytes"]

    def weigh(row: answers.ChangedLine) -> float:
        """The larger share of a whole that differs."""
        time = abs(row["seconds"][1] - row["seconds"][0]) / (max(before["seconds"], after["seconds"]) or 1)
        return max(time, abs(row["held"][1] - row["held"][0]) / (max(before["peak_bytes"], after["peak_bytes"]) or 1))

    differ = [row for row in found.values() if weigh(row) > _SAME or row["moved"][0] != row["moved"][1]]
    return {
        "before": _figures_of(before), "after": _figures_of(after),
        "lines": sorted(differ, key=lambda row: -weigh(row)),
    }  # fmt: skip


#: The share of a whole below which two sums are equal: they are added in another order.
_SAME = 1e-9


def _align_lines(earlier: str, later: str) -> dict[int, int]:
    """Numbers of lines of the earlier text -> of those in the later one that are equal, or stand in their place."""
    matcher = difflib.SequenceMatcher(None, earlier.splitlines(), later.splitlines(), autojunk=False)
    return {
        start + offset + 1: there + offset + 1
        for tag, start, end, there, last in matcher.get_opcodes()
        if tag == "equal" or (tag == "replace" and end - start == last - there)
        for offset in range(end - start)
    }


def _figures_of(told: answers.DeviceCosts) -> answers.RunFigures:
    return cast("answers.RunFigures", {key: told[key] for key in answers.RunFigures.__annotations__})  # type: ignore[literal-required]


def compare_with_earlier(run: ShownRun) -> answers.CostChange | None:
    """The change from the run of the last other text to this one; None without one of the same kind."""
    kinds = [(each.told["device"]["name"], each.told["optimizer"]) for each in (run.before or run, run)]
    if run.before is None or kinds[0] != kinds[1]:
        return None
    return compare_runs(run.path, run.before.told, run.told, run.before.text, run.text)


DEVICES = (
    ApiMethod("mase/devices", {"path": str}, describe_devices, answers.Devices),
    ApiMethod(
        "mase/deviceCosts",
        {
            **MODEL,
            "device?": str,
            "train?": str,
            "dtype?": str,
            "fit?": bool,
            "memory?": int,
            "checkpoint?": bool,
            "parallel?": str,
            "show?": bool,
        },
        device_costs,
        answers.DeviceCosts,
        executes=True,
    ),
    ApiMethod(
        "mase/compareCosts",
        {
            **MODEL,
            "before": dict,
            "after?": dict,
            "device?": str,
            "train?": str,
            "dtype?": str,
            "checkpoint?": bool,
            "parallel?": str,
        },
        compare_costs,
        answers.CostComparison,
        executes=True,
    ),
)
