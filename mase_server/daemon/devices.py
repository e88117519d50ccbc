"""Devices, and the time that a call of an operator takes there by a roofline: an estimate.

A call takes as long as the slowest of three: its operations, its bytes, or its start.
"""

from __future__ import annotations

import bisect
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from mase_server.building import Part

#: The device of this machine, whose rates are measured.
CPU = "CPU"
#: Seconds from one operator to the next, where Python calls each: measured on a host of an H100.
_LAUNCH = 2e-5
#: The shares of a device's rates that real kernels reach.
_COMPUTE_SHARE, _BANDWIDTH_SHARE = 0.7, 0.8
#: Devices of a host.
_HOST = 8
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
    "layout": ("clone", "copy_", "_to_copy", "cat", "stack"),
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

    link, network: bytes a second to the next device of a ring, within a host and between hosts; 0 if unknown.
    curves: for a device that was measured, kind of operator -> points (work, seconds), which the time lies between.
    """

    name: str
    title: str
    memory: int
    bandwidth: float
    rates: Mapping[str, float]
    launch: float = _LAUNCH
    source: str = ""
    link: float = 0.0
    network: float = 0.0
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, table: Mapping[str, Any]) -> Device:
        """A device of a table in TOML; ValueError says what is wrong with it."""
        rates = table.get("rates", {})
        if not isinstance(rates, dict) or not rates or not set(rates) <= set(_LADDER):
            raise ValueError(f"devices.{name}.rates: expected a table with rates of {', '.join(_LADDER)}")
        rest = {key: value for key, value in table.items() if key != "rates"}
        standards = {"memory": 0, "bandwidth": 0, "launch": _LAUNCH, "link": 0, "network": table.get("link", 0)}
        numbers = _read_numbers(f"devices.{name}", rest, standards)
        _read_numbers(f"devices.{name}", rates, dict.fromkeys(_LADDER, 0))
        if not numbers["bandwidth"]:
            raise ValueError(f"devices.{name}.bandwidth: expected the bytes a second of its memory")
        return cls(
            name, str(table.get("title", name)), int(numbers["memory"]), float(numbers["bandwidth"]), rates,
            float(numbers["launch"]), str(table.get("source", "")), float(numbers["link"]), float(numbers["network"]),
        )  # fmt: skip

    @classmethod
    def measured(cls, found: Mapping[str, Any]) -> Device:
        """The processors of this machine, from what `worker/transforms/device_costs.py` measured."""
        curves = {kind: [(work, seconds) for work, seconds in points] for kind, points in found["curves"].items()}
        (work, seconds), (size, copied) = curves["product"][-1], curves["copy"][-1]
        rates = {"f32": work / seconds}
        return cls(
            CPU, found["title"], found["memory"], size / copied, rates, found["launch"], "measured here", curves=curves
        )

    @classmethod
    def of_part(cls, part: Part) -> Device:
        """A part that hardware is built for: all of its multipliers work in each cycle.

        A product and a sum are two operations, whatever the element type. Its memory for a run is not known.
        """
        rates = {"i8": 2 * part.multipliers * part.clock}
        return cls(part.name, part.title, 0, part.bandwidth, rates, launch=0.0, source=part.source)

    def rate(self, dtype: str) -> float:
        """Operations a second on an element type, at that of the next larger type if it has none."""
        start = _LADDER.index(dtype) if (dtype := _TYPES.get(dtype, dtype)) in _LADDER else _LADDER.index("f32")
        known = [self.rates[each] for each in (*_LADDER[start:], *reversed(_LADDER[:start])) if each in self.rates]
        return known[0]

    def send(self, size: int, devices: int) -> float:
        """Seconds in which each device of a ring sends so many bytes; 0 if no rate is known."""
        rate = self.link if devices <= _HOST else self.network
        return size / rate if rate else 0.0

    def estimate(self, operator: str, dtype: str, flops: int, traffic: int) -> tuple[float, str]:
        """Seconds of one call, and what bounds it: compute, memory or launch."""
        kind = _KIND_OF.get(operator.rpartition(".")[2], "copy")
        if self.curves:
            compute = _look_up(self.curves[kind], flops) if kind in _COUNTED and flops else 0.0
            memory = _look_up(self.curves["copy" if kind in _COUNTED else kind], traffic)
            # A processor computes nothing while it prepares the next call.
            seconds = max(compute, memory) + self.launch
        else:
            compute = flops / (_COMPUTE_SHARE * self.rate(dtype))
            memory = traffic / (_BANDWIDTH_SHARE * self.bandwidth)
            seconds = max(compute, memory, self.launch)
        bound = "launch" if max(compute, memory) <= self.launch else "compute" if compute >= memory else "memory"
        return seconds, bound


def read_part(name: str, table: Mapping[str, Any]) -> Part:
    """A part of a table in TOML; ValueError says what is wrong with it."""
    keys, process = ("luts", "multipliers", "memory_bits", "bandwidth", "clock"), table.get("process", "")
    if not isinstance(process, str) or (process and any(key in table for key in keys[:3])):
        raise ValueError(f"parts.{name}.process: expected a name, and no {', '.join(keys[:3])} beside it")
    figures = {key: value for key, value in table.items() if key != "process"}
    numbers = _read_numbers(f"parts.{name}", figures, dict.fromkeys(keys, 0))
    for key in ("clock",) if process else ("luts", "clock"):
        if not numbers[key]:
            raise ValueError(f"parts.{name}.{key}: expected a number above 0")
    luts, multipliers, memory_bits = (int(numbers[key]) for key in keys[:3])
    title, source = str(table.get("title", name)), str(table.get("source", ""))
    bandwidth, clock = numbers["bandwidth"], numbers["clock"]
    return Part(name, title, luts, multipliers, memory_bits, bandwidth, clock, source, process)


def _read_numbers(place: str, table: Mapping[str, Any], standards: Mapping[str, float]) -> dict[str, float]:
    """The numbers of a table that also may have a title and the source of its figures."""
    for key in table:
        if key not in (*standards, "title", "source"):
            raise ValueError(f"{place} has no {key!r}")
    numbers = {key: table.get(key, standard) for key, standard in standards.items()}
    for key, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise ValueError(f"{place}.{key}: expected a number, not {value!r}")
    return numbers


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
def list_devices() -> Mapping[str, Device]:
    """The devices of `devices.toml`, by name."""
    return {name: Device.of(name, table) for name, table in _read_toml("devices").items()}


def list_parts(own: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Part]:
    """The parts of `parts.toml` and those of a project, by name; ValueError says what is wrong with one."""
    return {name: read_part(name, table) for name, table in {**_read_toml("parts"), **own}.items()}


def _read_toml(name: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text("utf-8"))
