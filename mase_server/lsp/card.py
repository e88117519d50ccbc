"""The hover card: everything that the graph knows about one place, for readers who are new to the project."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from math import prod
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server.dtypes import tensor_bytes
from mase_server.lsp.hardware_texts import operation_rows
from mase_server.lsp.labels import are_unlike, label_values
from mase_server.lsp.pipelines import bits_text, error_text, format_change, provenance_text
from mase_server.lsp.wording import format_count, format_share, format_with_prefix, in_bytes, torch_name
from mase_server.protocol.snapshot import iterate_tensor_values
from mase_server.visible import escape_code, escape_markdown

if TYPE_CHECKING:
    from mase_server.daemon.store import FileView, NodeView, SiteView, ValueView
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server


#: Maximum number of different values in a card.
INSTANCES = 12
#: Why a card may be out of date.
STALE = "stale: the file has changed, and MASE could not trace its present text"
UNSAVED = "traced before the last edits: code that may change this has been edited since"
_NOUN = {"parameter": "parameter", "binding": "name", "return": "returned value", "expression": "expression"}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")

Row = tuple[str, str]
Models = Mapping[str, Mapping[str, Any]]


def find_doubt(view: FileView, page: Page | None, site: SiteView) -> str:
    """Why a site may show something else than the present text gives; "" if nothing says so."""
    if view.stale:
        return STALE
    return "" if page is None or page.is_fresh(site) else UNSAVED


def describe_site(site: SiteView, models: Models, doubt: str = "", links: str = "", more: Sequence[Row] = ()) -> str:
    """The card of one site as Markdown.

    models: the traced models by title, maps as in `snapshot.MODEL_KEYS`, with "transform" if they have a pipeline.
    doubt: why it may not be what the present text gives, `STALE` or `UNSAVED`.
    links: a line of links, near the top, because the rest of a long card has to be scrolled.
    more: rows on what was asked for: the kernels that compute it, what it costs on a device.
    """
    parts = [_site_title(site), f"```text\n{label_values([value.value for value in site.values], 1000)}\n```", links]
    if doubt:
        parts.append(f"⚠ *{doubt}*")
    first = site.values[0]
    runs = sum(_count_runs(value) for value in site.values)
    rows = _fact_rows(first, models.get(first.model, {}), runs, len(site.values) == 1)
    rows[1:1] = [(name, escape_markdown(text)) for name, text in more if text]
    parts.append(markdown_table(("", ""), rows))
    if len(site.values) > 1:
        parts.append(_differences(site))
    parts += _describe_assumptions(site, models)
    return "\n\n".join(part for part in parts if part)


def describe_function(sites: Sequence[SiteView], models: Models, flops: int | None, doubt: str = "") -> str:
    """The card of a function as Markdown: what went in, what it returned.

    sites: its parameters and returned values.  flops: those of one run; None if unknown.  doubt: as in `describe_site`.
    """
    values = [value for site in sites for value in site.values]
    titles = list(dict.fromkeys(value.model for value in values if value.model))
    head = f"**{escape_code(sites[0].function)}**"
    rows = [*_run_cost(flops, models.get(titles[0], {}), max(map(_count_runs, values)))] if titles else []
    for kind, noun in (("parameter", "input"), ("return", "returns")):
        for site in (each for each in sites if each.kind == kind):
            text = escape_code(label_values([value.value for value in site.values], 200))
            rows.append((f"{noun} {escape_code(site.name)}" if site.name else noun, text))
    longest = max(sites, key=lambda site: sum(map(_count_runs, site.values)))
    runs, equal = sum(map(_count_runs, longest.values)), len(longest.values) == 1
    if runs > 1:
        rows.append(("runs", f"{runs:,} times, {'all equal' if equal else f'{len(longest.values)} shapes'}"))
    if equal and longest.values[0].scopes and longest.values[0].scopes[0][0]:
        rows.append(("scope", _scopes_text(longest.values[0].scopes)))
    parts = [f"{head} · runs in {', '.join(map(escape_markdown, titles))}" if titles else head]
    parts += [f"⚠ *{doubt}*"] if doubt else []
    parts += [markdown_table(("", ""), rows), *_describe_assumptions(sites[0], models)]
    return "\n\n".join(parts)


def _run_cost(flops: int | None, model: Mapping[str, Any], runs: int) -> Iterator[Row]:
    """The row on the FLOPs of one run."""
    if flops:
        each = format_with_prefix(flops, "FLOPs") + (" each time" if runs > 1 else "")
        whole = model.get("flops")
        yield "cost", f"{each} · {format_share(flops, whole)} of {escape_markdown(model['name'])}" if whole else each


def _site_title(site: SiteView) -> str:
    what = f"**{escape_code(site.name)}** · {_NOUN[site.kind]}" if site.name else f"**{_NOUN[site.kind]}**"
    return f"{what} in {escape_code(site.function)}" if site.function else what


def _fact_rows(value: ValueView, model: Mapping[str, Any], runs: int, equal: bool) -> list[Row]:
    """The rows of a place, the most important ones first: editors show about ten. equal: do all runs agree?"""
    node = None if value.node is None else value.node[0].node(value.node[1])
    rows: list[Row] = [] if node is None else [*_cost_facts(node, model, runs)]
    rows += [] if node is None else [*_format_facts(value, node, model.get("transform"))]
    rows += _value_facts(value, model)
    if runs > 1:
        several = any("|" in each[0] for each in iterate_tensor_values(value.value))
        same = "see below" if not equal else "in several formats" if several else "all equal"
        rows.append(("runs", f"{runs:,} times, {same}"))
    rows += [] if node is None else [*_node_facts(node), *operation_rows(node.hardware)]
    if value.scopes and equal:
        rows.append(("scope", _scopes_text(value.scopes)))
    return rows


def _value_facts(value: ValueView, model: Mapping[str, Any]) -> Iterator[Row]:
    found = list(iterate_tensor_values(value.value))
    sizes = model.get("symbols", {})
    if len(found) == 1:
        dtype, shape, _ = found[0]
        kind = f" · {torch_name(dtype)}" if value.original is None else ""
        yield "this run", f"`{list(shape)}`{_describe_symbol_sizes(found[0], sizes)}"
        yield "size", f"{format_count(prod(shape), 'element')}{kind} · {_describe_size(value, model)}"
    else:
        yield "tensors", str(len(found))
        yield "size", _describe_size(value, model)


def _describe_size(value: ValueView, model: Mapping[str, Any]) -> str:
    """`12.0 KiB`, or `12.0 KiB → 3.0 KiB`; only the traced size if the bits of the format are unknown."""
    formats = (model.get("transform") or {}).get("formats") or {}
    before = list(iterate_tensor_values(value.value if value.original is None else value.original))
    after = list(iterate_tensor_values(value.value))
    if value.original is not None and all(
        now == then or now[0] in formats for now, then in zip(after, before, strict=True)
    ):
        return format_change([_total_bytes(before), _total_bytes(after, formats)], in_bytes)
    return in_bytes(_total_bytes(before))


def _total_bytes(found: Sequence[Sequence[object]], formats: Mapping[str, float] | None = None) -> float:
    return sum(tensor_bytes(tensor, formats) for tensor in found)


def _format_facts(value: ValueView, node: NodeView, transform: Mapping[str, Any] | None) -> Iterator[Row]:
    """The rows on a value's number format after the model's pipeline, and on its error against the original."""
    if transform is None:
        return
    formats = [tensor[0].split("|") for tensor in iterate_tensor_values(value.value)]
    if any(len(names) > 1 for names in formats):
        yield "number format", " or ".join(escape_code(torch_name(name)) for name in formats[0]) + ", by run"
    elif node.format is not None:
        bits = (transform.get("formats") or {}).get(node.format)
        was = {torch_name(tensor[0]) for tensor in iterate_tensor_values(value.original)}
        parts = (escape_code(node.format), bits and bits_text(bits), was and f"was {' and '.join(sorted(was))}")
        yield "number format", " · ".join(part for part in parts if part)
        error = error_text(transform, node.sqnr, node.max_error, node.saturated)
        if error:
            yield "error", error
    if node.note:
        yield "passes", escape_markdown(node.note)


def _describe_symbol_sizes(tensor: list[Any], sizes: Mapping[str, int]) -> str:
    """` with B = 2, T = 16`: the sizes of the symbols in a tensor's dimensions."""
    names = dict.fromkeys(_IDENTIFIER.findall(" ".join(map(str, tensor[2] or ()))))
    known = [f"{name} = {sizes[name]}" for name in names if name in sizes]
    return f" with {', '.join(known)}" if known else ""


