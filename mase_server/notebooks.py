"""Notebooks: the code cells of an `.ipynb` as one script, and that script as Python that can be run.

The *script* is what a trace speaks of: every code cell in the order of the document, each below a line `# %%`, as
editors and converters of notebooks write it. Its lines are those of the cells, so a place in it is a place in a cell.
`runnable` makes Python of it, line for line: without what IPython alone understands, and cells that have errors.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from mase_server import reading

SUFFIX = ".ipynb"
#: The line above every cell.
MARK = "# %%"
#: Bytes of a notebook's JSON, most of which may be pictures.
MOST = 128 * reading.MIB
#: How code of a cell is compiled: `await` at its top is IPython's own.
FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

_LINE_END = re.compile(r"\r\n?")
#: Magics of a whole cell that run its other lines as Python, as they stand.
_PYTHON_CELLS = frozenset({"capture", "mase", "prun", "time", "timeit", "python", "python3"})
#: A statement of IPython's own: a magic, a shell command, a question, or a name set by one of the first two.
#: `%time` runs a statement in the notebook's own names; what takes its place is as long.
_TIMED = re.compile(r"(\s*)%time(?= \S)")
_MAGIC = re.compile(
    r"(?P<indent>\s*)(?:[%!?].*|(?P<names>[\w.]+(?:\s*,\s*\w+)*)\s*=\s*[%!].*|%{0,2}[A-Za-z_][\w.*]*\?\??\s*)"
)
#: What a statement that goes on has to be told from: strings, comments, brackets, and a line that is continued.
_TOKEN = re.compile(
    r"""[A-Za-z]{0,2}(?P<quote>\"\"\"|'''|"|')|\#.*|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<joined>\\$)|\w+|.""",
)
#: `from __future__ import ...`, which Python takes at the top of a module alone and IPython in every cell.
_FUTURE = re.compile(r"from __future__ import [^()\\]+")


class NotebookError(ValueError):
    """A file that is called a notebook and cannot be read as one."""


def is_notebook(path: str) -> bool:
    """Is the file a notebook, by its name?"""
    return path.endswith(SUFFIX)


def read(path: str, most: int | None = None) -> bytes:
    """What a trace of the file speaks of: its bytes, or the script of a notebook in UTF-8. Raises as `reading.read`.

    A notebook that cannot be read gives its bytes, which are no script.  most: bytes that a Python file may have.
    """
    if not is_notebook(path):
        return reading.read(path, most)
    try:
        found = Path(path).stat()
    except OSError:
        return reading.read(path, MOST)
    # When it was touched counts too: tools that put a file back may give it the time of change that it had.
    return _read(path, (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))


def read_ahead(path: str) -> None:
    """Read a notebook in this thread, so that `read` need not: megabytes of pictures in its outputs take a while."""
    with contextlib.suppress(OSError):
        read(path)


@lru_cache(maxsize=16)
def _read(path: str, _version: tuple[int, ...]) -> bytes:
    data = reading.read(path, MOST)
    try:
        return script(cells_of(data)).encode("utf-8", "replace")
    except NotebookError:
        return data


def is_script(source: bytes) -> bool:
    """Are these bytes the script of a notebook? One without code has an empty one."""
    return not source or source.startswith(MARK.encode())


