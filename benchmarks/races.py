"""Does what an editor shows belong to its text, however typing, saving, closing, opening and traces interleave?

Each round has a folder of two files that import each other. Edits, saves, undos, closings and openings come at random
moments, most of them while a trace runs. Then the keys pause, and the hints, problems and lenses of each document must
become those of a server that never saw anything of the round but its last texts: it gets the saved ones, then the
unsaved ones, in a folder of its own. A document that does not become so within `PATIENCE` seconds is a failure; so is a
hint, while keys are pressed, on a line that never had it, and a status of an older generation after a newer one.

A round is the same for the same seed, apart from the moments at which the server's work ends.

Usage: python benchmarks/races.py [ROUNDS] [--seed 1] [--steps 12]
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import hashlib
import json
import random
import re
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from editor import END_STATES, Editor, label
from figures import tell
from lsprotocol import types as lsp

#: Seconds after which a document must show what a new server shows.
PATIENCE = 30.0
#: Seconds without a word from a server after which it has settled.
SILENCE = 0.7
#: Of a lens: seconds, and a choice between models, which is told in few words where a lens with its seconds is long.
_SECONDS = re.compile(r" · traced in .*|^(shown for: .*|\d+ models)(?= · pick one$)")

PARTS = """\
import torch
from torch import nn

WIDTH = 8


