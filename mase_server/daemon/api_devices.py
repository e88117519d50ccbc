"""The API functions for devices: what a run of a model needs there, and how long it would take by a roofline.

The recording of a run knows no device (`worker/transforms/device_costs.py`); this module lays a device's rates over it.
A call takes as long as the slowest of three: its operations, its bytes, or its start. All times are estimates.
"""

from __future__ import annotations

import bisect
import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from mase_server.daemon.api_graphs import describe_model_trace, find_shown_model
from mase_server.daemon.methods import MODEL, Api, ApiError, ApiMethod, Params
from mase_server.daemon.project import ProjectError, read_project
from mase_server.daemon.slots import iterate_in_slices
from mase_server.private import write_whole
from mase_server.protocol import answers
from mase_server.protocol.records import RunCosts
from mase_server.suggestions import suggest

#: The device of this machine, whose rates are measured.
CPU = "CPU"
#: Seconds from one kernel to the next on a device that does not say.
_LAUNCH = 4.5e-6
#: The shares of a device's rates that real kernels reach.
_COMPUTE_SHARE, _BANDWIDTH_SHARE = 0.7, 0.8
#: Element types from the smallest on; one that a device lacks runs as the next.
_LADDER = ("i8", "f8", "f16", "bf16", "f32", "f64")
_TYPES = {"f8e4m3fn": "f8", "f8e5m2": "f8", "u8": "i8", "c64": "f32", "c128": "f64"}
#: Operators by the measured curve that tells their time; all others copy.
_KINDS = {
    "product": ("mm", "addmm", "bmm", "baddbmm", "linear", "addmv", "mv", "dot", "_scaled_mm"),
    "convolution": ("convolution", "convolution_backward", "_convolution", "mkldnn_rnn_layer",
                    "mkldnn_rnn_layer_backward"),
    "attention": ("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
                  "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention_for_cpu_backward"),
    "function": ("gelu", "gelu_backward", "tanh", "sigmoid", "exp", "erf", "silu", "silu_backward", "pow", "sin", "cos",
                 "log", "mish", "softplus", "elu", "tanh_backward", "sigmoid_backward", "bernoulli_", "rsqrt", "sqrt"),
    "row": ("native_layer_norm", "native_layer_norm_backward", "_softmax", "_log_softmax", "_softmax_backward_data",
            "_log_softmax_backward_data", "native_batch_norm", "native_batch_norm_backward",
            "_native_batch_norm_legit_no_training", "mean", "sum", "var_mean", "var", "amax", "native_group_norm",
            "native_group_norm_backward", "cumsum", "max_pool2d_with_indices",
            "max_pool2d_with_indices_backward", "avg_pool2d", "_adaptive_avg_pool2d"),
}  # fmt: skip
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}
#: Kinds whose work is counted in operations, not in bytes.
_COUNTED = frozenset({"product", "convolution", "attention"})


