"""One run of the fuzzer: an editor, perhaps another tool, the documents they have open, and what must hold of them."""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable
from typing import Any

from fuzz_documents import Document, Kept
from fuzz_server import Server
from fuzz_texts import FAULTS, SHOWS_NOTHING, Hints
from fuzz_wire import Asking, Broken, Question, ToolWire, short

ENDED = {"ready", "failed", "crashed", "untrusted", "no_model", "no_environment"}
#: Faults of one file that a run may make: after five crashes within three minutes a file is left alone.
MOST_FAULTS = 3
CONTENT_MODIFIED = -32801
#: What API methods answer where there is nothing to tell: no graph yet, nothing to undo, the trace was stopped.
REFUSALS = {-32602, -32803, -32800, "invalid-params", "no-graph", "not-open", "unknown-model", "pass-failed", "gone"}
REFUSALS |= {"cancelled", "failed", "limit", "argument", "pass", "unknown-scope", "not-found", "unknown-inputs"}
_SETTINGS = {"hints": {"expressions": False}, "limits": {"seconds": 120}}
#: Other inputs than the file's own beside them.
_WISHED = re.compile(r"\[(B|3)(\|4)?, |\[4, ")
#: While a trace that takes long is under way, the sizes of the file's own run stand where symbols will.
_NUMBERS = re.compile(r"\[4, ")
_QUANTISED = re.compile(r"(: | -> )fixed\(\d+,\d+\)\[")


