"""Every pass by its name: found in the files of this package, each of which declares at most one."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from mase_server.passes.declaration import Pass
from mase_server.passes.workspace import workspace_passes
from mase_server.suggestions import suggest


@cache
def built_in() -> Mapping[str, Pass]:
    """Name -> pass, in the order of their names."""
    folder, prefix = str(Path(__file__).parent), f"{__package__}."
    modules = [importlib.import_module(file.name) for file in pkgutil.walk_packages([folder], prefix)]
    declared = [module.PASS for module in modules if "PASS" in vars(module)]
    return {each.name: each for each in sorted(declared, key=lambda each: each.name)}


def passes_for(folder: str, path: str) -> Mapping[str, Pass]:
    """Name -> pass: the built-in ones, and those of the workspace `folder`, the file `path` first.

    Only for folders whose code may run: whoever calls one of these passes runs it.
    """
    return {**built_in(), **workspace_passes(folder, path, built_in())}


def named(name: str, known: Mapping[str, Pass]) -> Pass:
    """The pass of a name, or of MASE's name for its function. ValueError, with the nearest one, where there is none."""
    by_function = {each.function.__name__: each for each in known.values()}
    found = known.get(name) or by_function.get(name)
    if found is None:
        short = name.removesuffix("_transform_pass").removesuffix("_analysis_pass")
        raise ValueError(f"there is no pass {name!r}{suggest(short, known)}")
    return found
