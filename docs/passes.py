"""Sections on each pass from the registry, for its page; and the page that lists all passes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from docs.signatures import shown
from mase_server.passes.declaration import Pass
from mase_server.passes.registry import built_in
from mase_server.protocol.arguments import Argument

_NEEDS = {
    "weights": "the values of parameters: the model is built for real, with the weights that the file loads, else with "
    "random ones, and the result says which",
    "data": "a run of the model, on data that its arguments name, else on random inputs, and the result says so",
    "metadata": "common metadata, which are added first if they are missing",
}
_HEAD = ("argument", "default", "takes", "meaning")


@functools.cache
def _by_function() -> Mapping[Any, Pass]:
    return {each.function: each for each in built_in().values()}


def declaration(function: Any) -> Iterator[str]:
    """The section on using a pass other than as a function; nothing if the function is no pass."""
    from docs.library import grid

    found = _by_function().get(function)
    if found is None:
        return
    yield "## In editors and on the command line\n"
    kind = "analysis, which leaves the graph as it is" if found.kind == "analysis" else "transform"
    where = "Editors offer it" if found.menu else "Editors do not offer it in their menus, but apply it when asked to"
    yield f"Its name is `{found.name}`; its title is “{found.title}”. It is a {kind}. {where}.\n"
    needed = "".join(f" {each.name}=..." for each in found.all_arguments if each.required)
    yield f"```sh\nmase-server apply FILE {found.name}{needed}\n```\n"
    if rows := list(_rows(found)):
        yield grid(_HEAD, rows)
    if found.needs:
        yield f"It needs {'; '.join(_NEEDS[each] for each in sorted(found.needs))}.\n"


def declared_options(function: Any) -> dict[str, str]:
    """The keys of pass_args that a pass declares, with their defaults."""
    found = _by_function().get(function)
    declared = () if found is None else found.all_arguments
    return {each.name.partition(".")[0]: "" if "." in each.name else _default(each) for each in declared}


def declared_help(function: Any) -> dict[str, str]:
    """The pass's help for each of these keys."""
    found = _by_function().get(function)
    declared = () if found is None else found.all_arguments
    return {each.name.partition(".")[0]: "a map, see below." if "." in each.name else each.help for each in declared}


def _rows(declared: Pass) -> Iterator[tuple[str, str, str, str]]:
    for argument in declared.all_arguments:
        yield f"`{argument.name}`", _default(argument), _takes(argument), argument.help
    if declared.others is not None:
        yield (
            f"*{declared.others.name or 'any other'}*",
            "",
            _takes(declared.others),
            f"{declared.others.help}; any number of these",
        )


def _default(argument: Argument) -> str:
    if argument.required:
        return "required"
    return "" if argument.default is None else f"`{shown(argument.default)}`"


def _takes(argument: Argument) -> str:
    usual = f", usually one of {', '.join(argument.choices)}" if argument.kind != "choice" and argument.choices else ""
    return argument.takes + usual


def index() -> Iterator[str]:
    """The page that lists every pass by its usual name."""
    from docs.library import grid

    yield (
        "# Passes by name\n\nThese names are used in pipelines, in settings, in editors and on the command line; "
        "[how passes work](../passes.md). A pass that needs weights or data waits until the model is built for real.\n"
    )
    for kind, title in (("transform", "Transforms"), ("analysis", "Analyses")):
        rows = [
            (f"[`{each.name}`](passes/{each.function.__name__}.md)", each.title, ", ".join(sorted(each.needs)))
            for each in built_in().values()
            if each.kind == kind
        ]
        yield f"## {title}\n\n{grid(('pass', 'effect', 'needs'), rows)}"
