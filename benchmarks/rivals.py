"""Other tools of the same kind, each as it is installed and asked: what one shows, what it finds, and its command.

They live in an environment of their own, made once, never in the project's; torch is seen there through a path file.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from time import perf_counter

from editor import Editor
from plain_lsp import Server

PACKAGES = ("pyrefly", "torchshapeflow", "torchtyc", "torchinfo", "torchlens", "netron")
#: Installed alone: what they ask for is another torch, and gigabytes.
ALONE = ("pyrefly-torch-stubs", "pyrefly-shape-extensions")
SECONDS = 120.0
#: A place in a file: line from 1, column from 0, in code points.
Place = tuple[int, int]
Places = Mapping[Path, Sequence[Place]]
#: What a hover says at a place of a file.
Answers = dict[tuple[Path, Place], str]
#: Lines of each file, from 1, where a tool reports an error, and those files that it could not look at.
Found = dict[str, set[int]]


@dataclass(frozen=True, slots=True)
class Environment:
    """Where the other tools are."""

    folder: Path

    @property
    def packages(self) -> Path:
        """Where its packages are."""
        return next(self.folder.glob("lib/*/site-packages"))

    @property
    def python(self) -> str:
        """The interpreter that has them."""
        return str(self.folder / "bin" / "python")

    def tool(self, name: str) -> str:
        """The path of a command."""
        return str(self.folder / "bin" / name)

    def versions(self) -> dict[str, str]:
        """What is installed, by name."""
        found = {one.metadata["Name"].lower(): one for one in distributions(path=[str(self.packages)])}
        return {name: found[name].version for name in (*PACKAGES, *ALONE) if name in found}


def environment(folder: Path) -> Environment:
    """Make the environment, or take the one that is there; what cannot be installed is left out, and printed.

    No part of the path may begin with a dot: pyrefly does not look for stubs there, and would be told to know nothing.
    """
    made = Environment(folder)
    if not Path(made.python).exists():
        venv.create(folder, with_pip=True)
        # First, so that pip counts the project's torch as installed, and gets no other with gigabytes of libraries.
        (made.packages / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
        for options, names in (((), PACKAGES), (("--no-deps",), ALONE)):
            for name in names:
                install(made, *options, name)
    return made


def install(made: Environment, *arguments: str) -> None:
    """One package."""
    done = subprocess.run([made.python, "-m", "pip", "install", "--quiet", *arguments], capture_output=True, text=True)
    if done.returncode:
        print(f"{arguments[-1]} cannot be installed here: {done.stderr.strip().splitlines()[-1]}")


# What is shown: the text of a hover at each place


def shown_by_us(tools: Environment, folder: Path, places: Places) -> Answers:
    """Our own hovers, once each file is traced."""
    return asyncio.run(_hovers(folder, places))


async def _hovers(folder: Path, places: Places) -> Answers:
    answers: Answers = {}
    async with Editor(folder) as editor:
        for path, asked in places.items():
            editor.open(path)
            await editor.settled(path)
            answers |= {(path, at): await editor.hover(path, at[0] - 1, at[1]) or "" for at in asked}
    return answers


def shown_by_server(command: Sequence[str], folder: Path, places: Places, rounds: int = 1) -> Answers:
    """The hovers of another language server, after so many rounds of diagnostics of each file."""
    answers: Answers = {}
    with Server(command, folder) as server:
        for path, asked in places.items():
            server.open(path)
            for _ in range(rounds):
                server.published(path)
            answers |= {(path, at): server.hover(path, at[0] - 1, at[1]) for at in asked}
    return answers


def shown_by_torchshapeflow(tools: Environment, folder: Path, places: Places) -> Answers:
    """The hovers of its JSON, which are what its editor extension shows."""
    answers: Answers = {}
    for path in places:
        told = json.loads(run(tools.tool("tsf"), "check", "--json", str(path)).stdout)
        hovers = told["files"][0]["hovers"]
        answers |= {(path, (each["line"], each["column"] - 1)): each["shape"] for each in hovers}
    return answers


def shown_by_pyrefly(tools: Environment, folder: Path, places: Places) -> Answers:
    """Its hovers; diagnostics come once."""
    return shown_by_server((tools.tool("pyrefly"), "lsp"), folder, places)


def shown_by_torchtyc(tools: Environment, folder: Path, places: Places) -> Answers:
    """Its hovers; diagnostics come once of the text and once of the trace."""
    return shown_by_server((tools.tool("torchtyc"), "lsp"), folder, places, rounds=2)


#: Every tool that shows something, and how it is asked.
SHOWN: Mapping[str, Callable[[Environment, Path, Places], Answers]] = {
    "mase-server": shown_by_us,
    "pyrefly": shown_by_pyrefly,
    "torchshapeflow": shown_by_torchshapeflow,
    "torchtyc": shown_by_torchtyc,
}


def typed(server: Server, path: Path, text: str) -> float:
    """Seconds from a new text, typed over the last, until a hover in its last line is answered."""
    started = perf_counter()
    server.change(path, text)
    server.hover(path, text.count("\n") - 1, 4)
    return perf_counter() - started


def saved(server: Server, path: Path, text: str) -> float:
    """Seconds from a save until the file's diagnostics came."""
    started = perf_counter()
    server.save(path, text)
    server.published(path)
    return perf_counter() - started


