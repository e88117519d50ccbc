"""The steps that a run is made of. A step is a name and three numbers, so that a list of steps can be played again.

Numbers count modulo what there is at that moment; a step for which there is nothing does nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fuzz_documents import Document
from fuzz_play import MOST_FAULTS, Play, sha256
from fuzz_texts import FAULTS, written
from fuzz_wire import Asking, Broken, short

Step = tuple[str, int, int, int]
#: name -> (how often among all, what it does).
STEPS: dict[str, tuple[int, Callable[[Play, int, int, int], None]]] = {}
#: What is typed at random: parts of Python, line ends, characters of two UTF-16 units.
_TYPED = (
    "",
    "x",
    "\n",
    "#",
    "(",
    "😀",
    " ",
    "é\n",
    "        h0 = x\n",
    '"',
    "\n\n",
    "\t",
    "\U0001d525 = 1\n",
    "self.f0",
)
_MOST_OPEN = 4
#: Unanswered questions at most: an editor has few.
_MOST_ASKED = 40
_MODEL_PAGES = (
    "mase/graph", "mase/costTable", "mase/costs", "mase/traced", "mase/tensors", "mase/models", "mase/problems",
    "mase/inputs", "mase/roots", "mase/pipeline", "mase/verilog", "mase/compare", "mase/fileStatus", "mase/passes",
    "mase/pipelineSettings",
)  # fmt: skip
_PAGES = ("mase/info", "mase/files", "mase/workers", "mase/statistics", "mase/models", "mase/problems")
_AT = ("textDocument/hover", "textDocument/definition", "textDocument/implementation", "textDocument/documentHighlight")


def step(often: int) -> Callable[[Callable[[Play, int, int, int], None]], Callable[[Play, int, int, int], None]]:
    """Have a function as a step."""

    def add(function: Callable[[Play, int, int, int], None]) -> Callable[[Play, int, int, int], None]:
        STEPS[function.__name__] = (often, function)
        return function

    return add


def play(run: Play, one: Step) -> None:
    """Do one step, and take what the server said meanwhile."""
    name, *numbers = one
    run.journal.append(one)
    STEPS[name][1](run, *numbers)
    run.wire.pump()
    if run.tool is not None:
        run.tool.pump()
    if len(run.wire.open) > _MOST_ASKED:
        run.wire.until(lambda: len(run.wire.open) < _MOST_ASKED // 2, "answers to the editor")


def opened(run: Play, a: int) -> Document | None:
    """One of the documents that are open in the editor."""
    found = [each for each in run.documents if each.open]
    return found[a % len(found)] if found else None


# Typing and saving.


@step(5)
def open_file(run: Play, a: int, b: int, c: int) -> None:
    closed = [each for each in run.documents if not each.open]
    if closed and a % 2:
        run.open(closed[b % len(closed)])
    elif sum(each.open for each in run.documents) < _MOST_OPEN:
        run.open(run.new())


@step(30)
def retype(run: Play, a: int, b: int, c: int) -> None:
    if (document := opened(run, a)) is not None:
        document.spec = replace(document.spec, fault="").changed(b, b // 4, c, c // 4)
        run.change(document, document.retyped(written(document.spec)))


@step(60)
def type_at_random(run: Play, a: int, b: int, c: int) -> None:
    if (document := opened(run, a)) is not None:
        run.change(document, [document.edit(b, b + c % 3, _TYPED[c % len(_TYPED)])])


@step(15)
def type_at_several_places(run: Play, a: int, b: int, c: int) -> None:
    if (document := opened(run, a)) is not None:
        places = (b, b // 2, c, b + c)[: 2 + c % 3]
        run.change(document, [document.edit(at, at + at % 4, _TYPED[(at + c) % len(_TYPED)]) for at in places])


@step(24)
def mend(run: Play, a: int, b: int, c: int) -> None:
    if (document := opened(run, a)) is not None:
        told = written(document.spec)
        run.change(document, document.replaced(told) if c % 8 == 0 else document.retyped(told))


@step(5)
def break_it(run: Play, a: int, b: int, c: int) -> None:
    document, fault = opened(run, a), list(FAULTS)[b % len(FAULTS)]
    if document is not None and (fault != "exits" or document.faults < MOST_FAULTS):
        document.spec = replace(document.spec, fault=fault, at=c)
        run.change(document, document.retyped(written(document.spec)))


@step(4)
def save(run: Play, a: int, b: int, c: int) -> None:
    document = opened(run, a)
    if document is not None and (document.known.fault != "exits" or document.faults < MOST_FAULTS):
        run.save(document)


@step(6)
def wait_for_answers(run: Play, a: int, b: int, c: int) -> None:
    """A person looks for a moment."""
    run.answered()


@step(1)
def save_storm(run: Play, a: int, b: int, c: int) -> None:
    for number in range(2 + c % 4):
        retype(run, a, b + number, c)
        save(run, a, b, c)


@step(10)
def settle(run: Play, a: int, b: int, c: int) -> None:
    if (document := opened(run, a)) is not None:
        run.settle(document)


@step(1)
def write_from_outside(run: Play, a: int, b: int, c: int) -> None:
    """Another program writes the file; nobody tells the server."""
    if (document := opened(run, a)) is not None:
        document.spec = replace(document.spec, fault="").changed(b, b // 4, c, c // 4)
        document.disk = written(document.spec)
        document.may_show(document.disk)
        run.write(document, document.disk.text)


@step(3)
def close(run: Play, a: int, b: int, c: int) -> None:
    if (document := opened(run, a)) is not None:
        run.close(document)


@step(1)
def rename(run: Play, a: int, b: int, c: int) -> None:
    """As editors do it: the old document is closed, the new one opened."""
    document = opened(run, a)
    if document is None or document.deleted:
        return
    run.documents.remove(document)
    run.made += 1
    fresh = Document(document.path.with_name(f"run{run.number}_{run.made}_renamed.py"))
    document.path.rename(fresh.path)
    run.close(document)
    fresh.spec, fresh.disk, fresh.faults = document.spec, document.disk, document.faults
    fresh.load(fresh.disk)
    fresh.may_show(fresh.disk, tuple(line.ident for line in fresh.lines))
    run.documents.append(fresh)
    moved = [{"oldUri": document.uri, "newUri": fresh.uri}]
    run.wire.notify("workspace/didRenameFiles", {"files": moved})
    run.open(fresh)


@step(1)
def delete(run: Play, a: int, b: int, c: int) -> None:
    document = opened(run, a)
    if document is not None:
        document.path.unlink(missing_ok=True)
        document.deleted = True
        if b % 2:
            run.close(document)


# Asking.


@step(40)
def hints(run: Play, a: int, b: int, c: int) -> None:
    if (document := opened(run, a)) is not None:
        first = b % (len(document.lines) + 2)
        run.hints(document, first, first + c % 60)


@step(40)
def ask_at(run: Play, a: int, b: int, c: int) -> None:
    """Hover and the like, at any position, in the text or not."""
    if (document := opened(run, a)) is not None:
        at = document.position(b) if b % 9 else {"line": b, "character": c}
        method = _AT[0] if c % 2 else _AT[c % len(_AT)]
        run.feature(method, document, {"position": at}, lambda found: _inside(document, found))


def _inside(document: Document, found: Any) -> None:
    """A hover's range, where it has one, is of one that there can be."""
    if isinstance(found, dict) and "range" in found:
        start, end = found["range"]["start"], found["range"]["end"]
        if (start["line"], start["character"]) > (end["line"], end["character"]):
            raise Broken(f"a range that ends before it starts, in {document.path.name}: {short(found)}")


