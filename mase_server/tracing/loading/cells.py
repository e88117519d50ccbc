"""What a notebook's code finds in a kernel and nowhere else, and the cells that are left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mase_server import notebooks
from mase_server.snapshot import Problem
from mase_server.tracing.loading.placeholders import Absent, Placeholder

#: Names that IPython gives every cell.
KERNEL = ("get_ipython", "display")
_REASON = "only the notebook's kernel knows it"


def kernel_names(path: str) -> dict[str, Any]:
    """What stands for the names of IPython: it can be called, and nothing is known of what it gives."""
    absent = Absent("", lambda thing: None, lambda file: file == path, _REASON)
    return {name: Placeholder(absent, name, made=True) for name in KERNEL}


def broken_cells(path: str, saved: bytes) -> Iterator[Problem]:
    """A problem for each cell of a notebook that is no Python; the other cells run without it."""
    if not notebooks.is_notebook(path):
        return
    for error in notebooks.errors(saved.decode()):
        line, column = error.lineno or 1, max((error.offset or 1) - 1, 0)
        end = error.end_lineno or line, (error.end_offset or 0) - 1
        end_line, end_column = max(end, (line, column + 1))
        text = f"{type(error).__name__}: {error.msg.rstrip('.')}. The other cells are traced without this one."
        yield Problem(path, line, column, end_line, end_column, "error", "syntax-error", text)