#: Other language servers: the words that start one, how often each tells diagnostics of a file that is opened, and what
#: is timed of an edit. Only pyrefly answers hovers in files without annotations.
EDITED: Mapping[str, tuple[int, Callable[[Server, Path, str], float]]] = {"pyrefly": (1, typed), "torchtyc": (2, saved)}


# What is found: lines with an error


def found_by_pyrefly(made: Environment, folder: Path) -> Found:
    """One run over the folder, with the checks that a new project has."""
    options = ("--preset", "default", "--output-format", "json", "--python-interpreter-path", made.python)
    done = run(made.tool("pyrefly"), "check", *options, *map(str, sorted(folder.glob("*.py"))), cwd=folder)
    found: Found = {}
    for error in json.loads(done.stdout)["errors"]:
        found.setdefault(Path(error["path"]).name, set()).add(error["line"])
    return found


def found_by_torchshapeflow(made: Environment, folder: Path) -> Found:
    """One run over the folder."""
    done = run(made.tool("tsf"), "check", "--json", str(folder))
    files = json.loads(done.stdout)["files"]
    return {Path(each["path"]).name: {one["line"] for one in each["diagnostics"]} for each in files}


def found_by_torchtyc(made: Environment, folder: Path) -> Found:
    """`run` of each file that has a `__main__`, which is what it runs, two at a time. Its lines count from 0."""
    paths = [each for each in sorted(folder.glob("*.py")) if "__main__" in each.read_text("utf-8")]

    def found(path: Path) -> set[int]:
        done = run(made.tool("torchtyc"), "run", "--format", "json", "--python", made.python, path.name, cwd=folder)
        told = json.loads(done.stdout)["diagnostics"] if done.stdout.startswith("{") else []
        return {each["line"] + 1 for each in told if each["severity"] == "error"}

    with ThreadPoolExecutor(2) as pool:
        return dict(zip((path.name for path in paths), pool.map(found, paths), strict=True))


def found_by_us(folder: Path) -> Found:
    """`mase-server check` of the folder; errors, and warnings that a forward fails."""
    done = run(sys.executable, "-m", "mase_server", "check", str(folder), "--format", "json", limit=1800)
    found: Found = {}
    for problem in json.loads(done.stdout)["problems"]:
        if problem["severity"] in ("error", "warning"):
            found.setdefault(Path(problem["file"]).name, set()).add(problem["line"])
    return found


def run(*command: str, cwd: Path | None = None, limit: float = SECONDS) -> subprocess.CompletedProcess[str]:
    """What a command printed; an error found makes its exit status what it likes."""
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=limit)


#: How a shape is written: by us `f32[B, 4]`, by pyrefly `Tensor[[B, 4]]`, by the others in plain brackets.
SHAPES = {
    "mase-server": re.compile(r"\b(?:[fiu]\d+|bf16|bool|c\d+|fixed\([\d,]+\))\[([^\]]*)\]"),
    "pyrefly": re.compile(r"\bTensor\[\[(.*?)\]\]"),
    "torchshapeflow": re.compile(r"\[([^\]]*)\]"),
    "torchtyc": re.compile(r"\[([^\]]*)\]|\(([\d, ]*)\)"),
}