@dataclass(frozen=True, slots=True)
class Device:
    """A device. memory: bytes, 0 if unknown.  bandwidth: bytes a second.  rates: operations a second by element type.

    curves: for a device that was measured, kind of operator -> points (work, seconds), which the time lies between.
    """

    name: str
    title: str
    memory: int
    bandwidth: float
    rates: Mapping[str, float]
    launch: float = _LAUNCH
    source: str = ""
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, table: Mapping[str, Any]) -> Device:
        """A device of a table in TOML; ValueError says what is wrong with it."""
        for key in table:
            if key not in ("title", "memory", "bandwidth", "rates", "launch", "source"):
                raise ValueError(f"devices.{name} has no {key!r}")
        standards = {"memory": 0, "bandwidth": 0, "launch": _LAUNCH}
        numbers = {key: table.get(key, standard) for key, standard in standards.items()}
        rates = table.get("rates", {})
        if not isinstance(rates, dict) or not rates or not set(rates) <= set(_LADDER):
            raise ValueError(f"devices.{name}.rates: expected a table with rates of {', '.join(_LADDER)}")
        for key, value in (*numbers.items(), *rates.items()):
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise ValueError(f"devices.{name}.{key}: expected a number, not {value!r}")
        if not numbers["bandwidth"]:
            raise ValueError(f"devices.{name}.bandwidth: expected the bytes a second of its memory")
        return cls(
            name, str(table.get("title", name)), int(numbers["memory"]), float(numbers["bandwidth"]), rates,
            float(numbers["launch"]), str(table.get("source", "")),
        )  # fmt: skip

    def rate(self, dtype: str) -> float:
        """Operations a second on an element type, at that of the next larger type if it has none."""
        start = _LADDER.index(dtype) if (dtype := _TYPES.get(dtype, dtype)) in _LADDER else _LADDER.index("f32")
        known = [self.rates[each] for each in (*_LADDER[start:], *reversed(_LADDER[:start])) if each in self.rates]
        return known[0]

    def estimate(self, operator: str, dtype: str, flops: int, traffic: int) -> tuple[float, str]:
        """Seconds of one call, and what bounds it: compute, memory or launch."""
        kind = _KIND_OF.get(operator.rpartition(".")[2], "copy")
        if self.curves:
            compute = _look_up(self.curves[kind], flops) if kind in _COUNTED and flops else 0.0
            memory = _look_up(self.curves["copy" if kind in _COUNTED else kind], traffic)
            start = min(seconds for _, seconds in self.curves["copy"])
        else:
            compute = flops / (_COMPUTE_SHARE * self.rate(dtype))
            memory = traffic / (_BANDWIDTH_SHARE * self.bandwidth)
            start = self.launch
        seconds = max(compute, memory, start)
        bound = "launch" if seconds <= 1.5 * start else "compute" if compute >= memory else "memory"
        return seconds, bound


def _look_up(points: Sequence[tuple[float, float]], work: float) -> float:
    """The seconds of some work, on the straight lines between measured points; beyond the last at its rate."""
    place = bisect.bisect(points, (work, math.inf))
    if place == 0:
        return points[0][1]
    if place == len(points):
        return points[-1][1] * work / points[-1][0]
    (low, least), (high, most) = points[place - 1], points[place]
    return least + (most - least) * (work - low) / (high - low)


@cache
def _read_known() -> dict[str, Device]:
    text = (Path(__file__).parent / "devices.toml").read_text("utf-8")
    return {name: Device.of(name, table) for name, table in tomllib.loads(text).items()}


def list_known(folder: str) -> dict[str, Device]:
    """The devices by name: those of the table, and those that the project in a folder adds; ApiError."""
    try:
        own = read_project(folder).devices
        return {**_read_known(), **{name: Device.of(name, table) for name, table in own.items()}}
    except (ProjectError, ValueError) as error:
        raise ApiError("invalid-params", str(error)) from error


async def list_devices(api: Api, params: Params) -> list[answers.DeviceFacts]:
    """The devices that costs can be estimated for, with the source of their figures; the processor is measured."""
    folder = api.daemon.folder_of(params["path"])
    cpu: answers.DeviceFacts = {
        "name": CPU, "title": "the processors of this machine", "memory": 0, "bandwidth": 0.0, "rates": {},
        "source": "measured when it is first asked for",
    }  # fmt: skip
    return [cpu, *(_describe_device(each) for each in list_known(folder).values())]


def _describe_device(device: Device) -> answers.DeviceFacts:
    return {
        "name": device.name, "title": device.title, "memory": device.memory, "bandwidth": device.bandwidth,
        "rates": dict(device.rates), "source": device.source,
    }  # fmt: skip


