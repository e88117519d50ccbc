"""Modules that hold themselves: torch's own walks over them (`to`, `eval`, `state_dict`) do not end."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from torch import nn


class HoldsItselfError(ValueError):
    """A module is one of its own parts. place: the file and line that make it so, None where they are not found."""

    def __init__(self, path: str, kind: str, place: tuple[str, int] | None) -> None:
        super().__init__(
            f"the part {path!r} of the model is the {kind} that it is in, so torch's walks over the model (to, eval, "
            f"state_dict) do not end. Keep it in a list, `self.up = [module]`, which torch does not look into."
        )
        self.place = place


def require_tree(root: nn.Module) -> None:
    """HoldsItselfError for a module that is below itself. Modules that are shared are fine."""
    done: set[int] = set()  # by identity: a person's modules may compare as they like
    above: dict[int, nn.Module] = {}
    todo: list[tuple[nn.Module | None, str]] = [(root, "")]
    while todo:
        module, path = todo.pop()
        if module is None:  # all below the last one has been seen
            done.add(above.popitem()[0])
        elif id(module) in above:
            name = path.rpartition(".")[2]
            raise HoldsItselfError(path, type(module).__name__, _assignment(list(above.values()), name))
        elif id(module) not in done:
            above[id(module)] = module
            todo.append((None, ""))
            parts = ((child, f"{path}.{name}" if path else name) for name, child in module._modules.items())
            todo.extend((child, below) for child, below in parts if child is not None)


def _assignment(modules: list[nn.Module], name: str) -> tuple[str, int] | None:
    """Where a file that one of these modules is from, the innermost first, assigns an attribute of this name."""
    for kind in dict.fromkeys(type(module) for module in reversed(modules)):
        try:
            file = inspect.getfile(kind)
            tree = ast.parse(Path(file).read_bytes())
        except (TypeError, OSError, SyntaxError, ValueError):
            continue
        for node in (each for each in ast.walk(tree) if isinstance(each, ast.Assign)):
            if any(isinstance(target, ast.Attribute) and target.attr == name for target in node.targets):
                return file, node.lineno
    return None