@step(15)
def lenses(run: Play, a: int, b: int, c: int) -> None:
    document = opened(run, a)
    if document is None:
        return
    lines, changes = [line.text for line in document.lines], document.changes

    def check(found: Any) -> None:
        if document.changes != changes:
            return  # of the text of then, where the question had to wait for the trace
        for each in found or ():
            at = each["range"]["start"]["line"]
            if at >= len(lines) or not any(lines[at] in known.told.text for known in document.shown):
                raise Broken(f"a lens at line {at} of {document.path.name}: {short(each)}")

    run.feature("textDocument/codeLens", document, {}, check)


@step(15)
def problems(run: Play, a: int, b: int, c: int) -> None:
    if (document := opened(run, a)) is not None and run.server.style == "pull":
        run.feature("textDocument/diagnostic", document, {"previousResultId": str(b)}, lambda found: None)


@step(15)
def actions(run: Play, a: int, b: int, c: int) -> None:
    """What can be done at a place; one of them is resolved, or done."""
    document = opened(run, a)
    if document is None:
        return
    at = document.position(b)

    def check(found: Any) -> None:
        edits = [each for each in found or () if isinstance(each.get("data"), dict)]
        if not edits:
            return
        chosen = edits[c % len(edits)]
        if c % 3:
            run.feature("codeAction/resolve", document, chosen, lambda action: None)
        elif chosen.get("edit"):
            run.apply(chosen["edit"])

    given = {"range": {"start": at, "end": at}, "context": {"diagnostics": []}}
    run.feature("textDocument/codeAction", document, given, check)