async def device_costs(api: Api, params: Params) -> answers.DeviceCosts:
    """What a run of a model needs on a device: memory with the lines that hold it, and an estimate of the time.

    device: a name that `mase/devices` lists, "CPU" unless given.  train: an optimizer (sgd, momentum, adam, adamw,
    adafactor, adam8bit), or "auto" for the file's own: a step of training after the first; without it, inference.
    dtype: fp32, bf16, fp16 or fp64 for parameters and inputs.  fit: search the largest sizes that fit into `memory`
    bytes, the device's unless given.  The model runs as it is written, without passes, on tensors without data.
    """
    snapshot, index = find_shown_model(api, params)
    path, title = snapshot.path, snapshot.titles[index]
    device = await _find_device(api, path, params.get("device", CPU))
    memory = int(params.get("memory") or device.memory)
    if params.get("fit") and not memory:
        raise ApiError("invalid-params", f"how much memory has {device.name}? Say it with `memory`")
    run = {
        "train": params.get("train", ""), "dtype": params.get("dtype", ""), "gpu": not device.curves,
        "memory": memory if params.get("fit") else 0,
    }  # fmt: skip
    told: RunCosts = await api.daemon.passes.written("run_costs", path, title, True, run=run)
    rows = [row async for row in iterate_in_slices(_iterate_rows(told, device))]
    seconds = sum(row["seconds"] for row in rows)
    by_bound: dict[str, float] = {}
    for row in rows:
        by_bound[row["bound"]] = by_bound.get(row["bound"], 0.0) + row["seconds"]
    return {
        **describe_model_trace(api, snapshot, index),
        "device": _describe_device(device),
        "mode": told["mode"], "optimizer": told["optimizer"], "loss": told["loss"], "measured": told["measured"],
        "memory": memory, "sizes": told["sizes"], "fits": told["fits"],
        "peak_bytes": told["peak_bytes"], "parameters_bytes": told["parameters_bytes"],
        "gradients_bytes": told["gradients_bytes"], "optimizer_bytes": told["optimizer_bytes"],
        "activations_bytes": told["activations_bytes"], "inputs_bytes": told["inputs_bytes"],
        "at_peak": [_describe_holder(told, each) for each in told["held"]],
        "curve": [
            {"step": step, "bytes": size, **_describe_place(told, place)} for step, size, *place in told["curve"]
        ],
        "seconds": seconds, "flops": sum(row["flops"] for row in rows),
        "bound": max(by_bound, key=by_bound.__getitem__, default=""),
        "rows": rows,
    }  # fmt: skip


def _describe_place(told: RunCosts, place: Sequence[int]) -> answers.RunPlace:
    file, line, module = place
    return {"file": told["files"][file], "line": line, "module": told["modules"][module]}


def _describe_holder(told: RunCosts, held: Sequence[Any]) -> answers.PeakHolder:
    kind, *place, size = held
    return {"kind": kind, "bytes": size, **_describe_place(told, place)}


def _iterate_rows(told: RunCosts, device: Device) -> Iterator[answers.RunRow]:
    """One row for each operator at each place and phase, the calls of one size after the other."""
    rows: dict[tuple[Any, ...], answers.RunRow] = {}
    for phase, operator, dtype, *place, flops, reads, writes, count in told["calls"]:
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
    yield from rows.values()


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
    curves = {kind: [(work, seconds) for work, seconds in points] for kind, points in measured["curves"].items()}
    work, seconds = curves["product"][-1]
    size, copied = curves["copy"][-1]
    return Device(
        CPU, measured["title"], int(measured["memory"]), size / copied, {"f32": work / seconds}, 0.0,
        "measured here", curves,
    )  # fmt: skip


DEVICES = (
    ApiMethod("mase/devices", {"path": str}, list_devices, list[answers.DeviceFacts]),
    ApiMethod(
        "mase/deviceCosts",
        {**MODEL, "device?": str, "train?": str, "dtype?": str, "fit?": bool, "memory?": int},
        device_costs,
        answers.DeviceCosts,
        executes=True,
    ),
)
