"""Notebooks: the code cells of an `.ipynb` as one script, and that script as Python that runs.

A trace refers to the *script*: every code cell in the order of the document, each below a line `# %%`, as editors
and converters of notebooks write it. Its lines are those of the cells, so a place in it is a place in a cell.
`runnable_python` turns it into Python, line for line, without IPython's own syntax and without cells with errors.

Paths, hashes and every place of a payload refer to the script, so only this module and `lsp.notebooks` know about
notebooks. The hash is of the script as written: a run that changes only outputs is no change.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from mase_server import reading

SUFFIX = ".ipynb"
#: The line above every cell.
MARK = "# %%"
#: Maximum bytes of a notebook's JSON, most of which may be pictures.
MOST = 128 * reading.MIB
#: Flags to compile cells with: IPython allows `await` at the top level.
FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

_LINE_END = re.compile(r"\r\n?")
#: Magics of a whole cell that run its other lines as Python.
_PYTHON_CELLS = frozenset({"capture", "mase", "prun", "time", "timeit", "python", "python3"})
#: IPython's own statements: a magic, a shell command, a question, or a name set by one of the first two.
#: `%time` runs a statement in the notebook's own names; its replacement has the same length.
_TIMED = re.compile(r"(\s*)%time(?= \S)")
_MAGIC = re.compile(
    r"(?P<indent>\s*)(?:[%!?].*|(?P<names>[\w.]+(?:\s*,\s*\w+)*)\s*=\s*[%!].*|%{0,2}[A-Za-z_][\w.*]*\?\??\s*)"
)
#: Tokens that decide whether a statement continues: strings, comments, brackets, and continued lines.
_TOKEN = re.compile(
    r"""[A-Za-z]{0,2}(?P<quote>\"\"\"|'''|"|')|\#.*|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<joined>\\$)|\w+|.""",
)
#: `from __future__ import ...`, which Python allows only at the top of a module, but IPython in every cell.
_FUTURE = re.compile(r"from __future__ import [^()\\]+")


class NotebookError(ValueError):
    """The file has a notebook's name, but cannot be read as one."""


def is_notebook(path: str) -> bool:
    """Is the file a notebook, by its name?"""
    return path.endswith(SUFFIX)


def read_traced_bytes(path: str, most: int | None = None) -> bytes:
    """The bytes that a trace refers to: those of the file, or the script of a notebook in UTF-8. Raises as `read_file`.

    For an unreadable notebook, its own bytes, which are no script.  most: maximum bytes of a Python file.
    """
    if not is_notebook(path):
        return reading.read_file(path, most)
    try:
        found = Path(path).stat()
    except OSError:
        return reading.read_file(path, MOST)
    # The change time counts, too: tools that restore a file may also restore its modification time.
    return _read_script(path, (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))


def read_ahead(path: str) -> None:
    """Read a notebook in this thread, so that a later read is fast: megabytes of pictures in it take a while."""
    with contextlib.suppress(OSError):
        read_traced_bytes(path)


@lru_cache(maxsize=16)
def _read_script(path: str, _version: tuple[int, ...]) -> bytes:
    data = reading.read_file(path, MOST)
    try:
        return script_from_cells(cells_of(data)).encode("utf-8", "replace")
    except NotebookError:
        return data


def is_script(source: bytes) -> bool:
    """Are these bytes the script of a notebook? A notebook without code has an empty script."""
    return not source or source.startswith(MARK.encode())


