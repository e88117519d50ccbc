"""SECURITY.md and the threat model: every promise names a test, and every test that is named is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("SECURITY.md", "docs/threat_model.md")
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@cache
def functions_of(path: Path) -> frozenset[str]:
    """The names of all functions of a Python file."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, kinds))


def list_promises() -> list[str]:
    """The items of the section "Promises" of SECURITY.md, each as one line."""
    section = (ROOT / "SECURITY.md").read_text("utf-8").split("\n## Promises\n")[1].split("\n## ")[0]
    return [re.sub(r"\s+", " ", item) for item in re.split(r"^- ", section, flags=re.MULTILINE)[1:]]


@pytest.mark.parametrize("page", PAGES)
def test_each_test_that_a_page_names_exists(page):
    for file, function in TEST.findall((ROOT / page).read_text("utf-8")):
        assert (ROOT / file).is_file(), f"{page} names {file}, which is not there"
        assert not function or function in functions_of(ROOT / file), f"{page}: {file} has no {function}"


def test_each_promise_names_a_test():
    promises = list_promises()
    assert len(promises) >= 20, promises
    assert [promise for promise in promises if not TEST.search(promise)] == []
