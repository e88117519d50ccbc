"""The hover card: everything that the graph knows of one place, for a reader who has never seen the project."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from mase_server.dtypes import tensor_bytes
from mase_server.lsp.figures import counted, in_bytes, scaled, share, torch_name
from mase_server.lsp.hardware_texts import operation_rows
from mase_server.lsp.labels import label
from mase_server.lsp.pipelines import bits_text, change, error_text, provenance
from mase_server.snapshot import tensors
from mase_server.visible import escape_code, escape_markdown

if TYPE_CHECKING:
    from mase_server.daemon.store import NodeView, SiteView, ValueView

#: Most runs of one line that a card lists.
INSTANCES = 12
_NOUN = {"parameter": "parameter", "binding": "name", "return": "returned value", "expression": "expression"}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")

Row = tuple[str, str]
Models = Mapping[str, Mapping[str, Any]]


def card(site: SiteView, models: Models, stale: bool = False, links: str = "") -> str:
    """The card of one site as Markdown.

    models: the traced models by title, maps as `snapshot.MODEL_KEYS` says, with "transform" where one has a pipeline.
    links: a line that leads elsewhere; near the top, since what is long has to be scrolled.
    """
    parts = [_title(site), f"```text\n{label([value.value for value in site.values], 1000)}\n```", links]
    if stale:
        parts.append("⚠ *stale: the file has changed, and its present text could not be traced*")
    first = site.values[0]
    parts.append(table(("", ""), _facts(first, models.get(first.model, {}))))
    if sum(_runs(value) for value in site.values) > 1:
        parts.append(_instances(site))
    parts += _assumptions(site, models)
    return "\n\n".join(part for part in parts if part)


def _title(site: SiteView) -> str:
    what = f"**{escape_code(site.name)}** · {_NOUN[site.kind]}" if site.name else f"**{_NOUN[site.kind]}**"
    return f"{what} in {escape_code(site.function)}" if site.function else what


def _facts(value: ValueView, model: Mapping[str, Any]) -> list[Row]:
    rows = list(_value_facts(value, model))
    if value.node is not None:
        snapshot, index = value.node
        node = snapshot.node(index)
        rows += [*_format_facts(value, node, model.get("transform")), *_node_facts(node, model)]
        rows += operation_rows(node.hardware)
    if value.scopes:
        rows.append(("scope", _scope(value.scopes[0])))
    return rows


def _value_facts(value: ValueView, model: Mapping[str, Any]) -> Iterator[Row]:
    found = list(tensors(value.value))
    sizes = model.get("symbols", {})
    if len(found) == 1:
        dtype, shape, _ = found[0]
        yield "this run", f"`{list(shape)}`{_where(found[0], sizes)}"
        if value.original is None:
            yield "element type", torch_name(dtype)
        yield "size", f"{counted(prod(shape), 'element')} · {_size(value, model)}"
    else:
        yield "tensors", str(len(found))
        yield "size", _size(value, model)


def _size(value: ValueView, model: Mapping[str, Any]) -> str:
    """`12.0 KiB`, `12.0 KiB → 3.0 KiB`: only what was traced where the bits of a format are not known."""
    formats = (model.get("transform") or {}).get("formats") or {}
    before = list(tensors(value.value if value.original is None else value.original))
    after = list(tensors(value.value))
    if value.original is not None and all(
        now == then or now[0] in formats for now, then in zip(after, before, strict=True)
    ):
        return change([_bytes(before), _bytes(after, formats)], in_bytes)
    return in_bytes(_bytes(before))


def _bytes(found: Sequence[Sequence[object]], formats: Mapping[str, float] | None = None) -> float:
    return sum(tensor_bytes(tensor, formats) for tensor in found)


def _format_facts(value: ValueView, node: NodeView, transform: Mapping[str, Any] | None) -> Iterator[Row]:
    """What the model's pipeline made of a value: its number format, and how far it is from the original."""
    if transform is None:
        return
    if node.format is not None:
        bits = (transform.get("formats") or {}).get(node.format)
        was = {torch_name(tensor[0]) for tensor in tensors(value.original)}
        parts = (escape_code(node.format), bits and bits_text(bits), was and f"was {' and '.join(sorted(was))}")
        yield "number format", " · ".join(part for part in parts if part)
        error = error_text(transform, node.sqnr, node.max_error, node.saturated)
        if error:
            yield "error", error
    if node.note:
        yield "passes", escape_markdown(node.note)