def cells_of(notebook: bytes) -> list[str]:
    """The texts of the Python cells of a notebook's JSON (nbformat 4). Raises NotebookError."""
    try:
        told = json.loads(notebook)
        about = told.get("metadata", {})
        language = about.get("kernelspec", {}).get("language") or about.get("language_info", {}).get("name", "python")
        return [_cell_source(cell["source"]) for cell in told["cells"] if _is_python(cell, language)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotebookError(f"This is no notebook of format 4: {type(error).__name__}: {error}.") from None


def _is_python(cell: Mapping[str, Any], language: str) -> bool:
    """Is the cell Python? VS Code marks cells whose language differs from the notebook's."""
    own = cell.get("metadata", {}).get("vscode", {}).get("languageId", language)
    return bool(cell["cell_type"] == "code" and own == "python")


def _cell_source(source: str | list[str]) -> str:
    return normalize_line_ends(source if isinstance(source, str) else "".join(source))


def normalize_line_ends(text: str) -> str:
    """The text with line feeds as its only line ends."""
    return _LINE_END.sub("\n", text)


def script_from_cells(cells: Iterable[str]) -> str:
    """The script of these cells; a cell's first line is the one below its mark."""
    return "".join(f"{MARK}\n{cell}\n" for cell in cells)


@lru_cache(maxsize=8)
def runnable_python(source: str) -> str:
    """The script as Python with the same lines, and the same columns where code is kept."""
    lines, futures = list[str](), list[str]()
    for cell in _split_script(source.split("\n")):
        code = _without_magics(cell)
        lines += code if _can_compile(code) else [""] * len(cell)
    for number, line in enumerate(lines):
        if _FUTURE.fullmatch(line.partition("#")[0].strip()):
            futures.append(line.strip())
            lines[number] = ""
    if futures and lines:
        lines[0] = "; ".join(line.partition("#")[0].strip() for line in futures)
    return "\n".join(lines)


def cell_errors(source: str) -> Iterator[SyntaxError]:
    """The syntax errors of cells that are left out, at the script's lines."""
    first = 0
    for cell in _split_script(source.split("\n")):
        try:
            _compile_cell("\n".join(_without_magics(cell)))
        except SyntaxError as error:
            error.lineno = first + (error.lineno or 1)
            error.end_lineno = first + error.end_lineno if error.end_lineno else None
            yield error
        except (ValueError, RecursionError, MemoryError):
            pass
        first += len(cell)


def _split_script(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """The lines of each cell, beginning with its mark."""
    starts = [number for number, line in enumerate(lines) if line == MARK]
    bounds = sorted({0, *starts, len(lines)})
    return (lines[start:end] for start, end in itertools.pairwise(bounds))


def _can_compile(lines: Sequence[str]) -> bool:
    try:
        _compile_cell("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _compile_cell(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(text, "<cell>", "exec", FLAGS, dont_inherit=True)


def _without_magics(lines: Sequence[str]) -> list[str]:
    """A cell without IPython's own syntax; [] for a cell of another program."""
    first = next((number for number, line in enumerate(lines) if line.strip() and line != MARK), None)
    if first is not None and lines[first].startswith("%%"):
        magic = lines[first][2:].split(None, 1)[:1]
        if not _PYTHON_CELLS.intersection(magic):
            return [""] * len(lines)
        lines = [*lines[:first], "", *lines[first + 1 :]]
    return list(_replace_magics(lines))


def _replace_magics(lines: Iterable[str]) -> Iterator[str]:
    """The lines, with IPython's own statements replaced."""
    scan, magic = _Scan(), False
    for given in lines:
        line = _TIMED.sub(r"\1if 1:", given, count=1) if scan.at_start and _TIMED.match(given) else given
        found = _MAGIC.fullmatch(line) if scan.at_start and not magic else None
        if magic:
            yield ""
        elif found is not None:
            yield _replacement_of_magic(found)
        else:
            scan.go_on(line)
            yield line
        magic = (magic or found is not None) and line.endswith("\\")


def _replacement_of_magic(magic: re.Match[str]) -> str:
    """Python in place of a magic: a block must keep a statement, and a bound name must get an unknown value."""
    names = magic["names"]
    return f"{magic['indent']}{names} = get_ipython()" if names else f"{magic['indent']}pass"


class _Scan:
    """The state at the end of a line of Python: inside a string or brackets, or at the start of a statement."""

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
            self._quote = ""  # an unclosed string is an error, and is reported as one

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
