"""Hover: the traced graph's facts about the name or expression under the cursor, or about a model's class."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server.daemon.api_graphs import rows_of
from mase_server.daemon.slots import iterate_in_slices
from mase_server.daemon.status import explain_unshown
from mase_server.lsp import compiled
from mase_server.lsp.assumptions import ASSUMED, do_ranges_touch
from mase_server.lsp.card import STALE, Row, card_markup, describe_function, describe_site, find_doubt, markdown_table
from mase_server.lsp.hardware_texts import model_rows
from mase_server.lsp.labels import dimension_texts, label_values
from mase_server.lsp.links import model_links, site_links
from mase_server.lsp.pipelines import Transform, provenance_text, summary_rows
from mase_server.lsp.text import to_units
from mase_server.lsp.wording import (
    argument_text,
    describe_unrun,
    duration_text,
    format_count,
    format_with_prefix,
    has_hint,
    in_bytes,
)
from mase_server.visible import escape_code, escape_markdown

if TYPE_CHECKING:
    from mase_server.daemon.store import ModelView, SiteView
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server


async def hover(ls: Server, params: lsp.HoverParams) -> lsp.Hover | None:
    """textDocument/hover."""
    line = params.position.line
    if text := compiled.describe_line(ls, params.text_document.uri, line):
        return _build_hover(ls, text, lsp.Range(lsp.Position(line, 0), lsp.Position(line + 1, 0)))
    page = ls.page(params.text_document.uri)
    if page is None:
        return None
    at = page.at(params.position)
    if at is not None and has_hint(at[0]):
        site, place = at
        models = ls.models_of(page.document.path)
        doubt, links = find_doubt(page.view, page, site), site_links(ls, page, site)
        node = site.values[0].node
        more = (
            []
            if node is None
            else [("on a device", ls.costs.node_text(*node)), ("compiled", ls.compiled.describe_node(*node))]
        )
        return _build_hover(ls, describe_site(site, models, doubt, links, more), place)
    return (
        _of_class(ls, page, params.position)
        or _of_unshown(ls, page, params.position)
        or await _of_definition(ls, page, params.position)
        or _of_unrun(ls, page, params.position)
    )


def _of_class(ls: Server, page: Page, position: lsp.Position) -> lsp.Hover | None:
    """The card of the models whose class has its name at the cursor."""
    point = lsp.Range(position, position)
    found = ((model, page.range(model)) for model in page.view.models())
    here = [(model, place) for model, place in found if place is not None and do_ranges_touch(place, point)]
    if not here:
        return None
    models = [model for model, _ in here]
    return _build_hover(
        ls,
        model_card(
            models, page.view.stale, [(model_links(ls, each), list(ls.costs.model_rows(each))) for each in models]
        ),
        here[0][1],
    )


def _of_unshown(ls: Server, page: Page, position: lsp.Position) -> lsp.Hover | None:
    """Why the model whose class or `forward` has its name at the cursor is not shown."""
    found, point = page.definition(position), lsp.Range(position, position)
    above = (kind.lineno for kind in page.classes() if found is not None and _find_forward(kind) is found[0])
    line = next(above, 0)
    for model in page.view.unshown():
        place = page.place_of(model)
        if place is not None and (do_ranges_touch(place, point) or model["line"] == line):
            return _build_hover(ls, escape_markdown(explain_unshown(model)), place if found is None else found[1])
    return None


async def _of_definition(ls: Server, page: Page, position: lsp.Position) -> lsp.Hover | None:
    """The inputs and outputs of the function whose name is at the cursor; for a class, those of its `forward`."""
    found = page.definition(position)
    function = None if found is None else found[0]
    if isinstance(function, ast.ClassDef):
        function = _find_forward(function)
    if found is None or function is None:
        return None
    seen = page.view.sites(function.lineno, function.end_lineno or 0, frozenset({"parameter", "return"}))
    sites = [site for site in seen if page.function_at(site.line) is function and has_hint(site)]
    if not sites:
        return None
    models, doubt = ls.models_of(page.document.path), find_doubt(page.view, page, sites[0])
    flops = await _sum_flops(sites) if function.name == "forward" else None
    return _build_hover(ls, describe_function(sites, models, flops, doubt), found[1])


def _find_forward(kind: ast.ClassDef) -> ast.FunctionDef | None:
    own = (each for each in kind.body if isinstance(each, ast.FunctionDef))
    return next((each for each in own if each.name == "forward"), None)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


async def _sum_flops(sites: Sequence[SiteView]) -> int | None:
    """The FLOPs of one run of a module's `forward`, from the sites in it; None if they do not tell the module."""
    values = [value for site in sites for value in site.values if value.node is not None and value.scopes]
    if not values or values[0].node is None:
        return None
    value, (snapshot, _) = values[0], values[0].node
    model = snapshot.titles.index(value.model)
    flops = snapshot.payload["nodes"]["flops"]
    rows = rows_of(snapshot, model, value.scopes[0][0])
    return sum([flops[row] or 0 async for row in iterate_in_slices(rows)])


def _build_hover(ls: Server, text: str, place: lsp.Range) -> lsp.Hover:
    return lsp.Hover(card_markup(ls, text), place)