class Block(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.fc = nn.Linear(width, 12)

    def forward(self, x):
        y = self.fc(x)
        y = torch.relu(y)
        return y


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        from net import Head

        self.block = Block()
        self.head = Head(12)

    def forward(self, x):
        h = self.block(x)
        h = self.head(h)
        return h


if __name__ == "__main__":
    Whole()(torch.randn(5, WIDTH))
"""
NET = """\
import torch
from parts import Block
from torch import nn


class Head(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.out = nn.Linear(width, 3)

    def forward(self, h):
        z = self.out(h)
        z = z.softmax(-1)
        return z


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block(8)
        self.head = Head(12)

    def forward(self, x):
        a = self.block(x)
        b = self.head(a)
        c = torch.cat([a, b], 1)
        return c


Net()(torch.randn(4, 8))
"""
FILES = {"parts.py": PARTS, "net.py": NET}
#: What is put below a line `name = ...` of a forward: most run, some fail; all can be traced while they are typed.
STATEMENTS = (
    "{name} = {name}[:, :{size}]", "{name} = {name} * {size}", "{name} = torch.cat([{name}, {name}[:, :{size}]], 1)",
    "seen{size} = {name}.flatten()", "{name} = {name}.view(-1, 1{size}3)", "{name}.missing{size}",
    "seen{size} = [{name}.shape for _ in range({size})]", "# a note {size}",
)  # fmt: skip


def edit(rng: random.Random, text: str) -> str:
    """A text with one change within a function."""
    lines = text.split("\n")
    kind = rng.randrange(4)
    if kind == 0:
        rows = [row for row, line in enumerate(lines) if "nn.Linear(" in line]
        row = rng.choice(rows) if rows else 0
        head, _, _ = lines[row].rpartition(",")
        if rows and head:
            lines[row] = f"{head}, {rng.choice((3, 8, 12, rng.randrange(2, 20)))})"
        return "\n".join(lines)
    rows = [
        row
        for row, line in enumerate(lines)
        if line.startswith("        ") and " = " in line and "self." not in line.split(" = ")[0]
    ]
    if not rows:
        return text
    row = rng.choice(rows)
    name = lines[row].split()[0]
    if kind == 1 and len(rows) > 3:
        del lines[row]
    else:
        made = rng.choice(STATEMENTS).format(name=name, size=rng.randrange(2, 9))
        lines.insert(row + 1, f"        {made}")
    return "\n".join(lines)


def break_text(rng: random.Random, text: str) -> str:
    """A text that does not parse: somebody is in the middle of a word."""
    lines = text.split("\n")
    rows = [row for row, line in enumerate(lines) if line.startswith("        ") and "(" in line]
    row = rng.choice(rows) if rows else 0
    lines[row] = lines[row][: lines[row].rfind("(") + 1]
    return "\n".join(lines)


def change_module(rng: random.Random, text: str) -> str:
    """A text whose own statements differ, so that it waits for its save."""
    return text.replace("import torch\n", f"import torch\nSIZE_{rng.randrange(9)} = len('abc')\n", 1)


@dataclass(slots=True)
class File:
    """A file of a round: on the disk, and in the editor."""

    path: Path
    disk: str
    text: str
    open: bool = False
    #: All lines that the editor ever had.
    lines: set[str] = field(default_factory=set)


class Round:
    """One round in one editor."""

    def __init__(self, editor: Editor, folder: Path, seed: str) -> None:
        self.editor, self.rng, self.folder = editor, random.Random(seed), folder
        folder.mkdir()
        self.files = [File(folder / name, text, text) for name, text in FILES.items()]
        self.journal: list[str] = []
        self.faults: list[str] = []
        for file in self.files:
            file.path.write_text(file.disk, encoding="utf-8")

    async def play(self, steps: int) -> None:
        """Take the steps, then let each text be one that is traced."""
        for file in self.files:
            self.open(file)
        for _ in range(steps):
            await self.step()
        for file in self.files:
            if not file.open:
                self.open(file)
            text = end_text(self.rng, file.path.name)
            if outside(file.disk) != outside(text) or self.rng.random() < 0.4:
                self.type(file, text, "settle")
                self.save(file)
                text = end_text(self.rng, file.path.name)
            if self.rng.random() < 0.8:
                self.type(file, text, "settle")
            else:
                self.type(file, file.disk, "undo")
            if not runs(file):
                self.type(file, text, "settle")

    async def step(self) -> None:
        """Something happens in one of the documents, and a moment passes."""
        rng, file = self.rng, self.rng.choice(self.files)
        if not file.open:
            self.open(file)
        elif (drawn := rng.random()) < 0.45:
            for _ in range(rng.choice((1, 1, 2, 4))):
                self.type(file, edit(rng, file.text if parses(file.text) else file.disk), "type")
                await asyncio.sleep(rng.choice((0, 0, 0.03)))
        elif drawn < 0.53:
            self.type(file, break_text(rng, file.text), "break")
        elif drawn < 0.58:
            self.type(file, change_module(rng, file.text), "module")
        elif drawn < 0.7:
            self.type(file, file.disk, "undo")
        elif drawn < 0.85:
            if parses(file.text):
                self.save(file)
                if rng.random() < 0.4:
                    self.type(file, edit(rng, file.text), "type after save")
        elif drawn < 0.92:
            self.close(file)
        else:
            hints = await self.hints(file)
            self.journal.append(f"hints {file.path.name}: {len(hints)}")
        await asyncio.sleep(rng.choice((0, 0, 0.02, 0.1, 0.15, 0.3, 0.6)))

    def open(self, file: File) -> None:
        """Open a document with what is on the disk."""
        self.journal.append(f"open {file.path.name}")
        file.open, file.text = True, file.disk
        self.editor.open(file.path)

    def close(self, file: File) -> None:
        """Close a document, and lose what was not saved."""
        self.journal.append(f"close {file.path.name}")
        file.open = False
        self.editor.close(file.path)

    def type(self, file: File, text: str, why: str) -> None:
        """Let a document have this text."""
        if text == file.text:
            return
        self.journal.append(f"{why} {file.path.name} {digest(text)[:8]}")
        file.text = text
        self.editor.change(file.path, text)

    def save(self, file: File) -> None:
        """Save a document."""
        self.journal.append(f"save {file.path.name} {digest(file.text)[:8]}")
        file.disk = file.text
        file.path.write_text(file.text, encoding="utf-8")
        self.editor.client.text_document_did_save(
            lsp.DidSaveTextDocumentParams(lsp.TextDocumentIdentifier(file.path.as_uri()))
        )

    async def hints(self, file: File) -> list[Any]:
        """The hints of a document, as they stand in it now."""
        return list(await self.editor.hints(file.path))

    async def shown(self) -> dict[str, Any]:
        """All that is shown in the open documents, in a form that another folder can be compared in."""
        found: dict[str, Any] = {}
        for file in self.files:
            hints = [(each.position.line, each.position.character, label(each)) for each in await self.hints(file)]
            lenses = [
                (each.range.start.line, _SECONDS.sub("", each.command.title) if each.command else "")
                for each in await self.editor.lenses(file.path)
            ]
            problems = [
                (each.range.start.line, each.code, each.message)
                for each in self.editor.diagnostics.get(file.path.as_uri(), ())
            ]
            found[file.path.name] = {
                "text": digest(file.text), "hints": sorted(hints), "lenses": sorted(lenses),
                "problems": sorted(problems, key=str),
            }  # fmt: skip
        return json.loads(json.dumps(found).replace(str(self.folder), "FOLDER"))

    async def settled(self) -> None:
        """Return once each document's text was traced, and the server has said nothing for a while."""
        uris = {file.path.as_uri(): digest(file.text) for file in self.files if file.open}
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            last = {status.uri: status for status in self.editor.statuses}
            heard = len(self.editor.statuses)
            await asyncio.sleep(SILENCE)
            ended = all(
                uri in last and last[uri].sha256 == sha and last[uri].state in END_STATES - {"superseded"}
                for uri, sha in uris.items()
            )
            if ended and heard == len(self.editor.statuses):
                return

    def check_statuses(self) -> None:
        """An older generation of a file never comes after a newer one."""
        newest: dict[str, int] = {}
        for status in self.editor.statuses:
            if str(self.folder) in status.uri and status.state == "ready":
                if status.generation < newest.get(status.uri, 0):
                    self.faults.append(f"generation {status.generation} of {status.uri} is ready after a newer one")
                newest[status.uri] = status.generation


def end_text(rng: random.Random, name: str) -> str:
    """A text that runs, or fails in the forward that is last: one that shows nothing would keep the last good trace."""
    text = FILES[name]
    for size in range(rng.randrange(4)):
        at = rng.choice([each.start() for each in re.finditer(r"        return ", text)])
        name = text[at:].split()[1]
        text = f"{text[:at]}        {name} = {name} * {size + rng.randrange(9)}\n{text[at:]}"
    if name == "parts.py" and rng.random() < 0.3:
        text = text.replace("        return h", "        h.missing\n        return h")
    return text


def runs(file: File) -> bool:
    """Is a text one of `end_text`?"""
    return (
        "\n".join(line for line in file.text.split("\n") if " * " not in line and "missing" not in line)
        == FILES[file.path.name]
    )


def outside(text: str) -> str:
    """A text without the statements of its functions."""
    tree = ast.parse(text)
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef):
            each.body = []
    return ast.dump(tree)


def parses(text: str) -> bool:
    """Is it Python?"""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def digest(text: str) -> str:
    """As the server tells texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()


async def expect(editor: Editor, folder: Path, files: list[File]) -> dict[str, Any]:
    """A server that has only the last texts of a round shows this."""
    alone = Round(editor, folder, "")
    for file, told in zip(alone.files, files, strict=True):
        file.disk = file.text = told.disk
        file.path.write_text(told.disk, encoding="utf-8")
    for file in alone.files:
        alone.open(file)
    await alone.settled()
    for file, told in zip(alone.files, files, strict=True):
        alone.type(file, told.text, "type")
    await alone.settled()
    shown = await alone.shown()
    for file in alone.files:
        alone.close(file)
    return shown


async def play_rounds(rounds: int, seed: int, steps: int) -> int:
    """Play, print, and return how many rounds failed."""
    failed = 0
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as other:
        home, apart = Path(made).resolve(), Path(other).resolve()
        async with Editor(home) as editor, Editor(apart) as fresh:
            for number in range(rounds):
                begun = time.monotonic()
                one = Round(editor, home / f"r{number}", f"{seed} {number}")
                await one.play(steps)
                expected, _ = await asyncio.gather(expect(fresh, apart / f"r{number}", one.files), one.settled())
                end = time.monotonic() + PATIENCE
                while (shown := await one.shown()) != expected and time.monotonic() < end:
                    await asyncio.sleep(SILENCE)
                one.check_statuses()
                if shown != expected or one.faults:
                    failed += 1
                    tell_failure(number, seed, one, shown, expected)
                for file in one.files:
                    one.close(file)
                editor.statuses.clear()
                fresh.statuses.clear()
                print(f"{number + 1} rounds, {failed} failed, {time.monotonic() - begun:.1f} s", flush=True)
    return failed


def tell_failure(number: int, seed: int, one: Round, shown: dict[str, Any], expected: dict[str, Any]) -> None:
    """Print the journal of a round and what differs."""
    print(f"FAILED round {number} of seed {seed}:", *one.journal, *one.faults, sep="\n  ")
    for name, told in expected.items():
        for key, value in told.items():
            if (got := shown[name][key]) != value:
                more, lacks = ([each for each in a if each not in b] for a, b in ((got, value), (value, got)))
                print(f"  {name} {key}: shows {more}, lacks {lacks}")
    for file in one.files:
        print(f"--- {file.path.name}, on the disk {digest(file.disk)[:8]}, in the editor {digest(file.text)[:8]}")
        print(file.text)
    for status in one.editor.statuses:
        print("  ", Path(status.uri).name, status.state, status.generation, status.sha256[:8])


def main() -> int:
    """Play the rounds; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", nargs="?", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=12)
    given = parser.parse_args()
    failed = asyncio.run(play_rounds(given.rounds, given.seed, given.steps))
    tell("races/failures", failed)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
