"""Models that torch's own walks (`to`, `eval`, `state_dict`) cannot go over: a part holds itself, or has no name."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path

from torch import nn


class UnwalkableError(ValueError):
    """torch cannot walk over a model. place: the file and line that make it so, None where they are not found."""

    def __init__(self, text: str, place: tuple[str, int] | None) -> None:
        super().__init__(text)
        self.place = place


class HoldsItselfError(UnwalkableError):
    """A module is one of its own parts."""


class KeyIsNoTextError(UnwalkableError):
    """A module keeps a part under a key that is no text."""


class NestedTooDeepError(UnwalkableError):
    """Modules are nested deeper than Python lets calls be inside of each other."""


def require_tree(root: nn.Module) -> None:
    """HoldsItselfError for a module that is below itself, KeyIsNoTextError for a part whose key is no text,
    NestedTooDeepError for parts that not even a walk reaches.

    Modules that are shared are fine.
    """
    done: set[int] = set()  # by identity: a person's modules may compare as they like
    above: dict[int, nn.Module] = {}
    todo: list[tuple[nn.Module | None, str]] = [(root, "")]
    while todo:
        module, path = todo.pop()
        if module is None:  # all below the last one has been seen
            done.add(above.popitem()[0])
        elif id(module) in above:
            text = (
                f"the part {path!r} of the model is the {type(module).__name__} that it is in, so torch's walks over "
                f"the model (to, eval, state_dict) do not end. Keep it in a list, `self.up = [module]`, which torch "
                f"does not look into."
            )
            raise HoldsItselfError(text, _assignment(list(above.values()), path.rpartition(".")[2]))
        elif id(module) not in done:
            above[id(module)] = module
            if len(above) > (limit := sys.getrecursionlimit()):
                text = (
                    f"the parts of the model are nested more than {limit} deep, Python's limit for calls inside of "
                    f"each other, so its forward and torch's walks over it (to, eval, state_dict) fail. Nest them less "
                    f"deep, or raise the limit with sys.setrecursionlimit."
                )
                raise NestedTooDeepError(text, _definition(type(root)))
            todo.append((None, ""))
            for table in ("_modules", "_parameters", "_buffers"):
                for key in (key for key in vars(module)[table] if not isinstance(key, str)):
                    text = (
                        f"{f'the part {path!r} of ' if path else ''}the model, a {type(module).__name__}, keeps a part "
                        f"under the key {key!r:.80} in its {table}, and torch's walks over the model (parameters, "
                        f"state_dict) take only text. Use the key {str(key)!r:.80}."
                    )
                    raise KeyIsNoTextError(text, _assignment(list(above.values()), table))
            parts = ((child, f"{path}.{name}" if path else name) for name, child in module._modules.items())
            todo.extend((child, below) for child, below in parts if child is not None)


def _definition(kind: type[nn.Module]) -> tuple[str, int] | None:
    try:
        return inspect.getfile(kind), inspect.getsourcelines(kind)[1]
    except (TypeError, OSError, SyntaxError):
        return None


def _assignment(modules: list[nn.Module], name: str) -> tuple[str, int] | None:
    """Where a file that one of these modules is from, the innermost first, assigns an attribute of this name."""
    for kind in dict.fromkeys(type(module) for module in reversed(modules)):
        try:
            file = inspect.getfile(kind)
            tree = ast.parse(Path(file).read_bytes())
        except (TypeError, OSError, SyntaxError, ValueError):
            continue
        for node in (each for each in ast.walk(tree) if isinstance(each, ast.Assign)):
            targets = [target.value if isinstance(target, ast.Subscript) else target for target in node.targets]
            if any(isinstance(target, ast.Attribute) and target.attr == name for target in targets):
                return file, node.lineno
    return None