def _where(tensor: list[Any], sizes: Mapping[str, int]) -> str:
    """` with B = 2, T = 16`: the sizes of the symbols in a tensor's dimensions."""
    names = dict.fromkeys(_IDENTIFIER.findall(" ".join(map(str, tensor[2] or ()))))
    known = [f"{name} = {sizes[name]}" for name in names if name in sizes]
    return f" with {', '.join(known)}" if known else ""


def _node_facts(node: NodeView, model: Mapping[str, Any]) -> Iterator[Row]:
    yield "MASE operator", " · ".join(escape_code(text) for text in (node.mase_op, node.mase_type) if text)
    yield from _module_facts(node.details)
    if node.flops:
        part = (
            f" · {share(node.flops, model['flops'])} of {escape_markdown(model['name'])}" if model.get("flops") else ""
        )
        yield "cost", f"{scaled(node.flops, 'FLOPs')}{part}"
    if node.details.get("bytes"):
        yield "memory traffic", in_bytes(node.details["bytes"])


def _module_facts(details: Mapping[str, Any]) -> Iterator[Row]:
    if details.get("module"):
        yield "module", f"{escape_code(details.get('module_path', ''))} {escape_code(details['module'])}".strip()
    if details.get("args"):
        yield "arguments", ", ".join(escape_code(f"{name}={_argument(value)}") for name, value in details["args"])
    if details.get("parameter_count"):
        names = ", ".join(escape_code(f"{name}: {_argument(value)}") for name, value in details["parameters"].items())
        size = in_bytes(details.get("parameter_bytes", 0))
        yield "parameters", f"{details['parameter_count']:,} · {size} · {names}"


def _argument(value: Any) -> str:
    """A value, or the text that it was sent as."""
    is_value = isinstance(value, dict) or (isinstance(value, list) and len(value) == 3 and isinstance(value[1], list))
    return label([value]) if is_value else str(value)


def _instances(site: SiteView) -> str:
    """A table of the runs of a line: each module instance that ran it, with its value."""
    several = len({value.model for value in site.values}) > 1
    rows = [row for value in site.values for row in _instance_rows(value, several)]
    runs = sum(_runs(value) for value in site.values)
    more = f"\n\n… and {len(rows) - INSTANCES} more" if len(rows) > INSTANCES else ""
    return f"Ran {counted(runs, 'time')}:\n\n{table(('where', 'value'), rows[:INSTANCES])}{more}"


def _instance_rows(value: ValueView, several: bool) -> Iterator[Row]:
    """A row for each module instance; it says whose it is where `several` models use the line."""
    text = escape_code(label([value.value], 120))
    whose = f"{escape_code(value.model)} " if several and value.model else ""
    if len(value.scopes) > 1:
        yield from ((whose + _scope(scope), text) for scope in value.scopes)
    else:
        where = whose + _scope(value.scopes[0]) if value.scopes else escape_code(value.model)
        yield where, f"{text}, {value.count} times" if value.count > 1 else text


def _runs(value: ValueView) -> int:
    return max(value.count, len(value.scopes), 1)


def _assumptions(site: SiteView, models: Models) -> Iterator[str]:
    """What was not read from the person's own code, said once for each model."""
    for name in dict.fromkeys(value.model for value in site.values):
        model = models.get(name, {})
        if model.get("inputs_from") == "search" or model.get("fixed"):
            fixed = f" ({', '.join(model['fixed'])})" if model.get("fixed") else ""
            yield f"*{escape_markdown(name)}: {escape_markdown(model['found'] + fixed)}*"
        if source := provenance(model.get("transform") or {"inputs": "", "weights": ""}):
            yield f"*Errors of {escape_markdown(name)} against the original: {escape_markdown(source)}*"


def _scope(scope: tuple[str, str]) -> str:
    path, type_name = scope
    return f"{escape_code(path)} {escape_markdown(type_name)}" if path else escape_markdown(type_name)


def table(head: Row, rows: list[Row]) -> str:
    """A table in Markdown, nothing without rows."""
    if not rows:
        return ""
    lines = [head, ("---", "---"), *rows]
    return "\n".join(f"| {left} | {right} |" for left, right in lines)
