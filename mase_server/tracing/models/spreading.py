"""Guessed sizes that differ from each other, so that a shape shows which of them each dimension is.

The usual guess gives one size to all arguments of a kind: a model with a width, an embedding and a context of 64 each
is easy to make, and its shapes say little. Once it runs, those that are only equal by chance are changed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Set
from typing import Any

from mase_server.tracing.models.configs import AnyConfig, guess_entry_value, list_entries, replace_entry
from mase_server.tracing.models.guesses import Arguments, Made
from mase_server.tracing.models.names import other_sizes, usual_argument

#: Dotted place among a constructor's arguments -> size.
Sizes = Mapping[str, int]

#: Smaller numbers are counts: of heads, layers, channels of an image.
_LEAST = 8
#: The most sizes of one model that are changed.
MAX_SIZES = 8


def list_sizes(arguments: Arguments) -> dict[str, int]:
    """The sizes among some arguments, and among the entries of configurations, in the order in which they are given."""
    found: dict[str, int] = {}
    for name, value in arguments.items():
        places = [((name,), value), *list_entries({name: value}).values()]
        found |= {".".join(path): held for path, held in places if _is_size(held)}
    return found


def spread_sizes(arguments: Arguments, free: Set[str]) -> dict[str, int]:
    """Other values for guessed sizes that equal an earlier one. free: the arguments that are guessed."""
    sizes = list_sizes(arguments)
    guessed = {place for place in sizes if _is_guessed(place, arguments, free)}
    used = {size for place, size in sizes.items() if place not in guessed}
    found: dict[str, int] = {}
    for place in (place for place in sizes if place in guessed):
        size = sizes[place]
        if size in used and len(found) < MAX_SIZES:
            name = place.rpartition(".")[2]
            size = next((each for each in other_sizes(name, size) if each not in used), size)
            found |= {place: size} if size != sizes[place] else {}
        used.add(size)
    return found


def join_kinds(sizes: Sizes) -> dict[str, int]:
    """The same, with one size for all places whose names end alike: `n_audio_state` and `n_text_state` often agree."""
    first: dict[str, int] = {}
    return {place: first.setdefault(re.split(r"[._]", place)[-1], size) for place, size in sizes.items()}


def replace_sizes(arguments: Arguments, sizes: Sizes) -> Arguments:
    """The arguments with other sizes at some places, also of models among them."""
    for place, size in sizes.items():
        name, _, inner = place.partition(".")
        part = arguments.get(name)
        if isinstance(part, Made):
            arguments = {**arguments, name: part.resize({inner: size}) or part}
        else:
            arguments = replace_entry(arguments, tuple(place.split(".")), size)
    return arguments


def compare_sizes(before: Arguments, after: Arguments) -> dict[str, int]:
    """The sizes that differ, also of models among the arguments: what `replace_sizes` needs to get from one to the
    other."""
    found: dict[str, int] = {}
    for name, value in after.items():
        old = before.get(name)
        if type(value) is int and value != old:
            found[name] = value
        elif isinstance(value, Made) and isinstance(old, Made):
            found |= {f"{name}.{key}": size for key, size in value.sizes.items() if size != old.sizes.get(key)}
    return found


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= _LEAST


def _is_guessed(place: str, arguments: Arguments, free: Set[str]) -> bool:
    """Was this size chosen by its name, rather than found in the workspace or in a default of the code?"""
    first, *rest = place.split(".")
    if first not in free:
        return False
    held: Any = arguments
    for key in (first, *rest)[:-1]:
        held = held[key] if isinstance(held, Mapping) else getattr(held, key)
    value = held[place.rpartition(".")[2]] if isinstance(held, Mapping) else getattr(held, place.rpartition(".")[2])
    if not rest:
        return True
    if isinstance(held, AnyConfig):
        return bool(value == guess_entry_value(rest[-1]))
    if dataclasses.is_dataclass(held) and not isinstance(held, type):
        required = {
            each.name
            for each in dataclasses.fields(held)
            if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
        }
        return rest[-1] in required and value in (usual_argument(rest[-1]), 16)
    return False
