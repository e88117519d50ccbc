"""The API functions for devices: what a run of a model needs there, and how long it would take.

The recording of a run (`ir/run_costs.py`) knows no device; here the rates of one are laid over it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mase_server.daemon.api_graphs import describe_model_trace, find_shown_model
from mase_server.daemon.devices import CPU, Device, list_devices
from mase_server.daemon.methods import MODEL, Api, ApiError, ApiMethod, Params
from mase_server.daemon.project import ProjectError, read_project
from mase_server.daemon.slots import iterate_in_slices
from mase_server.private import write_whole
from mase_server.protocol import answers
from mase_server.protocol.records import RunCosts
from mase_server.suggestions import suggest


def list_known(folder: str) -> dict[str, Device]:
    """The devices by name: those of the table, and those that the project in a folder adds; ApiError."""
    try:
        own = read_project(folder).devices
        return {**list_devices(), **{name: Device.of(name, table) for name, table in own.items()}}
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
    """What a run of a model needs on a device: memory with the lines that hold it, and an estimate of the time.

    device: a name that `mase/devices` lists, "CPU" unless given.  train: an optimizer (sgd, momentum, adam, adamw,
    adafactor, adam8bit), or "auto" for the file's own: a step of training after the first; without it, inference.
    dtype: fp32, bf16, fp16 or fp64 for parameters and inputs, or amp: the forward under an autocast to bf16.  fit:
    search the largest sizes that fit into `memory` bytes, the device's unless given; for training also those with the
    model's blocks checkpointed.  checkpoint: train with them checkpointed.  parallel: how several devices share the
    run, such as "ddp=8", "fsdp=512" or "tp=8,fsdp=64": all is then told for one of them, with what it sends, at the
    batch that each of them gets.  The model runs as it is written, without passes, on tensors without data.
    """
    snapshot, index = find_shown_model(api, params)
    path, title = snapshot.path, snapshot.titles[index]
    device = await _find_device(api, path, params.get("device", CPU))
    memory = int(params.get("memory") or device.memory)
    if params.get("fit") and not memory:
        raise ApiError("invalid-params", f"how much memory has {device.name}? Say it with `memory`")
    dtype = params.get("dtype", "")
    run = {
        "train": params.get("train", ""), "dtype": dtype, "gpu": not device.curves,
        "memory": memory if params.get("fit") else 0, "checkpoint": bool(params.get("checkpoint")),
        "parallel": params.get("parallel", ""), "link": device.link,
        "rate": device.rate(dtype.replace("fp", "f")),
    }  # fmt: skip
    told: RunCosts = await api.daemon.passes.written("run_costs", path, title, True, run=run)
    facts, rows = told["facts"], await _list_rows(told, device)
    by_bound: dict[str, float] = {}
    for row in rows:
        by_bound[row["bound"]] = by_bound.get(row["bound"], 0.0) + row["seconds"]
    return {
        **describe_model_trace(api, snapshot, index),
        **facts,
        "device": _describe_device(device),
        "memory": memory,
        "at_peak": [_describe_holder(told, each) for each in told["held"]],
        "curve": [
            {"step": step, "bytes": size, **_describe_place(told, place)} for step, size, *place in told["curve"]
        ],
        "seconds": sum(by_bound.values()), "flops": sum(row["flops"] for row in rows),
        "communication_seconds": facts["split_seconds"] + device.send(facts["sent_bytes"], facts["devices"]),
        "bound": max(by_bound, key=by_bound.__getitem__, default=""),
        "rows": rows,
    }  # fmt: skip


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
        },
        device_costs,
        answers.DeviceCosts,
        executes=True,
    ),
)
