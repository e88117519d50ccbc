"""The message from one trace to the next one of the same file. The server keeps it and does not look inside."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mase_server.inputs.spec import Inputs
from mase_server.inputs.text import SpecError, parse, write
from mase_server.tracing.probe import Outcome
from mase_server.worker.traced import Traced

VERSION = 3


def pack(traced: Sequence[Traced], endless: str = "") -> bytes:
    """The inputs that a search found and how probing went, by class name: next time they are tried first.

    endless: the program that called no model in time: next time it is given less.
    """
    inputs, probes = {}, {}
    for one in traced:
        if one.found.inputs_from == "search" and (text := _text(one.found.spec)) is not None:
            inputs[one.name] = [text, one.found.found]
        if one.error is None and one.probed is not None and one.probed.outcome is not None:
            probes[one.name] = asdict(one.probed.outcome)
    return json.dumps({"version": VERSION, "inputs": inputs, "probes": probes, "endless": endless}).encode()


def endless(packed: bytes | None) -> str:
    """The program that called no model in time; "" for anything that this version did not write."""
    try:
        return _unpack(packed, "endless") or ""
    except (ValueError, KeyError):
        return ""


def _text(spec: Inputs) -> str | None:
    """The written form, where it reads back as the same inputs."""
    text = write(spec)
    try:
        return text if parse(text) == spec else None
    except SpecError:
        return None


def inputs(packed: bytes | None) -> Mapping[str, tuple[Inputs, str]]:
    """class name -> (inputs, how they were found); empty for anything that this version did not write."""
    try:
        return {name: (parse(text), how) for name, (text, how) in _unpack(packed, "inputs").items()}
    except (ValueError, TypeError, SpecError):
        return {}


def outcomes(packed: bytes | None) -> Mapping[str, Outcome]:
    """class name -> how its last probing went; empty for anything that this version did not write."""
    try:
        return {
            name: Outcome(data["structure"], tuple(data["varied"]), data["fixed"], data["sizing"], data["otherwise"])
            for name, data in _unpack(packed, "probes").items()
        }
    except (ValueError, TypeError, KeyError):
        return {}


def _unpack(packed: bytes | None, key: str) -> Any:
    data = json.loads(packed or b"{}")
    return data[key] if isinstance(data, dict) and data.get("version") == VERSION else {}