def _of_unrun(ls: Server, page: Page, position: lsp.Position) -> lsp.Hover | None:
    """Why the code at a position did not run."""
    found = page.definition(position)
    if found is not None and isinstance(found[0], ast.FunctionDef):
        code = next((each for each in found[0].body if not _is_text(each)), found[0])
        position = lsp.Position(position.line + code.lineno - found[0].lineno, 0)
    unrun = page.unrun(position)
    if unrun is None:
        return None
    text = describe_unrun(unrun, page.decider(unrun), lambda code: escape_code(code).replace("\\|", "|"))
    line = page.document.text.line(position.line)
    end = lsp.Position(position.line, to_units(line, len(line), page.encoding))
    return _build_hover(ls, text, lsp.Range(lsp.Position(position.line, 0), end))


# The hover card of a model, at its class: its inputs and arguments, and which of them are assumed.

MOST_GUARDS = 8
#: Source of inputs or arguments -> its description.
SOURCES = {
    "comment": "from a `# mase:` comment",
    "option": "from an option",
    "settings": "from the settings",
    "main": "as the file itself calls it",
    "instance": "from a variable of the file",
    "usage": "**assumed**: from code that constructs it",
    "search": "**assumed**: found by search",
    "default": "the defaults",
}


def model_card(models: Sequence[ModelView], stale: bool, more: Sequence[tuple[str, list[Row]]] = ()) -> str:
    """The cards of the models of one class as Markdown. more: a line of links for each model, and rows on its run."""
    parts = [f"⚠ *{STALE}*"] if stale else []
    for number, model in enumerate(models):
        links, rows = more[number] if more else ("", [])
        parts += [f"**{escape_code(model.title)}** · model", links]
        parts += [markdown_table(("", ""), [*_model_rows(model), *rows]), f"*{escape_markdown(model.found)}*"]
        parts += [*_next_step(model), *_pipeline_parts(model), *_hardware_parts(model)]
    return "\n\n".join(part for part in parts if part)


def _model_rows(model: ModelView) -> Iterator[Row]:
    cost = [] if model.flops is None else [format_with_prefix(model.flops, "FLOPs")]
    yield "cost", " · ".join([*cost, format_count(model.nodes, "node"), duration_text(model)])
    yield "parameters", f"{model.parameters:,} · {in_bytes(model.parameter_bytes)}"
    for name, value in model.inputs.items():
        yield (
            f"input {escape_code(name)}",
            f"{escape_code(_input_text(value))} · {SOURCES.get(model.inputs_from, model.inputs_from)}",
        )
    given = ", ".join(f"{name}={argument_text(value)}" for name, value in model.arguments.items())
    if given or model.arguments_from in ASSUMED:
        source = SOURCES.get(model.arguments_from, model.arguments_from)
        yield "constructor", f"{escape_code(f'{model.name}({given})')} · {source}"
    yield "mode", " · ".join((model.mode, *map(escape_markdown, model.fixed)))
    for guard in model.guards[:MOST_GUARDS]:
        yield "traced with", escape_markdown(guard)
    if (more := len(model.guards) - MOST_GUARDS) > 0:
        yield "traced with", f"{more} more: see `MaseGraph.guards`"


def _input_text(value: Any) -> str:
    """A value with its sizes: `f32[B, 3, 224, 224] = [2, 3, 224, 224]`."""
    text = label_values([value], 200)
    if isinstance(value, list) and dimension_texts(value) != list(map(str, value[1])):
        text += f" = {list(value[1])}"
    return text


def _next_step(model: ModelView) -> Iterator[str]:
    if {model.inputs_from, model.arguments_from} & ASSUMED:
        text, why = model.comment.get("text"), model.comment.get("why")
        if text:
            yield f"To keep or change this, take the quick fix, or write above the class {escape_code(f'# {text}')}"
        elif why:
            yield f"The assumptions cannot be written as a comment: {escape_markdown(why)}."


def _pipeline_parts(model: ModelView) -> Iterator[str]:
    """The passes applied to the model, and their measured results."""
    transform = model.transform
    if transform is None:
        return
    yield "**Passes**, applied again at every save:"
    yield "\n".join(_describe_step(number, transform) for number in range(len(transform["steps"])))
    if transform["problem"]:
        yield f"⚠ {escape_markdown(transform['problem'])}"
    yield markdown_table(("", ""), [row for row in summary_rows(transform) if row[1]])
    if source := provenance_text(transform):
        yield f"*Measured against the original: {escape_markdown(source)}*"


def _hardware_parts(model: ModelView) -> Iterator[str]:
    """The lines about the model's emitted hardware."""
    if model.hardware is None:
        return
    told = model.hardware.told
    yield "**Verilog**, made again at every save:" if not model.hardware.stale else "**Verilog**, of an older text:"
    yield markdown_table(("", ""), list(model_rows(model.hardware)))
    if told["refusal"]:
        yield f"⚠ {escape_markdown(told['refusal'])}"


def _describe_step(number: int, transform: Transform) -> str:
    """`1. quantize(default='fixed(8,4)')` with its result in words, or that it failed or was not applied."""
    failed = transform["failed"]
    state = "" if failed is None or number < failed else " · **failed**" if number == failed else " · not applied"
    info = transform["steps"][number].get("info")
    told = f": {escape_markdown(str(info))}" if info and not state else ""
    return f"{number + 1}. {escape_code(transform['texts'][number])}{state}{told}"
