"""Functions of the workspace's files, imported when they are first called: in the fork that runs them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result


class LazyFunction:
    """A function of a file. It is called like the function itself. line: of its definition."""

    def __init__(self, path: str, name: str, line: int, docstring: str, takes_arguments: bool = True) -> None:
        self.path, self.line, self.takes_arguments = path, line, takes_arguments
        self.__name__, self.__doc__ = name, docstring

    def __call__(self, graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
        """Import the file, unless the model brought it along, and call the function."""
        function = namespace(self.path, graph.root)[self.__name__]
        found: Result = function(graph, dict(pass_args or {})) if self.takes_arguments else function(graph)
        return found


def namespace(path: str, model: nn.Module) -> Mapping[str, Any]:
    """The names of a file, as the model knows them, else as they are imported now.

    Files that the model's classes come from are not imported again: a pass that asks whether a layer is one of these
    classes must meet the very same.
    """
    known = dict(_of_classes(model))
    loaded = {getattr(module, "__file__", None): module for module in list(sys.modules.values())}
    for file in known.keys() - loaded.keys():
        name = _dotted(file)[0]
        module = loaded[file] = ModuleType(name)
        vars(module).update(known[file])
        # A library of this name stays what it is: others need it.
        sys.modules.setdefault(name, module)
    return vars(loaded[path] if path in loaded else _imported(path))


def _of_classes(model: nn.Module) -> Iterator[tuple[str, dict[str, Any]]]:
    """Path and names of the files that the classes of a model's modules were defined in."""
    for kind in {type(module) for module in model.modules()}:
        names = getattr(kind.forward, "__globals__", {})
        file = names.get("__file__")
        if isinstance(file, str):
            yield file, names


def _dotted(path: str) -> tuple[str, str]:
    """The dotted name of a file, and the folder that this name counts from."""
    file = Path(path)
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts), str(folder)


def _imported(path: str) -> ModuleType:
    """The module of a file, imported under its own name, or under another where that one is taken."""
    name, folder = _dotted(path)
    sys.path.insert(0, folder)
    try:
        if "." in name:
            return importlib.import_module(name)
        return _from_file(name if name not in sys.modules else f"_mase_pass_{name}", path)
    finally:
        sys.path.remove(folder)


def _from_file(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{os.path.basename(path)} cannot be imported as a Python module", path=path)  # noqa: PTH119
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
