"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from mase_server.dtypes import LONG

_SI = ("", "k", "M", "G", "T", "P", "E")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def scaled(number: float, unit: str) -> str:
    """A count with an SI prefix and three digits: `75.5 MFLOPs`, `12 FLOPs`."""
    return _scaled(number, 1000, [f"{prefix}{unit}" for prefix in _SI])


def in_bytes(number: float) -> str:
    """A size in bytes with a binary prefix: `96.0 KiB`, `12 B`."""
    return _scaled(number, 1024, _BINARY)


def _scaled(number: float, step: int, units: Sequence[str]) -> str:
    scale = 0
    while number >= step and scale + 1 < len(units):
        number, scale = number / step, scale + 1
    digits = 0 if scale == 0 else max(0, 3 - len(str(int(number))))
    return f"{number:.{digits}f} {units[scale]}"


def counted(number: int, noun: str) -> str:
    """`1 node`, `1,024 nodes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def share(part: float, whole: float) -> str:
    """A part of a whole in percent: `4.2 %`, `< 0.1 %`."""
    percent = 100 * part / whole if whole else 0.0
    return "< 0.1 %" if 0 < percent < 0.1 else f"{percent:.3g} %"


def ratio(before: float, after: float) -> str:
    """How a size changed: `4.0x smaller`, `1.2x larger`; nothing where it hardly did."""
    times = max(before, after) / min(before, after)
    word = "smaller" if after < before else "larger"
    return f"{times:.1f}x {word}" if times >= 1.05 else ""


def torch_name(dtype: str) -> str:
    """The name that torch gives a short element type: "float32" for "f32"."""
    return LONG.get(dtype, dtype)