@step(6)
def resolve_hint(run: Play, a: int, b: int, c: int) -> None:
    document = opened(run, a)
    if document is None:
        return

    def check(found: Any) -> None:
        if found:
            run.feature("inlayHint/resolve", document, found[c % len(found)], lambda hint: None)

    area = {"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}}
    run.feature("textDocument/inlayHint", document, {"range": area}, check)


@step(15)
def pages(run: Play, a: int, b: int, c: int) -> None:
    """Graphs, costs and whatever else is told of a model, by the editor or by the other tool."""
    wire: Asking = run.tool if run.tool is not None and b % 2 else run.wire
    document = run.documents[a % len(run.documents)] if run.documents else None
    if document is None or c % 5 == 0:
        run.api(wire, _PAGES[c % len(_PAGES)], {})
        return
    method = _MODEL_PAGES[c % len(_MODEL_PAGES)]

    def check(found: Any) -> None:
        told = found.get("sha256") if isinstance(found, dict) and method == "mase/graph" else None
        if told and told not in {sha256(each.told.text) for each in document.shown}:
            raise Broken(f"{method} tells of a text that was never saved: {short(found)}")

    run.api(wire, method, {"path": str(document.path)}, check)


@step(4)
def node_at(run: Play, a: int, b: int, c: int) -> None:
    if (document := opened(run, a)) is not None:
        given = {"textDocument": {"uri": document.uri}, "position": document.position(b)}
        run.api(run.wire, "mase/nodeAt", given)


@step(12)
def cancel(run: Play, a: int, b: int, c: int) -> None:
    """Take a question back: right behind it, or long after its answer, or one that never was."""
    if a % 3 == 0:
        run.wire.cancel(max(1, run.wire.asked - b % 50) if c % 5 else 10**9 + b)
    elif opened(run, a) is not None:
        asked = run.wire.asked
        (hints, ask_at, lenses, actions, pages)[c % 5](run, a, b, c)
        if run.wire.asked > asked:
            run.wire.cancel(run.wire.asked)
    if run.tool is not None and b % 2 and run.tool.asked:
        run.tool.cancel(run.tool.asked)


# Passes and inputs.

_PASSES = (("quantize", {"default": "fixed(8,4)"}), ("fuse", {}), ("no_such_pass", {}))


@step(1)
def change_passes(run: Play, a: int, b: int, c: int) -> None:
    """Apply one, take it back, again, all; through either client, with or without waiting for the last."""
    document = opened(run, a)
    if document is None or c % 3:
        return
    run.passes = True
    wire: Asking = run.tool if run.tool is not None and b % 2 else run.wire
    name, arguments = _PASSES[c % len(_PASSES)]
    match b % 7:
        case 0 | 1 | 2:
            more = {"pass": name, "arguments": arguments}
            run.api(wire, "mase/applyPass", {"path": str(document.path), **more})
        case 3:
            run.api(wire, "mase/setPipeline", {"path": str(document.path), "steps": ["quantize(default='fixed(6,3)')"]})
        case 4 | 5 | 6:
            method = ("mase/undoPass", "mase/redoPass", "mase/resetPasses")[b % 3]
            run.api(wire, method, {"path": str(document.path)})


@step(1)
def change_inputs(run: Play, a: int, b: int, c: int) -> None:
    """Other inputs than the file's own run has, from either client; they fit every file of ours."""
    document = opened(run, a)
    if document is None or c % 4:
        return
    document.wished = True
    wire: Asking = run.tool if run.tool is not None and b % 2 else run.wire
    run.api(wire, "mase/setInputs", {"path": str(document.path), "inputs": ["x: f32[3, 8]"] if b % 3 else []})


# Faults and circumstances.


@step(1)
def retrace(run: Play, a: int, b: int, c: int) -> None:
    if (document := opened(run, a)) is not None and c % 2:
        run.wire.ask(
            "workspace/executeCommand", {"command": "mase.retrace", "arguments": [document.uri]}, lambda answer: None
        )


def _may_disturb(run: Play) -> bool:
    return bool(run.documents) and max(each.faults for each in run.documents) < MOST_FAULTS


@step(1)
def kill(run: Play, a: int, b: int, c: int) -> None:
    """Any process below the server: a trace, a fork of one, a warm parent."""
    below = run.server.below()
    if below and c % 4 == 0 and _may_disturb(run):
        run.disturb()
        with contextlib.suppress(OSError):
            os.kill(below[a % len(below)], signal.SIGKILL)


@step(1)
def restart(run: Play, a: int, b: int, c: int) -> None:
    if c % 16 == 0 and _may_disturb(run):
        run.disturb()
        run.api(run.tool or run.wire, "mase/restartWorkers", {})


@step(1)
def stop_a_trace(run: Play, a: int, b: int, c: int) -> None:
    """The person presses Cancel at the progress of something."""
    if run.tokens:
        run.disturb(faults=0)
        run.wire.notify("window/workDoneProgress/cancel", {"token": run.tokens[a % len(run.tokens)]})


@step(1)
def change_settings(run: Play, a: int, b: int, c: int) -> None:
    if b % 2:
        run.expressions = True
        run.settings["hints"]["expressions"] = not run.settings["hints"]["expressions"]
    elif c % 4 == 0:
        run.settings["limits"]["seconds"] = 241 - run.settings["limits"]["seconds"]
    run.wire.notify("workspace/didChangeConfiguration", {"settings": None})


@step(1)
def change_folders(run: Play, a: int, b: int, c: int) -> None:
    third = [{"uri": run.server.third.as_uri(), "name": "third"}]
    event = {"added": [], "removed": third} if run.folders else {"added": third, "removed": []}
    run.folders = not run.folders
    run.wire.notify("workspace/didChangeWorkspaceFolders", {"event": event})


@step(3)
def other_tool(run: Play, a: int, b: int, c: int) -> None:
    """Another tool comes, goes, opens and closes files."""
    if run.tool is None:
        run.tool = run.server.tool()
    elif b % 6 == 0:
        run.leave()
    elif run.documents:
        path = str(run.documents[a % len(run.documents)].path)
        if c % 3 == 0:
            run.api(run.tool, "mase/close", {"path": path})
        elif c % 3 == 1:
            run.api(run.tool, "mase/open", {"path": path, "wait": bool(c % 2)})
        else:
            run.api(run.tool, "mase/subscribe", {"topics": ["graph", "status"]})
