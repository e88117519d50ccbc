"""Code lens on a model's class: what it is made of, what it costs, and how its inputs were found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from mase_server.lsp import hardware_requests, hardware_texts, input_sets, links, pipelines
from mase_server.lsp.patience import settled
from mase_server.lsp.wording import facts_text, lens_text, origins_text, roots_text

if TYPE_CHECKING:
    from mase_server.daemon.store import ModelView
    from mase_server.lsp.server import Server

#: The command of a lens: trace the file again.
RETRACE = "mase.retrace"
#: The command of a lens on a class that several models use: show one of them.
PICK_ROOT = "mase.pickRoot"
#: The commands of the lenses of hardware: show it, simulate it.
VERILOG, SIMULATE = "mase.emitVerilog", "mase.simulateVerilog"
#: The commands of a pipeline's lenses: list it, take its last step back, compare with the original.
PIPELINE, UNDO, COMPARE = "mase.pipeline", "mase.undoPass", "mase.compare"


async def code_lens(ls: Server, params: lsp.CodeLensParams) -> list[lsp.CodeLens] | None:
    """textDocument/codeLens."""
    if ls.verilog.sheet(params.text_document.uri) is not None:
        return await hardware_requests.lenses(ls, params.text_document.uri)
    await settled(ls, params.text_document.uri, "code_lens")
    page = ls.page(params.text_document.uri)
    if page is None:
        return None
    lenses = []
    for model in page.view.models():
        place = page.range(model)
        if place is not None:
            commands = [*_of_pipeline(model), *_of_model(ls, params.text_document.uri, page.view.stale, model)]
            lenses += [lsp.CodeLens(place, command) for command in commands]
    for part in page.view.parts():
        place = page.range(part)
        if place is not None:
            title = roots_text(part.roots, page.view.picked)
            lenses.append(lsp.CodeLens(place, lsp.Command(title, PICK_ROOT, None, [params.text_document.uri])))
    return lenses


def _of_pipeline(model: ModelView) -> list[lsp.Command]:
    if model.transform is None:
        return []
    titles = {PIPELINE: pipelines.lens_text(model.transform), UNDO: "undo", COMPARE: "compare"}
    return [lsp.Command(title, command, None, _target(model)) for command, title in titles.items()]


def _of_model(ls: Server, uri: str, stale: bool, model: ModelView) -> list[lsp.Command]:
    """What it is and what can be done with it; editors cut what does not fit, so what may be long comes last."""
    sets, pages, hardware = _of_sets(model), _of_pages(ls, model), _of_hardware(model)
    if not ls.knows(input_sets.CHANGE):
        return [lsp.Command(lens_text(model, stale), RETRACE, None, [uri]), *sets, *pages, *hardware]
    form = lsp.Command("change inputs", input_sets.CHANGE, None, _target(model))
    origins = origins_text(model)
    told = [lsp.Command(origins, input_sets.CHANGE, None, _target(model))] if origins else []
    return [lsp.Command(facts_text(model, stale), RETRACE, None, [uri]), *sets, form, *pages, *hardware, *told]


def _of_sets(model: ModelView) -> list[lsp.Command]:
    return [lsp.Command(input_sets.sets_text(model), input_sets.PICK, None, _target(model))] if model.sets else []


def _target(model: ModelView) -> list[dict[str, str]]:
    """What the commands that are about a model are given."""
    return [{"path": model.snapshot.path, "model": model.title}]


def _of_pages(ls: Server, model: ModelView) -> list[lsp.Command]:
    """What shows all of the model, in clients that have it."""
    titles = {links.GRAPH: "graph", links.COSTS: "costs"}
    return [lsp.Command(title, command, None, _target(model)) for command, title in titles.items() if ls.knows(command)]


def _of_hardware(model: ModelView) -> list[lsp.Command]:
    if model.hardware is None:
        return []
    titles = {VERILOG: hardware_texts.lens_text(model.hardware)}
    titles |= {} if model.hardware.told["refusal"] else {SIMULATE: "simulate"}
    return [lsp.Command(title, command, None, _target(model)) for command, title in titles.items()]
