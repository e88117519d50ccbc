"""What one trace tells the next one of the same file, through the server, which does not look inside."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from mase_server.inputs.spec import Inputs
from mase_server.inputs.text import SpecError, parse, write
from mase_server.worker.traced import Traced

VERSION = 1


def pack(traced: Sequence[Traced]) -> bytes:
    """The inputs that a search found, by class name: they are tried first next time."""
    inputs = {}
    for one in traced:
        if one.found.inputs_from == "search" and (text := _text(one.found.spec)) is not None:
            inputs[one.name] = [text, one.found.found]
    return json.dumps({"version": VERSION, "inputs": inputs}).encode()


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
        data = json.loads(packed or b"{}")
        if data.get("version") != VERSION:
            return {}
        return {name: (parse(text), how) for name, (text, how) in data["inputs"].items()}
    except (ValueError, TypeError, SpecError):
        return {}