def _cost_facts(node: NodeView, model: Mapping[str, Any], runs: int) -> Iterator[Row]:
    """`75.5 MFLOPs each time · 1.3 % of GPT · 12.0 MiB of memory traffic`."""
    parts = [text for _, text in _run_cost(node.flops, model, runs)]
    if node.details.get("bytes"):
        parts.append(f"{in_bytes(node.details['bytes'])} of memory traffic")
    if parts:
        yield "cost", " · ".join(parts)


def _node_facts(node: NodeView) -> Iterator[Row]:
    yield from _module_facts(node.details)
    yield "MASE operator", " · ".join(escape_code(text) for text in (node.mase_op, node.mase_type) if text)
    if node.details.get("args"):
        told = (escape_code(f"{name}={_argument_text(value)}") for name, value in node.details["args"])
        yield "arguments", ", ".join(told)


def _module_facts(details: Mapping[str, Any]) -> Iterator[Row]:
    if details.get("module"):
        yield "module", f"{escape_code(details.get('module_path', ''))} {escape_code(details['module'])}".strip()
    if details.get("parameter_count"):
        names = ", ".join(
            escape_code(f"{name}: {_argument_text(value)}") for name, value in details["parameters"].items()
        )
        size = in_bytes(details.get("parameter_bytes", 0))
        yield "parameters", f"{details['parameter_count']:,} · {size} · {names}"


