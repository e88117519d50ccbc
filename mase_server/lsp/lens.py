"""Code lenses on a model's class: one line of at most 80 columns about one model.

First comes what must be distrusted, then size and cost, then links. Parts of lesser importance become shorter, or
disappear, until the line fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server.lsp import hardware_texts, input_sets, links, pipelines, run_costs, verilog
from mase_server.lsp.calls import wait_until_traced
from mase_server.lsp.wording import duration_text, guess_text, roots_text, short_guess_text, size_text

if TYPE_CHECKING:
    from mase_server.daemon.store import ModelView, PartView
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server

#: The lens command that traces the file again.
RETRACE = "mase.retrace"
#: The lens command on a class that several models use: it shows one of them.
PICK_ROOT = "mase.pickRoot"
#: The lens commands of hardware: show it, simulate it.
VERILOG, SIMULATE = "mase.emitVerilog", "mase.simulateVerilog"
#: The lens commands of a pipeline: list it, take back its last step, compare with the original.
PIPELINE, UNDO, COMPARE = "mase.pipeline", "mase.undoPass", "mase.compare"

#: The lens command that tells graph breaks, or no longer.
BREAKS = "mase.showBreaks"

#: Maximum columns of a line, and the columns that editors put between two lenses.
WIDTH = 80
_BETWEEN = 3


@dataclass(frozen=True, slots=True)
class _Part:
    """One clickable part of a line. texts: from long to short; the last is "" if the part may disappear."""

    texts: tuple[str, ...]
    command: str
    arguments: list[Any]


async def code_lens(ls: Server, params: lsp.CodeLensParams) -> list[lsp.CodeLens] | None:
    """textDocument/codeLens."""
    uri = params.text_document.uri
    if ls.verilog.sheet(uri) is not None:
        return await verilog.hardware_lenses(ls, uri)
    await wait_until_traced(ls, uri, "code_lens")
    page = ls.page(uri)
    if page is None:
        return None
    lenses = []
    for place, models, shared in _by_line(page):
        parts = [*_model_parts(ls, uri, page, models), *_shared_class_parts(uri, page, shared)]
        for part, text in zip(parts, fit_texts([part.texts for part in parts]), strict=True):
            if text:
                lenses.append(lsp.CodeLens(place, lsp.Command(text, part.command, None, part.arguments)))
    return lenses


def _by_line(page: Page) -> Iterator[tuple[lsp.Range, list[ModelView], list[PartView]]]:
    """The models and the shared classes of each line that gets lenses."""
    found: dict[int, tuple[lsp.Range, list[ModelView], list[PartView]]] = {}
    for model in page.view.models():
        if (place := page.range(model)) is not None:
            found.setdefault(place.start.line, (place, [], []))[1].append(model)
    for shared in page.view.parts():
        if (place := page.range(shared)) is not None:
            found.setdefault(place.start.line, (place, [], []))[2].append(shared)
    yield from found.values()


def fit_texts(parts: Sequence[Sequence[str]], width: int = WIDTH) -> list[str]:
    """One text of each part, as long as all fit into `width` columns; the last parts are shortened first."""
    shown = [texts[0] for texts in parts]
    for index in reversed(range(len(parts))):
        if _columns(shown) > width:
            shown[index] = parts[index][-1]
    for index, texts in enumerate(parts):
        forms = ([*shown[:index], text, *shown[index + 1 :]] for text in texts)
        shown = next((form for form in forms if _columns(form) <= width), shown)
    return shown


def _columns(texts: Sequence[str]) -> int:
    lengths = [len(text) for text in texts if text]
    return sum(lengths) + _BETWEEN * (len(lengths) - 1)


def _model_parts(ls: Server, uri: str, page: Page, models: Sequence[ModelView]) -> Iterator[_Part]:
    """The parts about one of the models of a line: the picked one, else the first of this file."""
    if not models:
        return
    ranked = sorted(models, key=lambda one: (one.title != page.view.picked, one.snapshot.path != page.document.path))
    model, target = ranked[0], _command_target(ranked[0])
    form = input_sets.CHANGE if ls.knows(input_sets.CHANGE) else ""
    if page.view.stale:
        yield _Part(("stale",), RETRACE, [uri])
    guess, costs = guess_text(model), ls.costs.lens_texts(model)
    size = size_text(model).partition(" · ")[0] if costs else size_text(model)  # what runs is told in seconds
    if model.transform is None and not form and not ls.knows(links.COSTS):
        duration = "" if model.hardware is not None else duration_text(model)  # what its hardware takes says more
        yield _Part((_join_texts(guess, size, duration), _join_texts(guess, size)), RETRACE, [uri])
    else:
        if guess:
            yield _Part((guess, short_guess_text(model)), form or RETRACE, target if form else [uri])
        if model.transform is not None:
            yield _Part(pipelines.lens_texts(model.transform), PIPELINE, target)
        elif ls.knows(links.COSTS):
            yield _Part((size,), links.COSTS, target)
        else:
            yield _Part((size,), RETRACE, [uri])
    if costs:
        shown = ls.knows(links.COSTS)
        yield _Part(costs, links.COSTS if shown else run_costs.PICK, target)
    if len(models) > 1:
        yield _Part((f"{model.title}, of {len(models)} models", f"1 of {len(models)} models"), PICK_ROOT, [uri])
    if model.transform is not None:
        yield _Part(("undo",), UNDO, target)
    for title, command in {"costs": links.COSTS, "graph": links.GRAPH}.items():
        if ls.knows(command):
            yield _Part((title,), command, target)
    if model.transform is not None:
        yield _Part(("compare", ""), COMPARE, target)
    if model.sets or len(model.builders) > 1:
        yield _Part(input_sets.sets_texts(model), input_sets.PICK, target)
    if model.hardware is not None:
        yield _Part(hardware_texts.lens_texts(model.hardware), VERILOG, target)
        if not model.hardware.told["refusal"]:
            yield _Part(("simulate",), SIMULATE, target)
    if form:
        yield _Part(("inputs", ""), form, target)
    if ls.knows(links.COSTS):  # elsewhere lenses cannot be clicked, or each is a line of its own
        yield _Part((*ls.compiled.lens_texts(model), ""), BREAKS, target)
    if form:
        yield _Part((duration_text(model), ""), RETRACE, [uri])


def _shared_class_parts(uri: str, page: Page, shared: Sequence[PartView]) -> Iterator[_Part]:
    """The parts about a class that several models use."""
    for part in shared:
        short = f"{len(part.roots)} models · pick one"
        yield _Part((roots_text(part.roots, page.view.picked), short), PICK_ROOT, [uri])


def _join_texts(*texts: str) -> str:
    return " · ".join(text for text in texts if text)


def _command_target(model: ModelView) -> list[dict[str, str]]:
    """The parameters of commands about a model."""
    return [{"path": model.snapshot.path, "model": model.title}]
