"""Instrumenting: a person's module, compiled so that every name it binds reports its value.

The code calls the module global `__mase__(site index, value)`, which must return the value, wherever a parameter
arrives, a name is bound, a value is returned or (with `expressions`) an expression is evaluated. Everything else,
tracebacks and `inspect` included, behaves as if the file had been compiled plainly.
"""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass
from types import CodeType
from typing import Any, cast

from mase_server import notebooks
from mase_server.tracing.loading.names import Names
from mase_server.tracing.loading.rewrite import REPORTER, Rewriter, Site
from mase_server.tracing.loading.source import Places, decode

__all__ = ["REPORTER", "VERSION", "Instrumented", "Site", "instrument", "provide_default"]

#: Part of the key of cached code: raise it whenever the same source would be rewritten differently.
VERSION = 3


@dataclass(frozen=True, slots=True)
class Instrumented:
    """The code of a module and what the site indices in it mean. `sites` is empty if it had to be compiled plainly."""

    code: CodeType
    sites: tuple[Site, ...]


def instrument(
    source: bytes | str, path: str, *, expressions: bool = True, start: tuple[int, int] = (0, 0)
) -> Instrumented:
    """Compile a module so that it reports; `path` becomes its `co_filename`.

    Raises exactly what `compile(source, path, "exec")` raises for a file with errors. A file that is nested too deeply
    for the added calls reports less: no expressions, then nothing. start: leave out the statements that stand before
    this line and column, of which the sites are the same.
    """
    text = decode(source)
    levels = (True, False) if expressions else (False,)
    for level in levels:
        try:
            return _rewritten(text, path, start, expressions=level)
        except RecursionError:
            continue
        except SyntaxError:
            break
    # Either there is nothing left to try, or the error should be told about the person's own text.
    return Instrumented(_compiled(remaining(ast.parse(text, path), start), path), ())


def remaining(tree: ast.Module, start: tuple[int, int]) -> ast.Module:
    """The module from a line and column on, under the same `__future__`."""
    tree.body = [
        each
        for each in tree.body
        if (each.lineno, each.col_offset) >= start or (isinstance(each, ast.ImportFrom) and each.module == "__future__")
    ]
    return tree


def _rewritten(text: str, path: str, start: tuple[int, int], *, expressions: bool) -> Instrumented:
    tree = ast.parse(text, path)
    rewriter = Rewriter(Names.of(tree), Places(text), expressions=expressions)
    rewriter.visit(tree)
    return Instrumented(_compiled(remaining(tree, start), path), tuple(rewriter.sites))


def _compiled(tree: ast.Module, path: str) -> CodeType:
    flags = notebooks.FLAGS if notebooks.is_notebook(path) else 0
    return cast("CodeType", compile(tree, path, "exec", flags, dont_inherit=True))


def provide_default() -> None:
    """Let instrumented code run where nobody listens: in other globals, or before a reporter is set."""
    if not hasattr(builtins, REPORTER):
        setattr(builtins, REPORTER, _unheard)


def _unheard(_site: int, value: Any) -> Any:
    return value
