"""What a trace says of one set of inputs, and how two traces of one file differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.store import SiteView

_LAST = 1 << 30
_KINDS = frozenset({"parameter", "binding", "return"})
_FIGURES = (
    "inputs", "inputs_from", "arguments_from", "found", "parameters", "parameter_bytes", "flops", "nodes",
)  # fmt: skip


def told(snapshot: GraphSnapshot, title: str) -> dict[str, Any]:
    """A model's inputs, outputs and what one forward costs. bytes: read and written by all operators.

    "outputs", "flops" and "bytes" are None where the forward does not come to its end: nobody knows what it gives.
    """
    index = snapshot.titles.index(title)
    model, nodes = snapshot.payload["models"][index], snapshot.payload["nodes"]
    rows = [row for row, of in enumerate(nodes["model"]) if of == index]
    outputs = [nodes["value"][row] for row in rows if nodes["op"][row] == "output"]
    output = next((snapshot.payload["values"][value] for value in outputs if value >= 0), None)
    figures = {key: model[key] for key in _FIGURES} | {"outputs": output, "bytes": None, "form": model.get("form")}
    if not outputs:
        return figures | {"flops": None}
    return figures | {"bytes": sum(snapshot.node(row).details.get("bytes", 0) for row in rows)}


def difference(path: str, before: GraphSnapshot | None, after: GraphSnapshot | None) -> list[dict[str, Any]]:
    """The places of a file with tensors, in order, with their values in both traces."""
    sides = [{each.extent: each for each in _sites(snapshot, path)} for snapshot in (before, after)]
    rows = []
    for extent in sorted({**sides[0], **sides[1]}):
        one, two = (side.get(extent) for side in sides)
        either = one or two
        assert either is not None
        values = [None if each is None else _values(each) for each in (one, two)]
        place = {key: getattr(either, key) for key in ("line", "column", "name", "kind", "function")}
        differs = [_sizes(each) for each in values]
        rows.append({**place, "before": values[0], "after": values[1], "differs": differs[0] != differs[1]})
    return rows


def _sites(snapshot: GraphSnapshot | None, path: str) -> Iterator[SiteView]:
    index = None if snapshot is None else snapshot.index(path)
    return iter(()) if index is None else iter(index.between(1, _LAST, _KINDS))


def _values(site: SiteView) -> list[Any]:
    return [value.value for value in site.values]


def _sizes(value: Any) -> Any:
    """The same with the numbers of each shape alone: what a dimension is called is no difference."""
    if isinstance(value, list | tuple):
        is_tensor = len(value) == 3 and isinstance(value[0], str) and isinstance(value[1], list | tuple)
        return [value[0], list(value[1])] if is_tensor else [_sizes(each) for each in value]
    return {key: _sizes(each) for key, each in value.items()} if isinstance(value, dict) else value
