"""Every program that is started is started here, so that nothing of the current folder runs in its place, or inside it.

A shell's `PATH=$PATH:`, Python's own `sys.path[0]` and an empty entry of PYTHONPATH all mean the folder that a person
happens to be in. What lies there may be anybody's: a program that is found there, or that imports from there, runs
their code. Standard library only.
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

#: Variables that are lists of folders in which programs look for code.
_LISTS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PERL5LIB")
#: Keeps the folder of a script, and the current one, out of `sys.path` of Python 3.11 and newer, as -P does, which an
#: older one refuses. `worker/boot.py` takes it away again, so that a person's code sees the environment as it was.
_SAFE_PATH, _OURS = "PYTHONSAFEPATH", "mase-server"
#: The first statements of a program that any Python may run: an older one has that folder first in `sys.path`.
_WITHOUT_FOLDER = "import sys\nif not getattr(sys.flags, 'safe_path', False):\n    del sys.path[0]\n"


@dataclass(frozen=True, slots=True)
class Command:
    """What is started: made by the functions of this module alone, which isolate it.

    words: the first is the absolute path of the program.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str]

    def without(self, variables: Container[str]) -> Command:
        """The same command, which does not get these environment variables."""
        kept = {name: value for name, value in self.environment.items() if name not in variables}
        return Command(self.words, kept)

    def run(self, **options: Any) -> subprocess.CompletedProcess[Any]:
        """Wait for its end; options as of `subprocess.run`. OSError where it does not start."""
        nothing = subprocess.DEVNULL
        done: subprocess.CompletedProcess[Any] = subprocess.run(
            self.words, env=self.environment, check=False, stdin=nothing, **options
        )
        return done

    def start(self, *, more: Mapping[str, str], **options: Any) -> subprocess.Popen[bytes]:
        """Start it. more: further environment variables.  options: as of `subprocess.Popen`. OSError."""
        return subprocess.Popen(self.words, env={**self.environment, **more}, **options)

    async def start_async(self, *, more: Mapping[str, str] | None = None, **options: Any) -> Process:
        """The same for the event loop; options as of `asyncio.create_subprocess_exec`. OSError."""
        import asyncio  # not before it is needed: a command that asks a daemon is over sooner

        return await asyncio.create_subprocess_exec(*self.words, env={**self.environment, **(more or {})}, **options)


def own_code(code: str) -> Command:
    """The server's own interpreter with a program of our own, without the packages that the user added to it."""
    return Command((sys.executable, "-I", "-c", code), _environment())


def own_server(*arguments: str) -> Command:
    """This project's command line, by the interpreter that runs this, with the packages that it has."""
    return Command((sys.executable, "-P", "-m", "mase_server", *arguments), _environment())


def person_code(interpreter: str, code: str, *arguments: str) -> Command:
    """A person's interpreter, of whatever version, with a program of our own. OSError for a relative path."""
    return _of_a_person(interpreter, "", "-c", _WITHOUT_FOLDER + code, *arguments)


def person_script(interpreter: str, script: Path, folder: str, *arguments: str) -> Command:
    """A person's interpreter, of whatever version, with a script that begins as `worker/boot.py` does. OSError.

    folder: is trusted, so what PYTHONPATH names in it relative to the current folder stays.
    """
    return _of_a_person(interpreter, folder, str(script), *arguments)


def program(name: str | Path, *arguments: str | Path) -> Command:
    """Any other program, by its path or its name; FileNotFoundError where there is none of that name."""
    found = str(name) if Path(name).is_absolute() else find_program(str(name))
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "there is no such program on PATH", str(name))
    return Command((found, *map(str, arguments)), _environment())


def find_program(name: str, *more: str, path: str | None = None) -> str | None:
    """The absolute path of a program: a name is looked for in the absolute folders of PATH, and then in `more`.

    path: another PATH than that of this process.  A name with a slash, such as "./tools/verilator", was written by a
    person, and is taken as it is. None where there is no such program.
    """
    if Path(name).parent != Path():
        return shutil.which(str(Path(name).absolute()))
    listed = os.environ.get("PATH", os.defpath) if path is None else path
    places = (Path(folder, name) for folder in (*listed.split(os.pathsep), *more))
    return next((found for place in places if place.is_absolute() and (found := shutil.which(str(place)))), None)


def isolate_libraries() -> None:
    """Isolate what libraries start, too, such as `uname` and the processes of a cluster: they get our environment."""
    isolated = _environment()
    for variable in set(_LISTS) - {"PYTHONPATH"}:
        os.environ.pop(variable, None)
        if variable in isolated:
            os.environ[variable] = isolated[variable]
    os.environ.setdefault(_SAFE_PATH, _OURS)


def _of_a_person(interpreter: str, folder: str, *arguments: str) -> Command:
    if not Path(interpreter).is_absolute():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), interpreter)
    return Command((interpreter, *arguments), {_SAFE_PATH: _OURS, **_environment(folder)})


def _environment(folder: str = "") -> dict[str, str]:
    """This process's environment, without entries of lists that depend on the current folder.

    folder: relative entries of PYTHONPATH that lie in it are kept, as absolute paths.
    """
    made = {key: value for key, value in os.environ.items() if key not in _LISTS}
    for variable in _LISTS:
        kept = folder if variable == "PYTHONPATH" else ""
        if entries := os.pathsep.join(_absolute(os.environ.get(variable, ""), kept)):
            made[variable] = entries  # an empty list would mean the current folder, too
    return made


def _absolute(entries: str, folder: str) -> Iterator[str]:
    for entry in filter(None, entries.split(os.pathsep)):
        path = Path(entry)
        if path.is_absolute():
            yield entry
        elif folder and (found := path.resolve()).is_relative_to(folder):
            yield str(found)