def _argument_text(value: Any) -> str:
    """A value, or the text that was sent in its place."""
    is_value = isinstance(value, dict) or (isinstance(value, list) and len(value) == 3 and isinstance(value[1], list))
    return label_values([value]) if is_value else str(value)


def _differences(site: SiteView) -> str:
    """The different values of a line's runs: a table of where each one was, or a list of values without relation."""
    texts = [label_values([value.value]) for value in site.values]
    runs = [_count_runs(value) for value in site.values]
    if are_unlike([value.value for value in site.values]):
        listed = (
            escape_code(text) + (f" {count} times" if count > 1 else "")
            for text, count in zip(texts, runs, strict=True)
        )
        return f"**{len(texts)} shapes**: {', '.join(listed)}"
    several = len({value.model for value in site.values}) > 1
    rows = [
        (_where_text(value, several), f"{escape_code(text)}, {count} times" if count > 1 else escape_code(text))
        for value, text, count in zip(site.values, texts, runs, strict=True)
    ]
    more = f"\n\n… and {len(rows) - INSTANCES} more" if len(rows) > INSTANCES else ""
    return f"{markdown_table(('where', 'value'), rows[:INSTANCES])}{more}"


def _where_text(value: ValueView, several: bool) -> str:
    """The module instances that ran a line with one value; it names the model if `several` use the line."""
    whose = f"{escape_code(value.model)} " if several and value.model else ""
    return whose + _scopes_text(value.scopes) if value.scopes else escape_code(value.model)


def _scopes_text(scopes: Sequence[tuple[str, str]]) -> str:
    """`h.0` Block; `h.0` Block … `h.11` Block for more than two."""
    first, last = _scope_text(scopes[0]), _scope_text(scopes[-1])
    return first if len(scopes) == 1 else f"{first}, {last}" if len(scopes) == 2 else f"{first} … {last}"


def _count_runs(value: ValueView) -> int:
    return max(value.count, len(value.scopes), 1)


def _describe_assumptions(site: SiteView, models: Models) -> Iterator[str]:
    """The assumptions behind the values, once for each model."""
    for name in dict.fromkeys(value.model for value in site.values):
        model = models.get(name, {})
        if model.get("inputs_from") == "search" or model.get("fixed"):
            fixed = f" ({', '.join(model['fixed'])})" if model.get("fixed") else ""
            yield f"*{escape_markdown(name)}: {escape_markdown(model['found'] + fixed)}*"
        if source := provenance_text(model.get("transform") or {"inputs": "", "weights": ""}):
            yield f"*Errors of {escape_markdown(name)} against the original: {escape_markdown(source)}*"


