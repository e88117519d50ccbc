"""Start programs in isolation: nothing in the current folder runs in their place, or is imported by them.

A shell's `PATH=$PATH:`, Python's own `sys.path[0]` and an empty entry of PYTHONPATH all mean the current folder, which
may contain other people's files: a program found there, or one that imports from there, would run their code. All
programs are started through this module. Standard library only.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio.subprocess import Process

#: Variables with lists of folders in which programs look for code.
_LISTS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PERL5LIB")
#: On Windows: no console window appears, and Ctrl-C in a terminal reaches this process alone.
QUIETLY: dict[str, Any] = {}
if sys.platform == "win32":
    QUIETLY["creationflags"] = subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP
#: Keeps the folder of a script, and the current one, out of `sys.path` of Python 3.11 and newer, like -P, which older
#: ones reject. `worker/boot.py` removes it again, so that user code sees the original environment.
_SAFE_PATH, _OURS = "PYTHONSAFEPATH", "mase-server"
#: The first statements of a program for any Python: older ones have that folder first in `sys.path`.
_WITHOUT_FOLDER = "import sys\nif not getattr(sys.flags, 'safe_path', False):\n    del sys.path[0]\n"


@dataclass(frozen=True, slots=True)
class Command:
    """A program to start. Only this module's functions create commands, because they isolate them.

    words: the first one is the absolute path of the program.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str]

    def without(self, variables: Container[str]) -> Command:
        """The same command without these environment variables."""
        kept = {name: value for name, value in self.environment.items() if name not in variables}
        return Command(self.words, kept)

    def run(self, **options: Any) -> subprocess.CompletedProcess[Any]:
        """Run it and wait for its end; options as of `subprocess.run`. OSError if it does not start."""
        nothing = subprocess.DEVNULL
        done: subprocess.CompletedProcess[Any] = subprocess.run(
            self.words, env=self.environment, check=False, stdin=nothing, **QUIETLY, **options
        )
        return done

    def start(self, *, more: Mapping[str, str], **options: Any) -> subprocess.Popen[bytes]:
        """Start it. more: additional environment variables.  options: as of `subprocess.Popen`. OSError."""
        return subprocess.Popen(self.words, env={**self.environment, **more}, **QUIETLY, **options)

    async def start_async(self, *, more: Mapping[str, str] | None = None, **options: Any) -> Process:
        """Start it on the event loop; options as of `asyncio.create_subprocess_exec`. OSError."""
        import asyncio  # imported late, because a command that asks a daemon must be fast

        environment = {**self.environment, **(more or {})}
        return await asyncio.create_subprocess_exec(*self.words, **{**QUIETLY, **options, "env": environment})


def own_code(code: str) -> Command:
    """The server's own interpreter with our own program text, without the packages that the user added to it."""
    return Command((sys.executable, "-I", "-c", code), _isolated_environment())


def own_server(*arguments: str) -> Command:
    """This project's command line, in this process's interpreter, with its packages."""
    return Command((sys.executable, "-P", "-m", "mase_server", *arguments), _isolated_environment())


def person_code(interpreter: str, code: str, *arguments: str) -> Command:
    """A user's interpreter, of any version, with our own program text. OSError for a relative path."""
    return _of_a_person(interpreter, "", "-c", _WITHOUT_FOLDER + code, *arguments)


def person_script(interpreter: str, script: Path, folder: str, *arguments: str) -> Command:
    """A user's interpreter, of any version, with a script that begins like `worker/boot.py`. OSError.

    folder: a trusted one, so entries of PYTHONPATH that are relative to it stay.
    """
    return _of_a_person(interpreter, folder, str(script), *arguments)


def command_for_program(name: str | Path, *arguments: str | Path) -> Command:
    """Any other program, by its path or name; FileNotFoundError if there is no such program."""
    found = str(name) if Path(name).is_absolute() else find_program(str(name))
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "there is no such program on PATH", str(name))
    return Command((found, *map(str, arguments)), _isolated_environment())


def find_program(name: str, *more: str, path: str | None = None) -> str | None:
    """The absolute path of a program: a name is searched in the absolute folders of PATH, and then in `more`.

    path: another PATH than this process's.  A name with a slash, such as "./tools/verilator", is the user's own
    choice, and is used as it is. None if there is no such program.
    """
    if Path(name).parent != Path():
        return shutil.which(str(Path(name).absolute()))
    listed = os.environ.get("PATH", os.defpath) if path is None else path
    places = (Path(folder, name) for folder in (*listed.split(os.pathsep), *more))
    return next((found for place in places if place.is_absolute() and (found := shutil.which(str(place)))), None)


def isolate_libraries() -> None:
    """Isolate programs that libraries start, too, such as `uname` and a cluster's processes: set our environment."""
    isolated = _isolated_environment()
    for variable in set(_LISTS) - {"PYTHONPATH"}:
        os.environ.pop(variable, None)
        if variable in isolated:
            os.environ[variable] = isolated[variable]
    os.environ.setdefault(_SAFE_PATH, _OURS)


def _of_a_person(interpreter: str, folder: str, *arguments: str) -> Command:
    if not Path(interpreter).is_absolute():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), interpreter)
    return Command((interpreter, *arguments), {_SAFE_PATH: _OURS, **_isolated_environment(folder)})


def _isolated_environment(folder: str = "") -> dict[str, str]:
    """This process's environment, with its lists freed of entries that depend on the current folder.

    folder: relative entries of PYTHONPATH inside it are kept, as absolute paths.
    """
    made = {key: value for key, value in os.environ.items() if key not in _LISTS}
    for variable in _LISTS:
        kept = folder if variable == "PYTHONPATH" else ""
        if entries := os.pathsep.join(_absolute_entries(os.environ.get(variable, ""), kept)):
            made[variable] = entries  # an empty list would also mean the current folder
    return made


def _absolute_entries(entries: str, folder: str) -> Iterator[str]:
    for entry in filter(None, entries.split(os.pathsep)):
        path = Path(entry)
        if path.is_absolute():
            yield entry
        elif folder and (found := path.resolve()).is_relative_to(folder):
            yield str(found)
