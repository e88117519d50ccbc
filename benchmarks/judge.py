"""Model files judged: what the product shows with nothing configured, against what eager PyTorch binds.

One child runs the product's own job. Another builds the models that it found, runs them on real tensors of the inputs
that it shows, and records every parameter, binding and return of the file with a recorder that shares no code with it.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from forks import Limits, forked
from observed import File, eager, product

#: Errors that say what a machine lacks, not what is wrong with a file.
ENVIRONMENT = frozenset({"missing-package", "import-error"})

#: A place and the values seen there.
Seen = Mapping[str, Iterable[str]]


@dataclass(slots=True)
class Verdict:
    """What became of one file.

    outcome: shown|part|nothing|crash; "part" where a class with a forward has no shapes.  whole: a class that is part
    of no other has shapes.  first, seconds: to the first shapes and to the last.  wrong: shapes that eager does not
    give.  missing: places that are not shown.  errors: told about a file that works.  unjudged: models that eager could
    not run, and why.
    """

    file: File
    outcome: str = "nothing"
    why: str = ""
    models: list[str] = field(default_factory=list)
    covered: int = 0
    classes: int = 0
    whole: bool = False
    first: float | None = None
    seconds: float = 0.0
    places: int = 0
    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)


def judge(files: Iterable[File], limits: Limits, at_once: int = 1) -> Iterator[Verdict]:
    """The verdict on each file, in the order in which they are known."""
    for name, halves in forked(map(str, files), partial(_halves, limits=limits), limits, at_once):
        yield verdict(File.parse(name), halves.get("product", halves), halves.get("eager", {}))


def _halves(name: str, limits: Limits) -> dict[str, Any]:
    """Both halves, one after the other, so that eager need not search what the product has found."""
    file = File.parse(name)
    os.chdir(file.folder)
    torch.set_num_threads(1)
    ((_, shown),) = forked([name], lambda _: product(file), limits, 1)
    return {"product": shown, "eager": eager(file, shown.get("fit", ""))}


def verdict(file: File, product: dict[str, Any], eager: dict[str, Any]) -> Verdict:
    """The verdict on a file from its two halves."""
    result = Verdict(file)
    if "died" in product:
        result.outcome, result.why = "crash", product["died"]
        return result
    result.models = [f"{m['name']} ({m['inputs_from']}/{m['arguments_from']})" for m in product["models"]]
    result.first, result.seconds = product["first"], product["seconds"]
    told = [one for one in product["problems"] if one["severity"] == "error" and one["code"] not in ENVIRONMENT]
    result.errors = [f"{one['line']} {one['code']}: {one['message']}" for one in told]
    _cover(result, product)
    _compare(result, product, eager)
    return result


def _cover(result: Verdict, product: dict[str, Any]) -> None:
    functions = {_function(place) for place, _, _ in product["rows"]}
    own = classes(result.file.source)
    result.classes = len(own)
    result.covered = sum(f"{name}.forward" in functions for name in own)
    whole = wholes(result.file.source)
    result.whole = bool(product["models"]) and (not whole or any(f"{name}.forward" in functions for name in whole))
    if product["models"] and (product["rows"] or not own):
        result.outcome = "shown" if result.covered == result.classes else "part"
    else:
        first = next((f"{one['code']}: {one['message']}" for one in product["problems"]), "no problem was told")
        result.why = " ".join(first.split())


def classes(source: str) -> list[str]:
    """Qualified names of the classes that have a forward of their own."""
    return list(_classes(ast.parse(source), ""))


def wholes(source: str) -> list[str]:
    """Those of `classes` that no other class of the file names."""
    tree = ast.parse(source)
    named = {
        inner.id
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and inner.id != node.name
    }
    return [name for name in classes(source) if name.rpartition(".")[2] not in named]


def _classes(node: ast.AST, prefix: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        inner = prefix
        if isinstance(child, ast.ClassDef):
            if any(isinstance(each, ast.FunctionDef) and each.name == "forward" for each in child.body):
                yield prefix + child.name
            inner = f"{prefix}{child.name}."
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{prefix}{child.name}.<locals>."
        yield from _classes(child, inner)


def _compare(result: Verdict, product: dict[str, Any], eager: dict[str, Any]) -> None:
    """What the models that eager ran too show, against what they bind there."""
    runs = _by_name(eager.get("models", ()))
    names = [model["name"] for model in product["models"]]
    judged = {name for name in names if name in runs and not runs[name]["error"]}
    for name in dict.fromkeys(names):
        if name not in judged:
            why = runs[name]["error"] if name in runs else eager.get("died", "eager did not find it")
            result.unjudged.append(f"{name}: {why}")
    rows = ((place, value) for place, model, value in product["rows"] if model >= 0 and names[model] in judged)
    truth = ((place, value) for name in judged for place, seen in runs[name]["truth"].items() for value in seen)
    seen = _by_place(truth)
    result.places = len(seen)
    result.wrong, _ = differences(_by_place(rows), seen)
    # What constructors bind is shown for no model in particular.
    shown = ((place, value) for place, model, value in product["rows"] if model < 0 or names[model] in judged)
    _, result.missing = differences(_by_place(shown), seen)


def _by_name(models: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What eager ran, by name: several models of one class count as one."""
    runs: dict[str, dict[str, Any]] = {}
    for model in models:
        known = runs.setdefault(model["name"], {"error": "", "truth": {}})
        known["error"] = known["error"] or model["error"]
        for place, seen in model["truth"].items():
            known["truth"][place] = [*known["truth"].get(place, ()), *seen]
    return runs


def _by_place(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for place, value in pairs:
        found.setdefault(place, set()).add(value)
    return found


def differences(shown: Seen, truth: Seen) -> tuple[list[str], list[str]]:
    """(wrong, missing): values shown that nothing binds in a function that ran, and bound ones that are not shown.

    A value with an unknown size depends on the values in tensors, and so may the branch that binds it: if eager, with
    other random values, does not come there, it cannot judge the value.
    """
    ran = {_function(place) for place in truth}
    wrong, missing = [], []
    for place in sorted(shown.keys() | truth.keys()):
        here, there = shown.get(place, ()), truth.get(place, ())
        judged = [one for one in here if there or "'?'" not in one]
        false = sorted(one for one in judged if not any(_agree(one, other) for other in there))
        left = sorted(other for other in there if not any(_agree(one, other) for one in here))
        if false and _function(place) in ran:
            wrong.append(f"{place}: {', '.join(false)} instead of {', '.join(left)}")
        elif left:
            missing.append(f"{place}: {', '.join(left)}")
    return wrong, missing


def _agree(shown: str, truth: str) -> bool:
    """A size that is shown as unknown says nothing that could be false."""
    return shown == truth or re.fullmatch(re.escape(shown).replace(r"'\?'", r"\d+"), truth) is not None


def _function(place: str) -> str:
    return place.rpartition(" in ")[2]
