"""Code actions that apply passes and make hardware: for the model or layers under the cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server.lsp.assumptions import problems_at
from mase_server.lsp.calls import CommandArgument, call_api
from mase_server.lsp.diagnostics import of_problem
from mase_server.lsp.outline import prepare_outline
from mase_server.lsp.targets import Target, targets_in_range
from mase_server.lsp.verilog import emissions_of_file

if TYPE_CHECKING:
    from mase_server.daemon.emissions import Emission
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server


KIND = "refactor.rewrite.mase"
#: The passes that the menu names, with their words; all others are behind "More passes".
FIRST = {"quantize": "Quantise", "prune": "Prune"}

#: The actions offered for a model with hardware -> their commands.
_WITH_HARDWARE = {
    "Simulate the Verilog of {name}": "mase.simulateVerilog",
    "Record a waveform of {name}": "mase.recordWaveform",
    "Save the Verilog of {name} to a folder...": "mase.saveVerilog",
    "Change how the Verilog of {name} is built...": "mase.verilogSettings",
    "Close the Verilog of {name}": "mase.closeVerilog",
}

Menu = Sequence[Mapping[str, Any]]


async def pass_actions(ls: Server, page: Page, place: lsp.Range) -> list[lsp.CodeAction]:
    """The actions for the model or layers in a range; none while the shown trace belongs to an older text."""
    found: list[lsp.CodeAction] = []
    await prepare_outline(page.python)
    for target in [] if page.view.stale else targets_in_range(ls, page, place):
        known = await call_api(ls, "mase/passes", path=target.path, model=target.model, only=list(target.only))
        passes = applicable_passes(known, target.only)
        pipeline = await call_api(ls, "mase/pipeline", path=target.path, model=target.model)
        hardware = await call_api(ls, "mase/verilog", path=target.path, model=target.model)
        found += [
            *_apply_pass_actions(target, passes),
            *_of_pipeline(target, pipeline),
            *_of_hardware(target, hardware),
        ]
    return found


def applicable_passes(passes: Menu, only: Sequence[str]) -> list[Mapping[str, Any]]:
    """The passes of the menu that apply to the whole model, or to a part of it."""
    return [each for each in passes if each["menu"] and (each["selects"] or not only)]


def _apply_pass_actions(target: Target, passes: Menu) -> Iterator[lsp.CodeAction]:
    own: CommandArgument = {"path": target.path, "model": target.model, "only": list(target.only), "name": target.name}
    first = [each for name in FIRST for each in passes if each["name"] == name]
    for each in first:
        yield _pass_code_action(
            f"{FIRST[each['name']]} {target.name}...", "mase.applyPass", {**own, "pass": each["name"]}
        )
    if len(passes) > len(first):
        yield _pass_code_action(f"{'More passes' if first else 'Passes'} for {target.name}...", "mase.choosePass", own)


def _of_pipeline(target: Target, pipeline: Mapping[str, Any]) -> Iterator[lsp.CodeAction]:
    own: CommandArgument = {"path": target.path, "model": target.model}
    whose = "" if target.name == target.model else f" of {target.model}"
    if pipeline["steps"]:
        yield _pass_code_action(f"Undo {name_of(pipeline['steps'][-1])}{whose}", "mase.undoPass", own)
        if not target.only:
            yield _pass_code_action(f"Compare {target.model} with its original", "mase.compare", own)
    if not target.only and (pipeline["steps"] or pipeline["undone"]):
        yield _pass_code_action(f"Pipeline of {target.model}...", "mase.pipeline", own)


def _of_hardware(target: Target, hardware: Mapping[str, Any]) -> Iterator[lsp.CodeAction]:
    own: CommandArgument = {"path": target.path, "model": target.model}
    if target.only:
        if len(target.only) == 1:
            yield _pass_code_action(
                f"Emit the Verilog of {target.name} alone", "mase.emitVerilog", {**own, "scope": target.only[0]}
            )
    elif hardware.get("build") is None or hardware["build"]["scope"]:
        yield _pass_code_action(f"Emit the Verilog of {target.name}...", "mase.emitVerilog", {**own, "scope": ""})
    else:
        yield _pass_code_action(f"Show the Verilog of {target.name}", "mase.emitVerilog", own)
    if hardware.get("build") is not None and not target.only:
        for title, command in _WITH_HARDWARE.items():
            yield _pass_code_action(title.format(name=target.name), command, own)


def name_of(step: str) -> str:
    """The name of the pass in a step's text."""
    return step.partition("(")[0]


def _pass_code_action(title: str, command: str, argument: CommandArgument) -> lsp.CodeAction:
    return lsp.CodeAction(f"MASE: {title}", kind=KIND, command=lsp.Command(title, command, None, [argument]))


# Code actions for problems that prevent hardware: build a part alone, or build with other parameters.

#: Maximum number of parts that are offered.
_PARTS = 3

#: (title, command, the keys added to path and model)
Fix = tuple[str, str, CommandArgument]


def hardware_fixes(ls: Server, page: Page, place: lsp.Range) -> Iterator[lsp.CodeAction]:
    """The actions for the hardware problems that the range touches."""
    for _, problem, at in problems_at(page, place):
        for emission in emissions_of_file(ls, page.document.path) if problem.code in _FIXES else ():
            if problem.message.startswith(f"{emission.title}: "):
                for title, command, given in _FIXES[problem.code](emission):
                    yield _hardware_fix_action(emission, title, command, given, of_problem(ls, problem, at))


def _fixes_by_part(emission: Emission) -> Iterator[Fix]:
    for scope in emission.told["scopes"][:_PARTS]:
        yield f"Build {scope} alone", "mase.emitVerilog", {"scope": scope}


def _fixes_for_refusal(emission: Emission) -> Iterator[Fix]:
    yield from _fixes_by_part(emission)
    yield from _fixes_by_settings(emission)


def _fixes_by_settings(emission: Emission) -> Iterator[Fix]:
    yield f"Change how the Verilog of {emission.title} is built...", "mase.verilogSettings", {}


#: Code of a problem -> the actions offered.
_FIXES: dict[str, Callable[[Emission], Iterator[Fix]]] = {
    "no-hardware": _fixes_by_part,
    "verilog-refused": _fixes_for_refusal,
    "verilog-failed": _fixes_by_settings,
}


def _hardware_fix_action(
    emission: Emission, title: str, command: str, given: CommandArgument, diagnostic: lsp.Diagnostic
) -> lsp.CodeAction:
    target: CommandArgument = {"path": emission.snapshot.path, "model": emission.title, **given}
    kind = lsp.CodeActionKind.QuickFix
    return lsp.CodeAction(title, kind, [diagnostic], command=lsp.Command(title, command, None, [target]))
