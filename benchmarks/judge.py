"""Model files judged: what the product shows with nothing configured, against what eager PyTorch binds.

One child runs the product's own job. Another builds the models that it found, runs them on real tensors of the inputs
that it shows, and records every parameter, binding and return of the file with a recorder that shares no code with it.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from forks import Limits, busy_processors, forked
from labels import Label, implausible
from observed import File, eager, product

#: Errors that say what a machine lacks, not what is wrong with a file.
ENVIRONMENT = frozenset({"missing-package", "import-error"})

#: What a file without a label has.
UNLABELLED = Label()

#: A place and the values seen there.
Seen = Mapping[str, Iterable[str]]


@dataclass(slots=True)
class Verdict:
    """What became of one file.

    outcome: shown|part|nothing|crash; "part" where a class with a forward has no shapes.  whole: a class that is part
    of no other has shapes.  first, seconds: to the first shapes and to the last.  wrong: shapes that eager does not
    give.  missing: places that are not shown.  errors: told about a file that works;
    true: those that eager meets at the same line.  unjudged: models that eager could
    not run, and why.

    Of a labelled file also: main: the labelled classes, and main_shown: whether every binding of a main class's forward
    that was executed has a shape; main_why: why not.  main_first: processor seconds until it had shapes.  implausible:
    what an expert would reject of the inputs that were assumed for it.  again: whether the same models came out each
    time with the same inputs and shapes, None if it ran once.
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
    true: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)
    main: tuple[str, ...] = ()
    main_shown: bool = False
    main_why: str = ""
    main_first: float | None = None
    implausible: list[str] = field(default_factory=list)
    again: bool | None = None


def judge(
    files: Iterable[File],
    limits: Limits,
    at_once: int = 1,
    labels: Mapping[File, Label] | None = None,
    again: bool = False,
) -> Iterator[Verdict]:
    """The verdict on each file, in the order in which they are known.

    again: trace each file twice more, the second time beside a busy loop on each processor.
    """
    labels = labels or {}
    halves_of = partial(_halves, limits=limits, labels=labels)
    for name, halves in forked(map(str, files), halves_of, limits, at_once):
        file = File.parse(name)
        shown = halves.get("product", halves)
        result = verdict(file, shown, halves.get("eager", {}), labels.get(file, UNLABELLED))
        if again:
            repeated = [_in_child(file, limits, product)]
            with busy_processors():
                repeated.append(_in_child(file, limits, product))
            result.again = all(_came_out(one) == _came_out(shown) for one in repeated)
        yield result


def _halves(name: str, limits: Limits, labels: Mapping[File, Label]) -> dict[str, Any]:
    """Both halves, one after the other, so that eager need not search what the product has found."""
    file = File.parse(name)
    main = labels.get(file, UNLABELLED).main
    wanted = {*main, *(forward_of(file.source, name) for name in main)} - {""}
    shown = _in_child(file, limits, partial(product, main=wanted))
    return {"product": shown, "eager": _in_child(file, limits, partial(eager, fit=shown.get("fit", "")))}


def _in_child(file: File, limits: Limits, half: Callable[[File], dict[str, Any]]) -> dict[str, Any]:
    """One half's result for a file, from a child of its own: a half that takes too much loses nothing but itself."""

    def job(_: str) -> dict[str, Any]:
        _enter(file)
        return half(file)

    ((_, found),) = forked([str(file)], job, limits, 1)
    return found


def _enter(file: File) -> None:
    """Make this process one that works on a file."""
    os.chdir(file.folder)
    torch.set_num_threads(1)


def _came_out(product: dict[str, Any]) -> Any:
    """The models, with their arguments and inputs, and the shapes, that are to be the same each time."""
    keys = ("name", "arguments", "inputs")
    models = [[model[key] for key in keys] for model in product.get("models", ())]
    return (models, product["rows"]) if models else product.get("died")


def verdict(file: File, product: dict[str, Any], eager: dict[str, Any], label: Label = UNLABELLED) -> Verdict:
    """The verdict on a file from its two halves."""
    result = Verdict(file, main=label.main)
    if "died" in product:
        result.outcome, result.why = "crash", product["died"]
        result.main_why = product["died"] if label.main else ""
        return result
    result.models = [f"{m['name']} ({m['inputs_from']}/{m['arguments_from']})" for m in product["models"]]
    result.first, result.seconds = product["first"], product["seconds"]
    # An error that eager meets at the same line is a true one.
    true = {line for model in eager.get("models", ()) for line in _lines_of_error(result.file, model["error"])}
    told = [one for one in product["problems"] if one["severity"] == "error" and one["code"] not in ENVIRONMENT]
    for one in told:
        held = result.true if one["line"] in true else result.errors
        held.append(f"{one['line']} {one['code']}: {one['message']}")
    _cover(result, product)
    ran = _compare(result, product, eager)
    _judge_main(result, product, label, ran)
    return result


def _lines_of_error(file: File, error: str) -> list[int]:
    """The line of a file at which an error was raised; empty if that was elsewhere."""
    return [int(line) for line in re.findall(rf" at {re.escape(file.path)}:(\d+)$", error)]


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
    return [name for name, _ in _forwards(ast.parse(source), "")]


