"""What a pass says of itself: its name, its arguments, what it needs; menus, command line and docs are made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mase_server.passes.arguments import Result

#: integer, number, boolean, text: as in JSON.  choice: one of `choices`.  format: a number format's text, e.g.
#: "fixed(8,4)".  texts: a list of texts.  map: a map whose entries the pass reads itself.  file: a path.
Kind = Literal["integer", "number", "boolean", "text", "choice", "format", "texts", "map", "file"]

#: weights: the values of parameters, so the model is built for real.  data: it runs the model, on the data that the
#: argument `data` names, else on random inputs.  metadata: common metadata, which is then added before.
Need = Literal["weights", "data", "metadata"]

PassFunction = Callable[..., Result]


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument. name: its key in pass_args; a dotted one stands in a map, e.g. "weight.sparsity".

    default: None where the pass decides.  minimum, maximum: both included.
    """

    name: str
    kind: Kind
    help: str
    default: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None


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
        return (self.function.__doc__ or "").strip().split("\n\n")[0]

    def to_wire(self) -> dict[str, Any]:
        """All of it but the function, as a map of plain values."""
        raise NotImplementedError

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """pass_args of given arguments, whose values may be texts (a command line's); dotted keys may be used.

        ValueError says which argument is unknown, missing or out of range, and what it takes.
        """
        raise NotImplementedError
