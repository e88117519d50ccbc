"""A real server with two good files open, a third that has a fault, and what has to hold after each.

Nothing here believes the server: processes are read from /proc, shapes are those that a person would work out.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest
from editing import Editor
from family import MARK, Process, family, until
from good_net import by_name, good, seen

SERVER = (sys.executable, "-m", "mase_server", "lsp")
WIDTHS = {"one.py": 16, "two.py": 24}


class Stand:
    """An editor, its server, two good files that nobody touches, and all processes that this brings with it.

    environment: more variables for the server.  options: more initialization options.  can: the editor's capabilities.
    command: what starts the server.
    """

    def __init__(self, folder: Path, *, environment=None, options=None, can=None, command=SERVER):
        self.tmp, self.folder = folder, folder / "workspace"
        self.folder.mkdir()
        self.mark = uuid.uuid4().hex
        self.command = command
        self.environment = {
            MARK: self.mark,
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_STATE_HOME": str(folder / "state"),
            "MASE_RUNTIME_DIR": str(folder / "run"),
            "TMPDIR": str(folder / "tmp"),
            **(environment or {}),
        }
        Path(self.environment["TMPDIR"]).mkdir(exist_ok=True)
        told = {"trusted": True, "interpreter": sys.executable, **(options or {})}
        self.editor = Editor(self.folder, options=told, can=can)
        self.texts: dict[Path, str] = {}

    async def start(self):
        """Start the server, and have both good files traced."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            await self.editor.start(*self.command)
        for name, width in WIDTHS.items():
            state = await self.open(name, good(width))
            assert state == "ready", (state, await self.problems(name))
        return self

    async def stop(self):
        """End the session in order; nothing may be left of it. What is left is killed, so that only this test fails."""
        try:
            if self.editor.process.returncode is None:
                await self.editor.stop()
            await self.all_gone()
        finally:
            for process in self.processes():
                process.kill()

    async def all_gone(self):
        """Wait until none of its processes runs."""
        await until(lambda: not self.processes())

    # What a person does

    async def open(self, name, text=None):
        """Open a file, written first where its text is given; its end state."""
        path = self.folder / name
        self.editor.open(path, text)
        self.texts[path] = path.read_bytes().decode() if text is None else text
        return await self.editor.end_state(path)

    async def save(self, name, text):
        """Type and save another text; its end state. A trace of an earlier change that it overtakes is passed over."""
        self.send(name, text)
        while (state := await self.editor.end_state(self.folder / name)) == "superseded":
            pass
        return state

    def send(self, name, text):
        """Type and save another text, and wait for nothing."""
        path = self.folder / name
        self.editor.retype(path, self.texts[path], text)
        self.editor.save(path, text)
        self.texts[path] = text

    def close(self, name):
        """Close a file."""
        self.editor.close(self.folder / name)

    # What a person sees

    async def shown(self, name):
        """{name: shape} of a file as the editor shows it."""
        path = self.folder / name
        return by_name(await self.editor.hints(path), self.texts[path])

    async def problems(self, name):
        """The diagnostics of a file."""
        return (await self.editor.diagnostics(self.folder / name)).items

    async def problem(self, name):
        """(code, message, text of its first line) of the only diagnostic of a file."""
        [one] = await self.problems(name)
        line = self.texts[self.folder / name].split("\n")[one.range.start.line]
        return one.code, one.message, line.strip()

    async def is_stale(self, name):
        """Does the lens say that what is shown is of an older text?"""
        lenses = await self.editor.lenses(self.folder / name)
        return any("stale" in title for titles in lenses.values() for title in titles)

    async def others_answer(self):
        """Do both other files show what they showed, in hints and in a hover, without a new trace or a problem?"""
        for name, width in WIDTHS.items():
            path = self.folder / name
            line = next(at for at, text in enumerate(self.texts[path].split("\n")) if "h = self.a(x)" in text)
            hover = await self.editor.hover(path, line, 8)
            assert f"f32[B, {width}]" in hover.contents.value
            assert await self.shown(name) == seen(width)
            assert not await self.problems(name)
            told = [one for method, one in self.editor.unread if method == "mase/status" and one.uri == path.as_uri()]
            assert not [one for one in told if one.generation > 1], f"{name} was traced again"

    # What the machine sees

    @property
    def server(self) -> int:
        """The server's process."""
        return self.editor.process.pid

    def processes(self) -> frozenset[Process]:
        """Everything that runs because this server was started."""
        return self.family(self.server)

    def family(self, pid: int) -> frozenset[Process]:
        """What bears this stand's mark, or descends from this process."""
        return family(self.mark, pid)

    def warm_parents(self) -> list[Process]:
        """The processes that trace children are forked from."""
        return [each for each in self.processes() if each.parent == self.server and "--role parent" in each.command]

    def children(self) -> frozenset[Process]:
        """Trace children, and whatever else hangs below a warm parent, but for a child that waits for its trace."""
        parents = {each.pid for each in self.warm_parents()}
        found = (each for each in self.processes() if not each.waits)
        return frozenset(each for each in found if each.pid not in {self.server, *parents})

    async def hold_still(self):
        """Wait until the next child waits for its trace."""
        await until(lambda: any(each.waits for each in self.processes()))

    async def child_of(self, name) -> int:
        """The process that holds the graphs of a file, as the server tells."""
        told = await self.editor.request("mase/workers", {})
        return next(one["pid"] for one in told if one["path"] == str(self.folder / name))

    async def only_new_child_is_of(self, name, before):
        """Wait until, of all that runs and did not before, only the process of this file is left."""
        pid = await self.child_of(name)
        await until(lambda: {each.pid for each in self.children() - before} <= {pid})

    def scratch(self) -> list[str]:
        """The temporary folders that the server has made and not removed."""
        return sorted(each.name for each in Path(self.environment["TMPDIR"]).iterdir())
