"""What a pass says of itself: its name, its arguments, what it needs; menus, command line and docs are made of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mase_server.arguments import Argument, Checker, nested
from mase_server.formats import parse
from mase_server.passes.arguments import Result

__all__ = ["ONLY", "Argument", "Need", "Pass", "PassFunction"]

#: weights: the values of parameters, so the model is built for real.  data: it runs the model, on the data that the
#: argument `data` names, else on random inputs.  metadata: common metadata, which is then added before.
Need = Literal["weights", "data", "metadata"]

PassFunction = Callable[..., Result]

#: What passes that select take besides.
ONLY = Argument("only", "texts", "names of nodes, or paths of modules, which cover all below; everything without it")


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass. name: as a person calls it, e.g. "quantize"; the function's MASE name is `function.__name__`.

    title: the words of the menu.  kind: an analysis leaves the graph as it is.  others: what further keys of pass_args
    mean, where the pass takes any.  selects: has it the argument `only`, the nodes, layers or scopes to work on (see
    `selection`)?  menu: is it offered in editors?  source: the file of a pass that is the workspace's own.
    """

    name: str
    title: str
    kind: Literal["analysis", "transform"]
    function: PassFunction
    arguments: tuple[Argument, ...] = ()
    others: Argument | None = None
    needs: frozenset[Need] = field(default_factory=frozenset)
    selects: bool = False
    menu: bool = True
    source: str = ""

    @property
    def help(self) -> str:
        """The first paragraph of the function's docstring."""
        return (inspect.getdoc(self.function) or "").strip().split("\n\n")[0]

    @property
    def all_arguments(self) -> tuple[Argument, ...]:
        """The arguments, with `only` last where the pass selects."""
        return (*self.arguments, *([ONLY] if self.selects else []))

    def to_wire(self) -> dict[str, Any]:
        """All of it but the function, as a map of plain values. arguments: `all_arguments`.  mase: MASE's name."""
        plain = {key: getattr(self, key) for key in ("name", "title", "kind", "selects", "menu", "source", "help")}
        return {
            **plain,
            "mase": self.function.__name__,
            "needs": sorted(self.needs),
            "arguments": [argument.to_wire() for argument in self.all_arguments],
            "others": None if self.others is None else self.others.to_wire(),
        }

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """pass_args of given arguments, whose values may be texts (a command line's); dotted keys may be used.

        Declared defaults stand where nothing was given. ArgumentError, a ValueError, says which argument is unknown,
        missing or out of range, and what it takes.
        """
        checker = Checker(self.name, self.all_arguments, self.others, parse)
        return nested(checker.check(given), [argument.name for argument in self.all_arguments])
