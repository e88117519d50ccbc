"""Shell completion of the models of the named file, and of passes."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import typer


def models(context: typer.Context, incomplete: str) -> list[str]:
    """The classes of the named files that begin so; read from their syntax trees, since nothing may run for a tab."""
    given: Any = context.params.get("file") or context.params.get("files") or []
    files = given if isinstance(given, list | tuple) else [given]
    # Behind an option that has no value yet nothing is told apart, and all words are left over.
    words = [word for word in context.args if word.endswith(".py")]
    found: dict[str, None] = {}
    for file in (*files, *words):
        found |= dict.fromkeys(_classes(Path(file)))
    return [name for name in found if name.startswith(incomplete)]


def _classes(file: Path) -> list[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.bases]


def pass_names(context: typer.Context, incomplete: str) -> list[str]:
    """The built-in passes that begin so, read from their declarations: importing them would take torch."""
    return [name for name in _built_in() if name.startswith(incomplete)]


def _built_in() -> list[str]:
    folder = Path(__file__).parents[1] / "passes"
    found = []
    for file in sorted(folder.rglob("*.py")):
        source = file.read_text("utf-8")
        if "PASS = " not in source:
            continue
        for node in ast.parse(source).body:
            if isinstance(node, ast.Assign) and [ast.unparse(each) for each in node.targets] == ["PASS"]:
                found += _name_of(node.value)
    return found


def _name_of(declared: ast.expr) -> list[str]:
    """The name that `PASS = Pass("quantize", ...)` or `Pass(name="quantize", ...)` gives."""
    if not isinstance(declared, ast.Call):
        return []
    named = [each.value for each in declared.keywords if each.arg == "name"] + declared.args[:1]
    return [each.value for each in named[:1] if isinstance(each, ast.Constant) and isinstance(each.value, str)]
