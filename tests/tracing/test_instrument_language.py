# ruff: noqa: E501 - programs in one line each
"""Python's own tests of its language and library pass when instrumented: nobody knows better what must stay the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SEARCH

LANGUAGE = (
    "test_patma", "test_named_expressions", "test_scope", "test_super", "test_with", "test_coroutines", "test_asyncgen",
    "test_grammar", "test_dataclasses", "test_class", "test_property", "test_contextlib", "test_augassign",
    "test_decorators", "test_metaclass", "test_raise", "test_yield_from", "test_funcattrs", "test_keywordonlyarg",
    "test_positional_only_arg", "test_fstring", "test_subclassinit",
)  # fmt: skip
LIBRARY = (
    "dataclasses:test_dataclasses", "textwrap:test_textwrap", "shlex:test_shlex", "string:test_string",
    "fractions:test_fractions", "contextlib:test_contextlib", "functools:test_functools", "csv:test_csv",
    "graphlib:test_graphlib",
)  # fmt: skip
SLOW = (
    "argparse:test_argparse", "statistics:test_statistics", "configparser:test_configparser", "enum:test_enum",
    "pprint:test_pprint", "test_typing", "test_descr", "test_collections", "test_traceback", "test_exceptions",
    "test_generators", "test_pickle",
)  # fmt: skip

#: Tests that count the lines a debugger would stop at: parameters report on the line of the `def`.
EXPECTED = {"test_patma": "TestTracing"}


def run(names: tuple[str, ...]) -> dict[str, Any]:
    root = Path(__file__).parents[2]
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); import runpy; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    script = Path(__file__).with_name("language_tests.py")
    command = [sys.executable, "-W", "ignore", "-c", program, str(root), str(script), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def check(names: tuple[str, ...]) -> None:
    results = {name: result for name, result in run(names).items() if "skipped" not in result}
    if not results:
        pytest.skip("this Python comes without its own tests")
    for name, result in results.items():
        assert result["ran"][0] == result["ran"][1] > 0
        assert result["reports"] > 0
        assert [test for test in result["broken"] if EXPECTED.get(name, "none") not in test] == [], name


def test_the_language_tests_pass_instrumented() -> None:
    check(LANGUAGE)


def test_library_modules_pass_their_tests_instrumented() -> None:
    check(LIBRARY)


@pytest.mark.skipif(not SEARCH, reason="takes a minute, make nightly-search runs it")
def test_the_long_ones_pass_too() -> None:
    check(SLOW)
