"""Python files of a workspace that may hold passes, and their syntax trees: bounded, and nothing of them runs."""

from __future__ import annotations

import ast
import os
import re
import time
import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from mase_server.tracing.loading.source import decode, read_source
from mase_server.tracing.loading.walk import files_below

#: Bounds of one search: files, seconds, bytes of one file.
MAX_FILES = 3000
MAX_SECONDS = 0.5
MAX_BYTES = 400_000
_PASS = re.compile(rb"^def\s+[a-zA-Z]\w*_(?:transform|analysis)_pass\s*\(", re.MULTILINE)
#: Passes of this package are found elsewhere.
_OWN = str(Path(__file__).parents[2]) + os.sep


def trees(folder: str, first: str) -> Iterator[tuple[str, ast.Module]]:
    """Path and syntax tree of each file with a function that is named like a pass: `first`, then what stands highest.

    Files that cannot be read or parsed are passed over, as are tests, hidden folders and installed packages.
    """
    end = time.monotonic() + MAX_SECONDS
    for number, path in enumerate(chain([first], _files(folder, first))):
        if number > MAX_FILES or (number and time.monotonic() > end):
            return
        tree = None if path.startswith(_OWN) else _tree(path)
        if tree is not None:
            yield path, tree


def _files(folder: str, but: str) -> Iterator[str]:
    return (file.path for file in files_below(folder, (".py",), but) if not file.name.startswith("test_"))


def _tree(path: str) -> ast.Module | None:
    try:
        if Path(path).stat().st_size > MAX_BYTES:
            return None
        source = read_source(path)
        if _PASS.search(source) is None:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(decode(source), path)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