def _scope_text(scope: tuple[str, str]) -> str:
    path, type_name = scope
    return f"{escape_code(path)} {escape_markdown(type_name)}" if path else escape_markdown(type_name)


def markdown_table(head: Row, rows: list[Row]) -> str:
    """A Markdown table; "" without rows."""
    if not rows:
        return ""
    lines = [head, ("---", "---"), *rows]
    return "\n".join(f"| {left} | {right} |" for left, right in lines)


# Forms of a card for different editors: Markdown with tables, Markdown with lists, or plain text.
#
# Cards are written as Markdown with tables. Few editors draw tables, and some draw no Markdown at all.

#: Names of the clients' Markdown parsers that know tables. Neovim, Helix and Emacs name none, and show the bars.
WITH_TABLES = frozenset({"marked", "markdown-it"})

_CELL = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"\|(\s*-{3,}\s*\|)+")
_INLINE = re.compile(
    r"(?P<ticks>`+)(?P<code>.+?)(?P=ticks)|\\(?P<escaped>[!-/:-@\[-`{-~])|\[(?P<link>[^\]]*)\]\([^)]*\)|\*+"
)


def card_markup(ls: Server, text: str) -> lsp.MarkupContent:
    """A card in the form that this client can show."""
    hover = ls.client_capabilities.text_document and ls.client_capabilities.text_document.hover
    formats = [str(getattr(each, "value", each)) for each in (hover and hover.content_format) or ()]
    if formats and lsp.MarkupKind.Markdown.value not in formats:
        return lsp.MarkupContent(lsp.MarkupKind.PlainText, markdown_to_plain(text))
    general = ls.client_capabilities.general
    parser = general.markdown.parser if general is not None and general.markdown is not None else ""
    return lsp.MarkupContent(lsp.MarkupKind.Markdown, text if parser.lower() in WITH_TABLES else tables_to_lists(text))


def tables_to_lists(text: str) -> str:
    """The same Markdown with lists in place of tables: `- size: 256 elements`."""
    return _with_tables(text, lambda rows: [f"- {left}: {right}" for left, right in rows])


def markdown_to_plain(text: str) -> str:
    """The same card as plain text: no emphasis, columns aligned by spaces, only the text of links."""
    return "\n".join(
        line for line in _with_tables(text, _align_columns, _strip_inline_markup).split("\n") if line != "```"
    )


def _with_tables(
    text: str, shown: Callable[[list[tuple[str, str]]], list[str]], other: Callable[[str], str] = str
) -> str:
    lines: list[str] = []
    fenced = False
    for is_table, group in groupby(text.split("\n"), lambda line: line.startswith("| ")):
        if is_table:
            lines += shown(list(_parse_table_rows(list(group))))
            continue
        for line in group:
            fence = line.startswith("```")
            lines.append("```" if fence and other is not str else line if fenced or fence else other(line))
            fenced ^= fence
    return "\n".join(lines)


def _parse_table_rows(lines: list[str]) -> Iterator[tuple[str, str]]:
    """The rows of a table with two columns, without its head; bars inside cells are escaped there."""
    body = lines[2:] if len(lines) > 1 and _RULE.fullmatch(lines[1]) else lines
    for line in body:
        cells = [cell.strip().replace("\\|", "|") for cell in _CELL.split(line)[1:-1]]
        yield cells[0], " | ".join(cells[1:])


def _align_columns(rows: list[tuple[str, str]]) -> list[str]:
    words = [(_strip_inline_markup(left), _strip_inline_markup(right)) for left, right in rows]
    width = max((len(left) for left, _ in words), default=0)
    return [f"{left:{width}}  {right}" for left, right in words]


def _strip_inline_markup(line: str) -> str:
    return _INLINE.sub(lambda found: found["code"] or found["escaped"] or found["link"] or "", line)
