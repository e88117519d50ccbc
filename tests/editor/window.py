"""A VS Code window in a browser page, as a person sees and uses it."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from code_server import ROOT
from playwright.sync_api import Locator, Page, TimeoutError, expect

EXAMPLES = ROOT / "examples"
OUTPUT = ROOT / "tests" / "output"
SIZE = {"width": 1280, "height": 800}
STATUS = "#mase\\.mase-vscode\\.status"
#: What a loaded two-core machine may need for one step; nothing here measures time.
PATIENCE_MS = 60_000
#: How often VS Code's input at the top is asked where something else takes the focus; they share the patience.
TRIES = 6
#: VS Code joins a word with the blanks beside it, so its place is that of its letters, not of its element.
PLACE_OF_WORD = r"""(line, word) => {
    const texts = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const found = new RegExp(`\\b${word}\\b`).exec(texts.currentNode.data);
        if (!found) continue;
        const range = document.createRange();
        range.setStart(texts.currentNode, found.index);
        range.setEnd(texts.currentNode, found.index + word.length);
        const { left, top, width, height } = range.getBoundingClientRect();
        return [left, top, width, height];
    }
    throw new Error(`no ${word} in ${line.textContent}`);
}"""
#: How the window's title begins while a test has settings of its own.
TITLE = "Configured"
NO_TABS_OR_A_QUESTION = "() => !document.querySelector('.tab') || document.querySelector('.monaco-dialog-box')"


class Window:
    """One window on the folder `root`; `folder`: where the present test's files lie, `path`: the last one opened."""

    def __init__(self, page: Page, url: str, root: Path) -> None:
        self.page = page
        self.page.set_default_timeout(PATIENCE_MS)
        self.root = self.folder = self.path = root
        self.configured = 0
        self.page.goto(url)
        self.page.locator(".monaco-workbench .statusbar-item").first.wait_for()

    def begin(self, name: str) -> None:
        """From now on files lie in the folder `name` of the root."""
        self.folder = self.root / name
        self.folder.mkdir()

    def write(self, file: str, text: str) -> Path:
        """Put a file into the test's folder."""
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def open(self, file: str) -> Path:
        """Open a file of the test's folder, as a person does: Ctrl+P. One that is not there becomes that example."""
        path = self.folder / file
        if not path.exists():
            shutil.copyfile(EXAMPLES / file, path)
        self._pick("Control+p", str(path), path.name, path.parent.name)
        self.showing(path)
        return path

    def showing(self, path: Path) -> None:
        """Wait until the editor of that file is there."""
        self.path = path
        self.page.locator(f".tab.active[data-resource-name='{path.name}']").wait_for()
        self.page.locator(
            f".editor-instance [data-uri$='/{path.name}'] .view-line, .notebookOverlay:visible"
        ).first.wait_for()

    def expect_folders(self) -> None:
        """Load a window on a `.code-workspace` until it has folders: now and then VS Code comes up without any."""
        empty = self.page.get_by_text("You have not yet added a folder to the workspace.")
        for _ in range(TRIES):
            self.page.locator(".explorer-folders-view .monaco-list-row").or_(empty).first.wait_for()
            if not empty.count():
                return
            self.page.reload()
        raise AssertionError("VS Code shows no folder of the workspace")

    def configure(self, **settings: object) -> None:
        """Settings of the workspace, on top of those that the test gave before; returns once VS Code has read them.

        What tells is the window's title, which is one of them.
        """
        path = self.root / ".vscode" / "settings.json"
        path.parent.mkdir(exist_ok=True)
        known = json.loads(path.read_text()) if path.exists() else {}
        self.configured += 1
        title = f"{TITLE} {self.configured}."
        path.write_text(json.dumps(known | settings | {"window.title": title}))
        self.page.wait_for_function("title => document.title.includes(title)", arg=title)

    def reset(self) -> None:
        """Close all editors without saving, take away notices, settings and files."""
        self.page.mouse.move(1, 1)  # nothing is hovered
        self.page.keyboard.press("Escape")
        self.command("Notifications: Clear All Notifications")
        self.command("View: Close All Editors")
        self.page.wait_for_function(NO_TABS_OR_A_QUESTION)
        if self.page.locator(".monaco-dialog-box").count():
            self.page.get_by_role("button", name="Don't Save").click()
        expect(self.page.locator(".tab")).to_have_count(0, timeout=PATIENCE_MS)
        shutil.rmtree(self.root / ".vscode", ignore_errors=True)
        self.page.wait_for_function("title => !document.title.includes(title)", arg=TITLE)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def lines(self) -> Locator:
        """The lines of code on the screen."""
        return self.page.locator(".editor-instance .monaco-editor .view-line")

    @property
    def status(self) -> Locator:
        """The extension's status item."""
        return self.page.locator(STATUS)

    def line(self, text: str) -> Locator:
        """The lines on which `text` stands, hints included; blanks match VS Code's no-break spaces."""
        pattern = re.escape(text).replace("\\ ", "[\\s\\u00a0]")
        return self.lines.filter(has_text=re.compile(pattern))

    def expect_line(self, text: str, count: int = 1) -> None:
        """Wait until exactly `count` lines show `text`."""
        expect(self.line(text)).to_have_count(count, timeout=PATIENCE_MS)

    def expect_status(self, text: str) -> None:
        """Wait until the status item reads `text`."""
        expect(self.status).to_have_text(re.compile(re.escape(text)), timeout=PATIENCE_MS)

    def go_to(self, line: int, column: int = 1) -> None:
        """Put the caret there, both counted from 1, as a person does: Ctrl+G."""
        self._pick("Control+g", f":{line}:{column}")

    def replace(self, old: str, new: str) -> None:
        """Edit the one line of the file on which `old` stands, and save."""
        source = self.path.read_text().splitlines()
        [row] = [row for row, line in enumerate(source) if old in line]
        self.go_to(row + 1)
        self.page.keyboard.press("Home")
        self.page.keyboard.press("Shift+End")
        self.page.keyboard.insert_text(source[row].strip().replace(old, new))
        self.save()

    def save(self) -> None:
        """Ctrl+S, until the tab shows no unsaved change."""
        self.page.keyboard.press("Control+s")
        self.page.locator(".editor-group-container.active .tab.active:not(.dirty)").wait_for()

    def hover(self, line: str, word: str) -> Locator:
        """Point at the first `word` of the line that shows `line`; the hover that opens.

        A hint or a lens that arrives meanwhile moves the word away from the mouse. A person points again.
        """
        card = self.page.locator(".monaco-hover:visible").first

        def point() -> None:
            left, top, width, height = self.line(line).first.evaluate(PLACE_OF_WORD, word)
            self.page.mouse.move(left + width / 2, top + height / 2, steps=3)

        return self._ask_again(point, card, lambda: self.page.mouse.move(0, 0))

    def _ask_again(self, ask: Callable[[], None], wanted: Locator, withdraw: Callable[[], None]) -> Locator:
        """Ask until `wanted` is there; between two tries, withdraw the question."""
        for tried in range(TRIES):
            ask()
            try:
                wanted.wait_for(timeout=PATIENCE_MS / TRIES)
                break
            except TimeoutError:
                if tried == TRIES - 1:
                    raise
                withdraw()
        return wanted

    def command(self, title: str) -> None:
        """Run a command from the palette. One that was run before stands first, so the whole title decides."""
        self._pick("F1", f">{title}", re.compile(rf"^{re.escape(title)}(\.\.\.)?$"))

    def actions(self, title: str) -> Locator:
        """Ctrl+. at the caret; the action with `title` in the menu that opens.

        VS Code shows no menu if the actions changed while it was asking for them. A person asks again.
        """
        wanted = self.page.locator(".action-widget").get_by_text(title).first
        keys = self.page.keyboard
        return self._ask_again(lambda: keys.press("Control+."), wanted, lambda: keys.press("Escape"))

    def choose(self, *rows: str) -> None:
        """Answer questions that VS Code asks at the top, one after the other, with the row that shows each text."""
        for row in rows:
            self.page.locator(".quick-input-list .monaco-list-row", has_text=row).first.click()

    def _pick(self, key: str, text: str, *row: str | re.Pattern[str]) -> None:
        """Press the key that opens VS Code's input at the top, ask it for `text`, take the first row that shows `row`.

        A pattern is held against what the row is called, a text against all that the row shows.

        What takes the focus meanwhile closes the input: an output channel that was just shown does so once it is
        painted. A page of ours that was just thrown away keeps the focus and swallows the key. A person presses again.
        """
        field = self.page.locator(".quick-input-widget input[type=text]")
        choice = self.page.locator(".quick-input-list .monaco-list-row")
        for part in row:
            if isinstance(part, str):
                choice = choice.filter(has_text=part)
            else:
                choice = choice.filter(has=self.page.locator(".label-name", has_text=part))
        for tried in range(TRIES):
            self.page.keyboard.press(key)
            try:
                field.fill(text, timeout=PATIENCE_MS / TRIES)
                if row:
                    choice.first.click(timeout=PATIENCE_MS / TRIES)
                else:
                    field.press("Enter", timeout=PATIENCE_MS / TRIES)
                    field.wait_for(state="hidden", timeout=PATIENCE_MS / TRIES)
                return
            except TimeoutError:
                if tried == TRIES - 1:
                    raise
                if not field.is_visible():
                    self.page.locator(".part.statusbar").click()  # gives the keys back to the window

    def notice(self, text: str) -> Locator:
        """The message with `text`, once it shows."""
        notice = self.page.locator(".notification-list-item", has_text=text)
        notice.wait_for()
        return notice

    def picture(self, name: str) -> Path:
        """Leave a PNG of the window in tests/output/."""
        OUTPUT.mkdir(exist_ok=True)
        path = OUTPUT / f"{name}.png"
        self.page.screenshot(path=path, animations="disabled")
        return path

    def close(self) -> None:
        self.page.close()