def cells_of(notebook: bytes) -> list[str]:
    """The texts of the Python cells of a notebook's JSON (nbformat 4). Raises NotebookError."""
    try:
        told = json.loads(notebook)
        about = told.get("metadata", {})
        language = about.get("kernelspec", {}).get("language") or about.get("language_info", {}).get("name", "python")
        return [_text(cell["source"]) for cell in told["cells"] if _is_python(cell, language)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotebookError(f"This is no notebook of format 4: {type(error).__name__}: {error}.") from None


def _is_python(cell: dict[str, Any], language: str) -> bool:
    """VS Code notes the language of a cell that has another one than the notebook."""
    own = cell.get("metadata", {}).get("vscode", {}).get("languageId", language)
    return bool(cell["cell_type"] == "code" and own == "python")


def _text(source: str | list[str]) -> str:
    return plain(source if isinstance(source, str) else "".join(source))


def plain(text: str) -> str:
    """A text with line feeds alone for its line ends."""
    return _LINE_END.sub("\n", text)


def script(cells: Iterable[str]) -> str:
    """The script of these cells; a cell's first line is the one below its mark."""
    return "".join(f"{MARK}\n{cell}\n" for cell in cells)


@lru_cache(maxsize=8)
def runnable(source: str) -> str:
    """A script as Python with the same lines; columns too, wherever there still is code."""
    lines, futures = list[str](), list[str]()
    for cell in _cells(source.split("\n")):
        code = _without_magics(cell)
        lines += code if _compiles(code) else [""] * len(cell)
    for number, line in enumerate(lines):
        if _FUTURE.fullmatch(line.partition("#")[0].strip()):
            futures.append(line.strip())
            lines[number] = ""
    if futures and lines:
        lines[0] = "; ".join(line.partition("#")[0].strip() for line in futures)
    return "\n".join(lines)


def errors(source: str) -> Iterator[SyntaxError]:
    """What Python says against the cells of a script that are left out, at the script's lines."""
    first = 0
    for cell in _cells(source.split("\n")):
        try:
            _compile("\n".join(_without_magics(cell)))
        except SyntaxError as error:
            error.lineno = first + (error.lineno or 1)
            error.end_lineno = first + error.end_lineno if error.end_lineno else None
            yield error
        except (ValueError, RecursionError, MemoryError):
            pass
        first += len(cell)


def _cells(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """The lines of each cell, the mark first."""
    starts = [number for number, line in enumerate(lines) if line == MARK]
    bounds = sorted({0, *starts, len(lines)})
    return (lines[start:end] for start, end in itertools.pairwise(bounds))


def _compiles(lines: Sequence[str]) -> bool:
    try:
        _compile("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _compile(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(text, "<cell>", "exec", FLAGS, dont_inherit=True)


def _without_magics(lines: Sequence[str]) -> list[str]:
    """A cell without what is not Python; nothing of a cell that is another program's."""
    first = next((number for number, line in enumerate(lines) if line.strip() and line != MARK), None)
    if first is not None and lines[first].startswith("%%"):
        magic = lines[first][2:].split(None, 1)[:1]
        if not _PYTHON_CELLS.intersection(magic):
            return [""] * len(lines)
        lines = [*lines[:first], "", *lines[first + 1 :]]
    return list(_statements(lines))


def _statements(lines: Iterable[str]) -> Iterator[str]:
    """The lines, with those statements replaced that IPython alone understands."""
    scan, magic = _Scan(), False
    for given in lines:
        line = _TIMED.sub(r"\1if 1:", given, count=1) if scan.at_start and _TIMED.match(given) else given
        found = _MAGIC.fullmatch(line) if scan.at_start and not magic else None
        if magic:
            yield ""
        elif found is not None:
            yield _instead(found)
        else:
            scan.go_on(line)
            yield line
        magic = (magic or found is not None) and line.endswith("\\")


def _instead(magic: re.Match[str]) -> str:
    """A block must not lose its only statement; a name that IPython would bind is one that nobody knows."""
    names = magic["names"]
    return f"{magic['indent']}{names} = get_ipython()" if names else f"{magic['indent']}pass"


class _Scan:
    """Where lines of Python leave off: inside of a string or brackets, or at the start of a statement."""

    def __init__(self) -> None:
        self._quote, self._depth, self._joined = "", 0, False

    @property
    def at_start(self) -> bool:
        """Does the next line begin a statement?"""
        return not (self._quote or self._depth or self._joined)

    def go_on(self, line: str) -> None:
        """Read one more line."""
        self._joined, at = False, 0
        while at < len(line):
            at = self._end_of_string(line, at) if self._quote else self._token(line, at)
        if len(self._quote) == 1 and not line.endswith("\\"):
            self._quote = ""  # what is not closed is an error, which is told as one

    def _end_of_string(self, line: str, at: int) -> int:
        found = re.compile(rf"(?:\\.|(?!{self._quote}).)*{self._quote}").match(line, at)
        if found is None:
            return len(line)
        self._quote = ""
        return found.end()

    def _token(self, line: str, at: int) -> int:
        found = _TOKEN.match(line, at)
        assert found is not None
        self._quote = found["quote"] or ""
        self._depth = max(0, self._depth + bool(found["open"]) - bool(found["close"]))
        self._joined = bool(found["joined"])
        return found.end()
