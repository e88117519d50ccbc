"""Code actions on what keeps a model from becoming hardware: build a part alone, build otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server.lsp.assumptions import touches
from mase_server.lsp.diagnostics import of_problem
from mase_server.lsp.source_map import emissions

if TYPE_CHECKING:
    from mase_server.daemon.emissions import Emission
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server

#: Most parts that are each offered.
_PARTS = 3

#: (title, command, what is added to path and model)
Fix = tuple[str, str, dict[str, Any]]


def hardware_fixes(ls: Server, page: Page, place: lsp.Range) -> Iterator[lsp.CodeAction]:
    """What can be done about the problems of hardware that the range touches."""
    for problem in page.view.problems():
        at = page.range(problem) if problem.code in _FIXES else None
        if at is None or not touches(at, place):
            continue
        for emission in emissions(ls, page.document.path):
            if problem.message.startswith(f"{emission.title}: "):
                for title, command, given in _FIXES[problem.code](emission):
                    yield _action(emission, title, command, given, of_problem(ls, problem, at))


def _parts(emission: Emission) -> Iterator[Fix]:
    for scope in emission.told["scopes"][:_PARTS]:
        yield f"Build {scope} alone", "mase.emitVerilog", {"scope": scope}


def _refused(emission: Emission) -> Iterator[Fix]:
    yield from _parts(emission)
    yield from _otherwise(emission)


def _otherwise(emission: Emission) -> Iterator[Fix]:
    yield f"Change how the Verilog of {emission.title} is built...", "mase.verilogSettings", {}


#: Code of a problem -> what is offered.
_FIXES: dict[str, Callable[[Emission], Iterator[Fix]]] = {
    "no-hardware": _parts,
    "verilog-refused": _refused,
    "verilog-failed": _otherwise,
}


def _action(
    emission: Emission, title: str, command: str, given: dict[str, Any], diagnostic: lsp.Diagnostic
) -> lsp.CodeAction:
    target = {"path": emission.snapshot.path, "model": emission.title, **given}
    kind = lsp.CodeActionKind.QuickFix
    return lsp.CodeAction(title, kind, [diagnostic], command=lsp.Command(title, command, None, [target]))
