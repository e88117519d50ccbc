"""Which lines of `mase_server` the tests run, as `make test` reports it.

A loader of our own compiles each module with a store in front of each statement, `<line 12> = True`, into the module's
own names. That is all: a store costs about ten nanoseconds, torch.compile takes it for an ordinary global, a forked
child may do it to its own copy, and it is the same on all Pythons. coverage.py doubles the time on Python 3.11;
SlipCover calls probes in place of the stores, and what torch.compile compiles whole breaks at them.

Counted are statements by their first lines, without docstrings, declarations and what stands under
`if TYPE_CHECKING:`. A statement counts once it is reached in a process of the tests: what servers, warm parents and
forks run does not.
"""

from __future__ import annotations

import ast
import functools
import itertools
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "mase_server"
#: The name in which a line is marked. It is no identifier, so no code has it.
LINE = "<line {}>"

#: The path, lines and namespace of each module that was loaded, twice if it was loaded twice.
_loaded: list[tuple[str, list[int], dict[str, object]]] = []
#: The lines that ran in any process, by path.
_ran: defaultdict[str, set[int]] = defaultdict(set)


def compile_marked(source: bytes, path: str) -> tuple[CodeType, list[int]]:
    """The code of a file with its marks, and the lines that it can mark."""
    tree = ast.parse(source)
    lines = _mark_inside(tree)
    return compile(tree, path, "exec", dont_inherit=True), sorted(lines)


def _mark_inside(node: ast.AST) -> set[int]:
    """Put marks in front of the statements inside of a node. Returns their lines."""
    lines: set[int] = set()
    for field in ("body", "orelse", "finalbody"):
        if not isinstance(statements := getattr(node, field, None), list):
            continue
        match node, field:
            case ast.If(ast.Name("TYPE_CHECKING")), "body":
                continue
        # A statement on the line of its header, or of the statement before it, needs no mark of its own.
        line, marked = getattr(node, "lineno", 0), []
        for statement in statements:
            if _is_counted(statement) and statement.lineno != line:
                line = statement.lineno
                lines.add(line)
                marked.append(_mark(statement))
            marked.append(statement)
            lines |= _mark_inside(statement)
        statements[:] = marked
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        lines |= _mark_inside(part)
    if lines and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        place = int(ast.get_docstring(node, clean=False) is not None)
        names = ast.Global([LINE.format(line) for line in sorted(lines)])
        node.body.insert(place, ast.copy_location(names, node.body[place]))
    return lines


def _is_counted(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(ast.Constant()) | ast.Global() | ast.Nonlocal() | ast.ImportFrom("__future__"):
            return False
    return True


def _mark(statement: ast.stmt) -> ast.stmt:
    mark = ast.Assign([ast.Name(LINE.format(statement.lineno), ast.Store())], ast.Constant(True))
    for node in ast.walk(mark):
        ast.copy_location(node, statement)
    return mark


class _MarkingLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        code, lines = compile_marked(self.get_data(self.path), self.path)
        # All names are there from the start: who iterates over a module's names may run lines of it.
        for line in lines:
            module.__dict__.setdefault(LINE.format(line), False)
        _loaded.append((self.path, lines, module.__dict__))
        exec(code, module.__dict__)


class _MarkingFinder:
    @staticmethod
    def find_spec(fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] != PACKAGE:
            return None
        spec = PathFinder.find_spec(fullname, path or [str(ROOT)], target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _MarkingLoader(fullname, spec.loader.path)
        return spec


class _File(NamedTuple):
    path: Path
    lines: set[int]
    ran: set[int]


@functools.cache
def _list_files() -> list[_File]:
    files = []
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        lines = set(compile_marked(path.read_bytes(), str(path))[1])
        files.append(_File(path.relative_to(ROOT), lines, lines & _ran[str(path)]))
    return files


def _percent(files: Iterable[_File]) -> float:
    of = sum(len(file.lines) for file in files)
    return 100 * sum(len(file.ran) for file in files) / of if of else 100.0


def _describe_packages(files: Iterable[_File]) -> str:
    packages = defaultdict(list)
    for file in files:
        packages[file.path.parts[1] if len(file.path.parts) > 2 else "small modules"].append(file)
    return ", ".join(f"{name} {_percent(found):.0f} %" for name, found in packages.items())


def _write_missing(to: Path, files: Iterable[_File]) -> None:
    """Write which lines did not run, the worst file first."""
    rows = []
    for file in sorted(files, key=lambda file: len(file.ran) - len(file.lines)):
        runs = [list(run) for ran, run in itertools.groupby(sorted(file.lines), file.ran.__contains__) if not ran]
        if runs:
            texts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
            rows.append(f"{file.path}: {_percent([file]):.0f} %, without {', '.join(texts)}\n")
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text("".join(rows))


def _get_least() -> float:
    return float(os.environ.get("MASE_LINES") or 0)


def has_enough_lines() -> bool:
    """Whether as many lines ran as are wanted, once all processes have told theirs."""
    return _percent(_list_files()) >= _get_least()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand over what ran in this process; where all is together, fail if it is too little."""
    found: dict[str, list[int]] = {}
    for path, lines, space in _loaded:
        found.setdefault(path, []).extend(line for line in lines if space[LINE.format(line)])
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["lines"] = found
        return
    _add_lines(found)
    if not has_enough_lines() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what ran in a process of pytest-xdist; one that died has nothing to tell."""
    _add_lines(getattr(node, "workeroutput", {}).get("lines", {}))


def _add_lines(found: dict[str, list[int]]) -> None:
    for path, lines in found.items():
        _ran[path].update(lines)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Tell how many lines ran, and by package."""
    files = _list_files()
    to = config.rootpath / "tests" / "output" / "lines.txt"
    _write_missing(to, files)
    least = f", at least {least:g} % are wanted" if (least := _get_least()) else ""
    of = sum(len(file.lines) for file in files)
    terminalreporter.section("lines")
    terminalreporter.write_line(f"{_percent(files):.2f} % of {of} lines ran{least}: {_describe_packages(files)}")
    terminalreporter.write_line(f"{to} has those that did not run")


if "MASE_LINES" in os.environ:
    assert PACKAGE not in sys.modules, f"{PACKAGE} was imported before its lines could be marked"
    sys.meta_path.insert(0, _MarkingFinder())
