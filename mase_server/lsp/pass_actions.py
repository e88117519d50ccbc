"""Code actions that apply passes and make hardware: for the model or layers under the cursor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server.lsp.calls import call
from mase_server.lsp.outline import prepare
from mase_server.lsp.targets import Target, targets

if TYPE_CHECKING:
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server

KIND = "refactor.rewrite.mase"
#: The passes that a menu names, with its word for them; all others are behind "More passes".
FIRST = {"quantize": "Quantise", "prune": "Prune"}

#: What a model with hardware offers -> the command.
_WITH_HARDWARE = {
    "Simulate the Verilog of {name}": "mase.simulateVerilog",
    "Save the Verilog of {name} to a folder...": "mase.saveVerilog",
    "Change how the Verilog of {name} is built...": "mase.verilogSettings",
    "Close the Verilog of {name}": "mase.closeVerilog",
}

Menu = Sequence[Mapping[str, Any]]


async def pass_actions(ls: Server, page: Page, place: lsp.Range) -> list[lsp.CodeAction]:
    """What can be done to what the range is on; nothing while what is shown is of an older text."""
    found: list[lsp.CodeAction] = []
    await prepare(page.python)
    for target in [] if page.view.stale else targets(ls, page, place):
        passes = offered(await call(ls, "mase/passes", path=target.path), target.only)
        pipeline = await call(ls, "mase/pipeline", path=target.path, model=target.model)
        hardware = await call(ls, "mase/verilog", path=target.path, model=target.model)
        found += [*_applying(target, passes), *_of_pipeline(target, pipeline), *_of_hardware(target, hardware)]
    return found


def offered(passes: Menu, only: Sequence[str]) -> list[Mapping[str, Any]]:
    """The passes of the menu that can work on the whole model, or on a part of it."""
    return [each for each in passes if each["menu"] and (each["selects"] or not only)]


def _applying(target: Target, passes: Menu) -> Iterator[lsp.CodeAction]:
    own = {"path": target.path, "model": target.model, "only": list(target.only), "name": target.name}
    first = [each for name in FIRST for each in passes if each["name"] == name]
    for each in first:
        yield _action(f"{FIRST[each['name']]} {target.name}...", "mase.applyPass", {**own, "pass": each["name"]})
    if len(passes) > len(first):
        yield _action(f"{'More passes' if first else 'Passes'} for {target.name}...", "mase.choosePass", own)


def _of_pipeline(target: Target, pipeline: Mapping[str, Any]) -> Iterator[lsp.CodeAction]:
    own = {"path": target.path, "model": target.model}
    whose = "" if target.name == target.model else f" of {target.model}"
    if pipeline["steps"]:
        yield _action(f"Undo {name_of(pipeline['steps'][-1])}{whose}", "mase.undoPass", own)
        if not target.only:
            yield _action(f"Compare {target.model} with its original", "mase.compare", own)
    if not target.only and (pipeline["steps"] or pipeline["undone"]):
        yield _action(f"Pipeline of {target.model}...", "mase.pipeline", own)


def _of_hardware(target: Target, hardware: Mapping[str, Any]) -> Iterator[lsp.CodeAction]:
    own = {"path": target.path, "model": target.model}
    if target.only:
        if len(target.only) == 1:
            yield _action(
                f"Emit the Verilog of {target.name} alone", "mase.emitVerilog", {**own, "scope": target.only[0]}
            )
    elif hardware.get("build") is None or hardware["build"]["scope"]:
        yield _action(f"Emit the Verilog of {target.name}...", "mase.emitVerilog", {**own, "scope": ""})
    else:
        yield _action(f"Show the Verilog of {target.name}", "mase.emitVerilog", own)
    if hardware.get("build") is not None and not target.only:
        for title, command in _WITH_HARDWARE.items():
            yield _action(title.format(name=target.name), command, own)


def name_of(step: str) -> str:
    """The pass of a step's text."""
    return step.partition("(")[0]


def _action(title: str, command: str, argument: dict[str, Any]) -> lsp.CodeAction:
    return lsp.CodeAction(f"MASE: {title}", kind=KIND, command=lsp.Command(title, command, None, [argument]))
