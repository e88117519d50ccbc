"""Places within inputs: reading and changing one member of nested specifications, or one size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from mase_server.tracing.inputs.spec import (
    DEFAULT_SIZE,
    SIZES,
    ConstantSpec,
    Dim,
    Inputs,
    MapSpec,
    SequenceSpec,
    Spec,
    TensorSpec,
)

#: A parameter's name, then keys and positions.
Path = tuple[str | int, ...]

#: Symbols that a message's size may match; a batch is recognised by its place.
_TOLD_BY_SIZE = ("T", "S", "N", "H", "W", "L", "D", "E")


def iterate_all_members(inputs: Inputs) -> Iterator[tuple[Path, Spec]]:
    """Every member of every tree, containers before what they hold."""
    for name, spec in inputs.entries.items():
        yield from _iterate_spec_members((name,), spec)


def _iterate_spec_members(path: Path, spec: Spec) -> Iterator[tuple[Path, Spec]]:
    yield path, spec
    match spec:
        case SequenceSpec(items):
            for index, item in enumerate(items):
                yield from _iterate_spec_members((*path, index), item)
        case MapSpec(pairs):
            for key, item in pairs:
                yield from _iterate_spec_members((*path, key), item)


def iterate_tensor_specs(inputs: Inputs) -> Iterator[tuple[Path, TensorSpec]]:
    """Every tensor with its place."""
    return ((path, spec) for path, spec in iterate_all_members(inputs) if isinstance(spec, TensorSpec))


def put_member(inputs: Inputs, path: Path, spec: Spec) -> Inputs:
    """The same inputs with another member at a place."""
    entries = dict(inputs.entries)
    entries[str(path[0])] = _put_in_tree(entries[str(path[0])], path[1:], spec)
    return Inputs(entries, inputs.sizes)


def _put_in_tree(tree: Spec, path: Path, spec: Spec) -> Spec:
    if not path:
        return spec
    match tree:
        case SequenceSpec(items, is_list):
            # The records of a list are samples of one data set: they have the same members. Those of a tuple differ.
            alike = is_list and isinstance(items[0], MapSpec) and len(set(items)) == 1
            changed = (
                _put_in_tree(item, path[1:], spec) if alike or index == path[0] else item
                for index, item in enumerate(items)
            )
            return replace(tree, items=tuple(changed))
        case MapSpec(pairs):
            return replace(
                tree,
                items=tuple(
                    (key, _put_in_tree(item, path[1:], spec) if key == path[0] else item) for key, item in pairs
                ),
            )
    return tree


def values_at(path: Path, value: Any, spec: Spec) -> Iterator[tuple[Path, Any]]:
    """The values made from a specification, containers before what they hold; each with its place."""
    yield path, value
    match spec:
        case SequenceSpec(items):
            for index, (item, inner) in enumerate(zip(value, items, strict=False)):
                yield from values_at((*path, index), item, inner)
        case MapSpec(pairs):
            for key, item in pairs:
                # An object may keep what its constructor is given under a name of its own, often with a dash before it.
                own = (each for each in (key, f"_{key}") if hasattr(value, each))
                if isinstance(value, Mapping):
                    yield from values_at((*path, key), value[key], item)
                elif (name := next(own, None)) is not None:
                    yield from values_at((*path, key), getattr(value, name), item)


def size_of(inputs: Inputs, dim: Dim) -> int:
    """A dimension as a number."""
    return dim if isinstance(dim, int) else inputs.sizes.get(dim, SIZES.get(dim, DEFAULT_SIZE))


def shape_of(inputs: Inputs, spec: TensorSpec) -> tuple[int, ...]:
    """The sizes of a tensor as numbers."""
    return tuple(size_of(inputs, dim) for dim in spec.dims)


def get_inputs_key(inputs: Inputs) -> str:
    """The key that two inputs share if they make the same values, however their sizes are named."""
    found: list[Any] = []
    for path, spec in iterate_all_members(inputs):
        match spec:
            case TensorSpec(dtype, _, fill, argument):
                found.append((path, dtype, shape_of(inputs, spec), fill, inputs.sizes.get(str(argument), argument)))
            case ConstantSpec(value):
                found.append((path, value))
            case SequenceSpec() | MapSpec():
                found.append((path, type(spec).__name__, spec.build))
    return repr(found)


def name_sizes(inputs: Inputs, sizes: tuple[int, ...]) -> tuple[Dim, ...]:
    """Sizes, replaced by symbols if another input has a symbol of that size."""
    used = set(inputs.symbols())
    left = [symbol for symbol in _TOLD_BY_SIZE if symbol in used]
    batch = inputs.sizes.get("B") if "B" in used else None
    named: list[Dim] = []
    for at, size in enumerate(sizes):
        alike = [symbol for symbol in left if inputs.sizes.get(symbol) == size]
        fresh = [symbol for symbol in alike if symbol not in named]  # a square has two sides
        named.append("B" if size == batch and not at else next(iter((*fresh, *alike)), size))
    return tuple(named)


def resize_dimension(inputs: Inputs, path: Path, spec: TensorSpec, at: int, size: int) -> Iterator[Inputs]:
    """Change one dimension: of everything that shares its symbol, then of this tensor alone. at: may count from the
    end."""
    at %= len(spec.dims)
    dim = spec.dims[at]
    if dim in ("H", "W") and inputs.sizes.get("H") == inputs.sizes.get("W"):
        # Images are square until there is other evidence.
        yield Inputs(inputs.entries, {**inputs.sizes, "H": size, "W": size})
        square = tuple(size if each in ("H", "W") else each for each in spec.dims)
        yield put_member(inputs, path, replace(spec, dims=square))
    if isinstance(dim, str) and dim != "B":
        yield Inputs(inputs.entries, {**inputs.sizes, dim: size})
    yield put_member(inputs, path, replace(spec, dims=(*spec.dims[:at], size, *spec.dims[at + 1 :])))
