"""MASE's configurations: maps with a format's name, and its parameters under keys that begin with an argument."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from mase_server.formats.format import NumberFormat, key_of
from mase_server.formats.registry import kind_of, made, required
from mase_server.suggestions import suggest

#: What a configuration speaks of.
ARGUMENTS = ("data_in", "weight", "bias", "data_out", "output_grad")
#: Names that MASE has, and why they are no formats here.
REFUSED: Mapping[str, str] = {
    "flexround": "its roundings are learned on data, layer by layer; gptq_transform_pass chooses weights on data",
    "lutnet": "it replaces layers by look-up tables that have to be trained; logicnets_fusion_transform_pass makes "
    "tables of a layer that is rounded already",
    "logicnets": "it is no format: quantise to integer, data_out included, then logicnets_fusion_transform_pass makes "
    "truth tables of the layers",
    "mxint_hardware": "it is the arithmetic of one of MASE's circuits, which rounds down and whose exponent is that of "
    'the next power of two; mxint(8,block_size=(4,4)) is its data type: {"name": "mxint", "weight_block_size": (4, 4)}',
}
#: Keys that MASE has for a format and that say nothing here: the format's name -> key -> values that may stand there,
#: None for any.
_IDLE: Mapping[str, Mapping[str, tuple[Any, ...] | None]] = {
    "binary": {"width": None},
    "binary_residual": {"width": None, "residual_sign": (True,), "stochastic": (False,), "bipolar": (True,)},
    "ternary": {"width": None, "mean": (None,), "median": (None,), "max": (None,)},
}
#: Keys without an argument, with the values that may stand there; None for any.
_WHOLE: Mapping[str, tuple[Any, ...] | None] = {
    "name": None, "bypass": (True, False), "floor": (True, False), "binary_training": (True,), "clip_search": (False,),
    "gptq": (False,),
}  # fmt: skip


def from_config(config: Mapping[str, Any], argument: str = "") -> NumberFormat | None:
    """The format of one argument in MASE's configuration; None where the configuration leaves it as it is.

    config: e.g. {"name": "integer", "data_in_width": 8, "data_in_frac_width": 4}.  argument: data_in | weight | bias |
    data_out | output_grad; without one the keys have no prefix.  floor: round down.  The argument itself may be a key:
    None leaves it as it is.  ValueError for an unknown name, and for a missing parameter or one out of range.
    """
    kind = _kind(config.get("name"))
    if config.get("bypass") is True or (argument in config and config[argument] is None):
        return None
    prefix = f"{argument}_" if argument else ""
    given = {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}
    fields = dataclasses.fields(kind)
    values = kind.of_keys({each.name: given[key_of(each)] for each in fields if key_of(each) in given}, given)
    values = {name: value for name, value in values.items() if value is not None}
    if not values and argument:
        return None
    missing = [prefix + key_of(each) for each in fields if each.name not in values and required(each)]
    if missing:
        raise ValueError(f"the configuration of {kind.name} lacks {', '.join(missing)}; it has {', '.join(config)}")
    if config.get("floor"):
        values = {"rounding": "floor", **values}
    return made(kind, {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def check_config(config: Mapping[str, Any]) -> None:
    """ValueError for a key that the format does not have, with the nearest one, and for a value that means nothing."""
    kind = _kind(config.get("name"))
    idle = _IDLE.get(kind.name, {})
    own = {key_of(each) for each in dataclasses.fields(kind)} | set(kind.further_keys)
    known = {f"{argument}_{key}" for argument in ARGUMENTS for key in own}
    known |= {*_WHOLE, *ARGUMENTS}
    allowed: dict[str, tuple[Any, ...] | None] = {**_WHOLE, **dict.fromkeys(ARGUMENTS, (None,))}
    for argument in ARGUMENTS:
        allowed |= {f"{argument}_{key}": values for key, values in idle.items() if key not in own}
    for key, value in config.items():
        if key not in known and key not in allowed:
            raise ValueError(
                f"the configuration of {kind.name} has no key {key!r}{suggest(key, sorted(known), 'it takes')}"
            )
        if (values := allowed.get(key)) is not None and not any(value is each for each in values):
            expected = " or ".join(map(repr, values))
            raise ValueError(
                f"the configuration of {kind.name}: {key} is {value!r}, only {expected} has a meaning here"
            )
    if config.get("floor") and "rounding" not in own:
        raise ValueError(f"the configuration of {kind.name}: floor is for formats that can round down, as integer can")


def _kind(name: Any) -> type[NumberFormat]:
    if name in REFUSED:
        raise ValueError(f"{name} is no number format here: {REFUSED[name]}")
    return kind_of(name)
