"""`make demo`: the examples as an editor shows them, in the terminal.

Starts the real server over stdio, opens every file of `examples/` in it, and prints each source with its hints, one
hover card, one error with its fix, and the time from a save to fresh hints.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from editor import Editor, label
from lsprotocol import types as lsp
from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from saves import SAVES

EXAMPLES = Path(__file__).parents[1] / "examples"
HINT = "italic #7aa2f7 on #1f2335"
BUG = ("self.fc = nn.Linear(512, num_classes)", "self.fc = nn.Linear(256, num_classes)")
HOVERED = ("gpt.py", "att = (q @ k")
CONSOLE = Console(width=130, highlight=False)


def annotated(source: str, hints: Sequence[lsp.InlayHint]) -> Text:
    """The source, coloured, with the hints in their places."""
    lines = Syntax("", "python", theme="ansi_dark").highlight(source).split("\n", allow_blank=True)
    for hint in sorted(hints, key=lambda hint: (hint.position.line, hint.position.character), reverse=True):
        line = lines[hint.position.line]
        column = hint.position.character
        left, right = line[:column], line[column:]
        padding = (" " if hint.padding_left else "", " " if hint.padding_right else "")
        lines[hint.position.line] = Text.assemble(left, padding[0], (label(hint), HINT), padding[1], right)
    return Text("\n").join(lines)


async def show_file(editor: Editor, path: Path) -> None:
    """Print one file with its hints, under what its code lens says."""
    status = await editor.settled(path)
    hints, lenses = await editor.hints(path), await editor.lenses(path)
    CONSOLE.rule(f"[bold]{path.name}[/]  {status.state}", align="left")
    for lens in lenses:
        if lens.command is not None:
            CONSOLE.print(f"  {lens.command.title}", style="dim", markup=False)
    CONSOLE.print(annotated(path.read_text(encoding="utf-8"), hints))


async def show_hover(editor: Editor, folder: Path) -> None:
    """Print one hover card, whole."""
    name, text = HOVERED
    path = folder / name
    lines = path.read_text(encoding="utf-8").split("\n")
    line = next(number for number, content in enumerate(lines) if text in content)
    card = await editor.hover(path, line, lines[line].index(text))
    title = f"hover: {text.split()[0]}, {name} line {line + 1}"
    CONSOLE.print(Panel(Markdown(card or "no card"), title=title, title_align="left", width=110))


async def show_error(editor: Editor, folder: Path) -> None:
    """Seed a wrong layer width into ResNet-18, print what the editor shows, and apply the fix."""
    path = folder / "resnet.py"
    good = path.read_text(encoding="utf-8")
    editor.save(path, good.replace(*BUG))
    await editor.settled(path)
    CONSOLE.rule(f"[bold]an error[/]: {BUG[0]} became {BUG[1]}", align="left")
    for diagnostic in editor.diagnostics.get(path.as_uri(), ()):
        show_diagnostic(diagnostic)
        for action in await editor.fixes(path, diagnostic):
            CONSOLE.print(f"    fix: {action.title}", style="green", markup=False)
            if action.is_preferred:
                editor.save(path, applied(path.read_text(encoding="utf-8"), action))
    status = await editor.settled(path)
    left = len(editor.diagnostics.get(path.as_uri(), ()))
    CONSOLE.print(f"  after the fix: {status.state}, {left} problems\n", markup=False)


def show_diagnostic(diagnostic: lsp.Diagnostic) -> None:
    """Print one diagnostic and the places that explain it."""
    CONSOLE.print(f"  line {diagnostic.range.start.line + 1}: {diagnostic.message}", style="red", markup=False)
    for related in diagnostic.related_information or ():
        where = f"{Path(related.location.uri).name}:{related.location.range.start.line + 1}"
        CONSOLE.print(f"    {where}: {related.message}", style="dim", markup=False)


def applied(text: str, action: lsp.CodeAction) -> str:
    """The text after the edits of a quick fix; last edit first, so that positions hold."""
    lines = text.split("\n")
    for edit in sorted(edits_of(action), key=lambda edit: edit.range.start.line, reverse=True):
        start, end = edit.range.start, edit.range.end
        before, after = lines[start.line][: start.character], lines[end.line][end.character :]
        lines[start.line : end.line + 1] = [before + edit.new_text + after]
    return "\n".join(lines)


def edits_of(action: lsp.CodeAction) -> list[Any]:
    """The text edits of an action, in whichever of the two forms it has them."""
    changes = action.edit.document_changes if action.edit else None
    if changes:
        return [edit for change in changes if isinstance(change, lsp.TextDocumentEdit) for edit in change.edits]
    return [edit for edits in (action.edit.changes or {}).values() for edit in edits] if action.edit else []


async def save_times(editor: Editor, folder: Path) -> Table:
    """Change each file three times and time each save up to its fresh hints."""
    table = Table("file", "the edit", "save to fresh hints", title="from a save to fresh hints", title_justify="left")
    for save in SAVES:
        path = folder / save.file
        seconds = [await editor.save_and_settle(path, save.text(n), save.fresh(n)) for n in range(3)]
        table.add_row(save.file, save.edit(2), f"{sorted(seconds)[1] * 1000:.0f} ms")
    return table


async def demo(folder: Path) -> None:
    """The whole of it, on a copy of the examples."""
    started = perf_counter()
    async with Editor(folder) as editor:
        CONSOLE.print(f"server started in {editor.start_seconds:.2f} s")
        paths = sorted(folder.glob("*.py"))
        for path in paths:
            editor.open(path)
        for path in paths:
            await show_file(editor, path)
        await show_hover(editor, folder)
        await show_error(editor, folder)
        CONSOLE.print(await save_times(editor, folder))
    CONSOLE.print(f"{len(paths)} files in {perf_counter() - started:.1f} s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="mase-demo-") as scratch:
        copy = Path(scratch).resolve() / "examples"
        shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("__pycache__"))
        asyncio.run(demo(copy))