def forward_of(source: str, main: str) -> str:
    """The qualified name of the forward that a class runs; empty where another file defines it."""
    known = {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)}
    own = {name.rpartition(".")[2]: name for name in classes(source)}
    waiting = [main]
    for name in waiting:
        if name in own:
            return f"{own[name]}.forward"
        bases = known[name].bases if name in known else ()
        waiting += [base.id for base in bases if isinstance(base, ast.Name) and base.id not in waiting]
    return ""


def heirs_of(source: str, main: str) -> set[str]:
    """A class, and those that extend it in its file and run the same forward."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    found, before = {main}, set[str]()
    while found != before:
        before = set(found)
        found |= {node.name for node in nodes if any(ast.unparse(base) in found for base in node.bases)}
    return {name for name in found if forward_of(source, name) == forward_of(source, main)}


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


def _forwards(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The qualified name of each class that has a forward of its own, and that forward."""
    for child in ast.iter_child_nodes(node):
        inner = prefix
        if isinstance(child, ast.ClassDef):
            for each in child.body:
                if isinstance(each, ast.FunctionDef) and each.name == "forward":
                    yield prefix + child.name, each
                    break
            inner = f"{prefix}{child.name}."
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{prefix}{child.name}.<locals>."
        yield from _forwards(child, inner)


def _compare(result: Verdict, product: dict[str, Any], eager: dict[str, Any]) -> set[str]:
    """What the models that eager ran too show, against what they bind there; the functions that it ran."""
    runs = _by_name(eager.get("models", ()))
    names = [model["name"] for model in product["models"]]
    for name, run in runs.items():
        found = [model["arguments"] for model in product["models"] if model["name"] == name]
        # A search that is stopped by time may end elsewhere; that says nothing of what is shown.
        if sorted(map(str, found)) != sorted(map(str, run["arguments"])):
            run["error"] = run["error"] or "eager found other arguments"
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
    return set(map(_function, seen))


def _judge_main(result: Verdict, product: dict[str, Any], label: Label, ran: Collection[str]) -> None:
    """Is a main class shown whole, and are the inputs plausible that were assumed for it? ran: functions, by eager."""
    result.main_first = product["main_first"]
    why = [_lacks(result, product, main, ran) for main in label.main]
    result.main_shown = "" in why
    result.main_why = "" if result.main_shown else "; ".join(why)
    if result.main_shown:
        result.implausible = list(dict.fromkeys(_rejected(result, product, label)))


def _lacks(result: Verdict, product: dict[str, Any], main: str, ran: Collection[str]) -> str:
    """Why a class is not shown whole; empty if it is.

    Where eager ran it, what eager bound counts, but for what is bound to `_`; else whether its forward returned. A
    class that is to be extended has shapes only where one that extends it runs its forward.
    """
    function = forward_of(result.file.source, main)
    is_there = not heirs_of(result.file.source, main).isdisjoint(product["types"])
    places = {place for place, model, _ in product["rows"] if model >= 0 and _function(place) == function}
    if function and places and is_there:
        missing = [line for line in result.missing if f" in {function}: " in line and " binding _ in " not in line]
        if missing:
            return f"{main}: not shown are {'; '.join(missing[:3])}"
        returned = function in ran or any(" return " in place for place in places)
        if not returned and _returns_value(result.file.source, function):
            return f"{main}: its forward did not return"
        return ""
    if not function and is_there:
        return ""
    lines = {one["line"] for one in product["unshown"] if one["name"] == main}
    told = [f"{one['code']}: {one['message']}" for one in product["problems"] if one["line"] in lines]
    told += [one["why"] for one in product["unshown"] if one["name"] == main]
    told += [f"{one['code']}: {one['message']}" for one in product["problems"]]
    return f"{main}: {' '.join((told or ['nothing was told'])[0].split())}"


def _returns_value(source: str, function: str) -> bool:
    """Does a forward return a value?"""
    forwards = {f"{name}.forward": forward for name, forward in _forwards(ast.parse(source), "")}
    return any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(forwards[function]))


def _rejected(result: Verdict, product: dict[str, Any], label: Label) -> Iterator[str]:
    """The implausible assumptions about main classes that are shown, each on its own or as part of another model."""
    assumed = [index for index, model in enumerate(product["models"]) if model["inputs_from"] == "search"]
    for main in label.main:
        function = forward_of(result.file.source, main)
        own = [index for index in assumed if product["models"][index]["name"] == main]
        for place, index, value in product["rows"]:
            if index in assumed and " parameter " in place and _function(place) == function:
                name = place.split(" parameter ")[1].partition(" in ")[0]
                yield from implausible(label, {name: ast.literal_eval(value)}, {})
        for index in own:
            model = product["models"][index]
            inputs = {name: ast.literal_eval(value) for name, value in model["inputs"].items()}
            guessed = model["arguments"].items() if model["arguments_from"] == "search" else ()
            sizes = {name: int(value) for name, value in guessed if value.isdecimal()}
            yield from implausible(label, inputs, sizes)


def _by_name(models: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What eager ran, by name: several models of one class count as one."""
    runs: dict[str, dict[str, Any]] = {}
    for model in models:
        known = runs.setdefault(model["name"], {"error": "", "arguments": [], "truth": {}})
        known["error"] = known["error"] or model["error"]
        known["arguments"].append(model["arguments"])
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