def sha256(text: str) -> str:
    """As the server tells texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()


class Play:
    """One run over a server, which may have seen others. number: makes its files' names new."""

    def __init__(self, server: Server, number: int) -> None:
        self.server, self.wire, self.number = server, server.wire, number
        self.documents: list[Document] = []
        self.made = 0
        self.asked_before = self.wire.asked
        self.tool_asked = 0
        self.journal: list[tuple[Any, ...]] = []
        self.tool: ToolWire | None = None
        self.settings: dict[str, Any] = copy.deepcopy(_SETTINGS)
        self.pulled = 0
        self.expressions = False
        self.folders = False
        self.passes = False
        self.published: dict[str, list[Any]] = {}
        self.tokens: list[Any] = []
        self.versions: dict[str, int] = {}
        self.ends: set[tuple[str, int]] = set()
        self.wire.serve, self.wire.hear = self.serve, self.hear

    # What the server says on its own.

    def serve(self, method: str, params: Any) -> Any:
        """Answer what the server asks the editor."""
        match method:
            case "workspace/configuration":
                self.pulled += 1
                return [self.settings for _ in params["items"]]
            case "workspace/applyEdit":
                return {"applied": self.apply(params["edit"])}
            case "window/showDocument":
                return {"success": True}
            case "window/workDoneProgress/create":
                self.tokens.append(params["token"])
        return None

    def hear(self, method: str, params: Any) -> None:
        """A notification."""
        if method == "mase/status":
            self._status(params)
        elif method == "textDocument/publishDiagnostics":
            self._published(params)

    def _status(self, status: dict[str, Any]) -> None:
        for document in self.documents:
            if document.uri == status["uri"]:
                document.status = status
                key = (status["uri"], status["generation"])
                if status["state"] in ENDED | {"superseded"}:
                    if key in self.ends:
                        raise Broken(f"generation {key[1]} of {key[0]} ended twice: {short(status)}")
                    self.ends.add(key)

    def _published(self, told: dict[str, Any]) -> None:
        self.published[told["uri"]] = told["diagnostics"]
        document = next((each for each in self.documents if each.uri == told["uri"]), None)
        version = told.get("version")
        if version is not None and version > self.versions.get(told["uri"], 0):
            raise Broken(f"diagnostics of a version that there is not: {short(told)}")
        if told["diagnostics"] and document is not None and document.open and self.server.style == "pull":
            raise Broken(f"diagnostics were pushed to an editor that pulls them: {short(told)}")

    def apply(self, edit: dict[str, Any]) -> bool:
        """An edit that the server wants: done where its version is the present one, as an editor does it."""
        for change in edit.get("documentChanges", ()):
            told = change["textDocument"]
            document = next((each for each in self.documents if each.uri == told["uri"] and each.open), None)
            if document is None:
                return False
            if told["version"] is None or told["version"] > self.versions[told["uri"]]:
                raise Broken(f"an edit of version {told['version']}; {document.version} is the last: {short(edit)}")
            if told["version"] != document.version:
                return False
            self.change(document, [document.edit(*_stretch(document, each)) for each in reversed(change["edits"])])
        return True

    # What the editor does.

    def change(self, document: Document, changes: list[dict[str, Any]]) -> None:
        """Tell of edits that the buffer already has."""
        if changes:
            document.version += 1
            document.changes += 1
            self._sent(document)
            named = {"uri": document.uri, "version": document.version}
            self.wire.notify("textDocument/didChange", {"textDocument": named, "contentChanges": changes})

    def new(self) -> Document:
        """Another file, in one of the folders; not open yet."""
        folder = self.server.other if self.made % 5 == 4 else self.server.folder
        document = Document(folder / f"run{self.number}_{self.made}.py")
        self.made += 1
        self.documents.append(document)
        document.path.write_text(document.text)
        document.may_show(document.known, tuple(line.ident for line in document.lines))
        return document

    def open(self, document: Document) -> None:
        """Open it with the text that the file holds."""
        document.version, document.open = 1, True
        self._sent(document)
        if document.text != document.disk.text:
            document.load(document.disk)
        item = {"uri": document.uri, "languageId": "python", "version": 1, "text": document.text}
        self.wire.notify("textDocument/didOpen", {"textDocument": item})

    def _sent(self, document: Document) -> None:
        self.versions[document.uri] = max(document.version, self.versions.get(document.uri, 0))

    def write(self, document: Document, text: str) -> None:
        """Write a file whole, so that nobody reads half of it."""
        beside = document.path.with_name(f".{document.path.name}.saving")
        beside.write_text(text)
        beside.replace(document.path)
        document.deleted = False

    def save(self, document: Document) -> None:
        """Save the buffer."""
        self.write(document, document.text)
        document.saved()
        self.wire.notify("textDocument/didSave", {"textDocument": {"uri": document.uri}})

    def close(self, document: Document) -> None:
        """Close it; what was pushed for it has to be taken back. What is gone is never opened again."""
        document.open = False
        document.changes += 1
        if document.deleted:
            self.documents.remove(document)
        self.wire.notify("textDocument/didClose", {"textDocument": {"uri": document.uri}})

    def leave(self) -> None:
        """The other tool goes."""
        if self.tool is not None:
            self.tool_asked += self.tool.asked
            self.tool.close()
            self.tool = None

    def disturb(self, faults: int = 1) -> None:
        """What any trace comes to is open for now."""
        for document in self.documents:
            document.disturbed = True
            document.faults += faults

    # Questions.

    def feature(
        self, method: str, document: Document, params: dict[str, Any], check: Callable[[Any], None]
    ) -> Question:
        """Ask for a feature of the protocol: an error only where the document was edited meanwhile."""
        changes = document.changes

        def right(answer: dict[str, Any]) -> None:
            code = (answer.get("error") or {}).get("code")
            if code == CONTENT_MODIFIED and document.changes != changes:
                return
            if code is not None:
                raise Broken(f"{method} was refused: {short(answer)}")
            check(answer["result"])

        return self.wire.ask(method, {"textDocument": {"uri": document.uri}, **params}, right)

    def api(
        self, wire: Asking, method: str, params: dict[str, Any], check: Callable[[Any], None] = lambda result: None
    ) -> Question:
        """Ask an API method, or a command of one: it answers, or says why it cannot."""

        def right(answer: dict[str, Any]) -> None:
            error = answer.get("error")
            if error is None:
                check(answer["result"])
            elif error["code"] not in REFUSALS or not error["message"]:
                raise Broken(f"{method} was refused: {short(answer)}")

        return wire.ask(method, params, right)

    def hints(self, document: Document, first: int, last: int, exact: Kept | None = None) -> None:
        """Ask for the hints of these lines: each stands at a text that it was traced from.

        exact: and every one of this text's is there that no edit has touched.
        """
        view = copy.copy(document)
        view.lines, view.shown = list(document.lines), list(document.shown)

        def check(found: Any) -> None:
            told = {(each["position"]["line"], each["position"]["character"]): _text(each) for each in found or ()}
            if len(told) != len(found or ()) and not self.expressions:
                raise Broken(f"two hints at one place of {document.path.name}: {short(found)}")
            self._sound(document, view, told)
            if exact is not None:
                self._whole(view, exact, told, range(first, last + 1))

        area = {"start": {"line": first, "character": 0}, "end": {"line": last, "character": 0}}
        self.feature("textDocument/inlayHint", document, {"range": area}, check)

    def plain(self, document: Document, label: str) -> str:
        """A label without what passes, inputs that somebody wished, and changes of the text make of it."""
        label = label.replace("~", "")
        label = _QUANTISED.sub(r"\1f32[", label) if self.passes else label
        return _WISHED.sub("[B, ", label) if document.wished else label

    def _sound(self, document: Document, view: Document, told: Hints) -> None:
        candidates = [*view.shown, *document.shown]
        for (line, column), label in told.items():
            text = _NUMBERS.sub("[B, ", self.plain(document, label))
            if any(view.allowed(each, line, column, text) for each in candidates):
                continue
            here = view.lines[line].text if line < len(view.lines) else None
            if self.expressions and any(here in each.told.text.split("\n") for each in candidates):
                continue
            texts = "\n---\n".join(each.told.text for each in candidates)
            raise Broken(f"a stale hint {label!r} at {line}:{column} of {here!r}; texts that may be shown:\n{texts}")

    def _whole(self, view: Document, exact: Kept, told: Hints, lines: range) -> None:
        for at, label in view.expected(exact).items():
            if at[0] in lines and self.plain(view, told.get(at, "nothing")) != label:
                where = f"{view.path.name}:{at[0]}:{at[1]}"
                raise Broken(f"{where} shows {told.get(at, 'nothing')!r}, not {label!r}:\n{view.text}\n{told}")

    # Quiet.

    def answered(self) -> None:
        """Wait until nothing is asked any more."""
        self.wire.until(lambda: not self.wire.open, "all answers to the editor")
        if self.tool is not None:
            self.tool.until(lambda: not self.tool.open, "all answers to the other tool")  # type: ignore[union-attr]

    def settle(self, document: Document) -> None:
        """Wait until the newest text was traced, and compare everything with what it must be."""
        self.answered()
        if document.deleted:
            return
        if document.disturbed:
            self._traced_again(document)
        newest = sha256(document.disk.text)
        self.wire.until(
            lambda: document.status.get("sha256") == newest and document.status["state"] in ENDED,
            f"the end of the trace of {document.path.name}, whose status is {document.status}",
        )
        self._state(document)
        kept = self._shown(document)
        last = len(document.lines)
        if kept is None:
            self.hints(document, 0, last)
        else:
            self.hints(document, 0, last, exact=None if kept.told.fault is None else kept)
        self.answered()
        self._problems(document)

    def _traced_again(self, document: Document) -> None:
        """A person who sees a crash asks for another trace: at the latest the third one is undisturbed."""
        expected = FAULTS.get(document.disk.fault or "", ("",))[0]
        for _ in range(3):
            answer = self.wire.result("mase/retrace", {"uri": document.uri})
            if "error" in answer:
                raise Broken(f"mase/retrace was refused: {short(answer)}")
            if document.disk.fault is None or answer["result"]["state"] == expected:
                break
        document.disturbed = False

    def _state(self, document: Document) -> None:
        fault = document.disk.fault
        if fault is not None and document.status["state"] != FAULTS[fault][0]:
            raise Broken(f"{document.path.name} with fault {fault!r} ended so: {document.status}\n{document.disk.text}")

    def _shown(self, document: Document) -> Kept | None:
        status, fault = document.status, document.disk.fault
        before = len(document.shown)
        kept = document.settled_on(status["shown_sha256"], [sha256(each.told.text) for each in document.shown])
        if status["shown_sha256"] is not None and kept is None:
            raise Broken(f"{document.path.name} shows a text that was never saved ({before} were): {status}")
        newest = status["shown_sha256"] == status["sha256"] and not status["stale"]
        if fault is not None and fault not in SHOWS_NOTHING | {"empty"} and not newest:
            told = self.wire.result("mase/fileStatus", {"uri": document.uri})
            told |= {"problems": self.wire.result("mase/problems", {"uri": document.uri})}
            raise Broken(f"{document.path.name} does not show its newest text: {status}\n{told}\n{document.disk.text}")
        return kept

    def _problems(self, document: Document) -> None:
        fault = document.disk.fault
        if self.server.style == "pull":
            answer = self.wire.result("textDocument/diagnostic", {"textDocument": {"uri": document.uri}})
            found = answer["result"]["items"]
        else:
            found = self.published.get(document.uri, [])
        if fault is None or document.wished or document.text != document.disk.text:
            return
        told = [(each["code"], each["range"]["start"]["line"]) for each in found if each["severity"] == 1]
        code = FAULTS[fault][1]
        if told != ([(code, document.disk.place)] if code else []):
            raise Broken(f"{document.path.name} with fault {fault!r} has the problems {short(found)}")

    def finish(self) -> None:
        """The end of a run: all is as it must be, and the server holds nothing of it any longer."""
        for document in self.documents:
            if document.open:
                self.settle(document)
        if self.tool is not None:
            self.leave()
        self._closed()
        for document in list(self.documents):
            if not document.open:
                self.open(document)
            document.path.unlink(missing_ok=True)
            document.deleted = True
            self.close(document)
        self._usual()
        self.answered()
        left: list[Any] = [True]

        def forgotten() -> bool:
            left[:] = self.wire.result("mase/files", {})["result"]
            return not left

        try:
            self.wire.until(forgotten, "the end of everything that the run had opened")
        except Broken as error:
            raise Broken(f"{error}; the server holds {left}") from error
        stuck = {uri: items for uri, items in self.published.items() if items}
        if stuck:
            raise Broken(f"diagnostics of closed files were never taken back: {short(stuck)}")
        self.server.check_log()

    def _closed(self) -> None:
        """Nothing is told of files that are closed, also where their last trace ended after that."""
        for document in self.documents:
            if not document.open:
                over = ENDED | {"superseded", None}
                self.wire.until(lambda: document.status.get("state") in over, "the end of a trace")  # noqa: B023
                self.wire.result("mase/files", {})
                if document.path.exists() and self.published.get(document.uri):
                    raise Broken(f"a closed file keeps its diagnostics: {short(self.published[document.uri])}")

    def _usual(self) -> None:
        """The settings that the next run begins with."""
        if self.settings != _SETTINGS:
            self.settings = copy.deepcopy(_SETTINGS)
            asked = self.pulled
            self.wire.notify("workspace/didChangeConfiguration", {"settings": None})
            self.wire.until(lambda: self.pulled > asked, "a question for the settings")


def _text(hint: dict[str, Any]) -> str:
    label = hint["label"]
    return label if isinstance(label, str) else "".join(part["value"] for part in label)


def _stretch(document: Document, edit: dict[str, Any]) -> tuple[int, int, str]:
    """A text edit by offsets."""
    start, end = (offset(document, edit["range"][side]) for side in ("start", "end"))
    return start, end, edit["newText"]


def offset(document: Document, position: dict[str, int]) -> int:
    """The offset of a protocol's position."""
    lines = [line.text for line in document.lines]
    if position["line"] >= len(lines):
        return len(document.text)
    before = sum(len(line) + 1 for line in lines[: position["line"]])
    units = lines[position["line"]].encode("utf-16-le")[: 2 * position["character"]]
    return before + len(units.decode("utf-16-le", "ignore"))
