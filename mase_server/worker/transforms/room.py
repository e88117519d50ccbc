"""Is there room for a model with values?"""

from __future__ import annotations

from mase_server.ops.cost import parameters_of
from mase_server.worker.traced import Traced

#: A model that is run takes so many times the bytes of its parameters: they are rounded, and there are activations.
FACTOR = 2
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def refusal(traced: Traced, memory: int) -> str:
    """Why a model cannot be made with values within `memory` bytes; "" if it can."""
    _, size = parameters_of(traced.found.model)
    wanted = size * FACTOR
    if wanted <= memory:
        return ""
    return (
        f"{traced.name} has {in_units(size)} of parameters; with values it would take about {in_units(wanted)}, and "
        f"the limit is {in_units(memory)}: errors are not measured, and passes that need weights cannot run. Raise the "
        "memory limit to change this."
    )


def in_units(size: float) -> str:
    """Bytes as a text, e.g. 3.5 GiB."""
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
