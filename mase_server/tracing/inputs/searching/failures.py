"""Deciding whether inputs or the forward itself are at fault when no inputs succeed.

Wrong inputs fail in many ways, and early. If all inputs that get furthest fail at the same line for the same
reason, whatever their sizes, the mistake is in the forward.

If the inputs fail at one line for different reasons, a warning names them; if the constructor's arguments were guessed
too, only that nothing was found is reported.
"""

from __future__ import annotations

import ast
import dis
import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from traceback import walk_tb
from typing import Any, TypeGuard

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from mase_server.tracing.importing.placeholders import MissingPackageError, find_placeholder_error
from mase_server.tracing.inputs.searching.operands import OPERANDS, Trail, compare_elementwise, list_operands, trail_of
from mase_server.tracing.inputs.searching.trees import Path, iterate_all_members, iterate_tensor_specs, values_at
from mase_server.tracing.inputs.spec import Inputs, InputValues, Spec, TensorSpec
from mase_server.tracing.models.clues import Clue, Step, clue_of
from mase_server.tracing.models.guesses import GuessedIdentity, GuessedNetwork
from mase_server.tracing.recording.positions import is_hidden

# A failed try: the inputs, the place of its error, and the inputs that caused it.


@dataclass(frozen=True, slots=True)
class Failed:
    """The facts about a failed try. text: `Type: message`.

    progress: how far it came.  places: the place of every input value, by its id.  clue: the statements
    that the error passed.
    """

    model: nn.Module
    inputs: Inputs
    error: BaseException
    text: str
    trail: Trail
    clue: Clue
    places: dict[int, Path]
    specs: dict[Path, Spec]
    progress: int = 0

    @classmethod
    def of(cls, model: nn.Module, inputs: Inputs, values: InputValues, error: BaseException, layers: int = 0) -> Failed:
        """values: the inputs, by parameter name.  layers: the number of completed modules."""
        trail, clue = trail_of(error), clue_of(error, model.forward, {})
        pairs = (pair for name, spec in inputs.entries.items() for pair in values_at((name,), values[name], spec))
        found = {id(value): path for path, value in pairs if not isinstance(value, int | float | str | None)}
        progress = layers + trail.progress
        return cls(model, inputs, error, clue.text, trail, clue, found, dict(iterate_all_members(inputs)), progress)

    def is_of_inputs(self) -> bool:
        """Was the failing call given only inputs, or values computed from inputs alone?"""
        mode = self.trail.mode
        roots = (
            set[int]().union(*(mode.sources_of(each) for each in list_operands(self.trail))) if mode is not None else ()
        )
        return bool(roots) and all(each in self.places for each in roots)

    def place(self, value: Any) -> Path | None:
        """The place of a value among the inputs; None if it is no input."""
        return self.places.get(id(value))

    def leaf(self, value: Any) -> TensorSpec | None:
        """The specification of an input tensor."""
        spec = self.specs.get(self.place(value) or ())
        return spec if isinstance(spec, TensorSpec) else None

    def sources(self, tensor: torch.Tensor) -> list[Path]:
        """The input tensors from which a tensor was computed; all of them if that was not tracked."""
        if self.trail.mode is None:
            return [path for path, _ in iterate_tensor_specs(self.inputs)]
        ids = self.trail.mode.sources_of(tensor)
        return [
            path for path, _ in iterate_tensor_specs(self.inputs) if any(self.places.get(each) == path for each in ids)
        ]

    def suspects(self) -> list[tuple[Path, TensorSpec]]:
        """Input tensors, with those first that the failing call and statements involve."""
        direct = [self.place(tensor) for tensor in list_operands(self.trail)]
        held = [self.place(value) for _, value, _ in self.read()]
        behind = [path for tensor in list_operands(self.trail) for path in self.sources(tensor)]
        ordered = dict.fromkeys(path for path in (*direct, *held, *behind) if path is not None)
        pairs = ((path, self.specs.get(path)) for path in ordered)
        return [(path, spec) for path, spec in pairs if isinstance(spec, TensorSpec)]

    def meets_table(self) -> bool:
        """Was a value combined, element by element, with a table that no input changes, such as that of positions?"""
        if OPERANDS.get(self.trail.name) is not compare_elementwise or self.trail.mode is None:
            return False
        return any(each.dim() > 1 and not self.sources(each) for each in list_operands(self.trail))

    def read(self) -> Iterator[tuple[ast.expr, Any, Step]]:
        """Names, attributes and items that the failing statements read, innermost statement first."""
        for step in reversed(self.clue.steps):
            for each in ast.walk(_get_statement_head(step.node)):
                if isinstance(each, ast.Name | ast.Attribute) or _is_item(each):
                    yield each, step.value(each), step


def _is_item(node: ast.AST) -> TypeGuard[ast.Subscript]:
    """`batch["image"]`, `pair[0]`: an item, not a computation on a tensor."""
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)


def _get_statement_head(node: ast.stmt) -> ast.AST:
    """The part of a statement that runs before the statements inside it."""
    match node:
        case ast.If(test=head) | ast.While(test=head) | ast.For(iter=head):
            return head
        case ast.With(items=items):
            return ast.Tuple([item.context_expr for item in items], ast.Load())
    return node


#: The number of failures of one kind, with none getting further, that decide the answer.
CERTAIN = 24
#: The least number of failures for an answer.
ENOUGH = 2
#: The number of tries that are made in any case after an error that no inputs avoid.
PATIENCE = 6
#: Sizes that depend on the inputs': all of a convolution's `input[2, 16, 30, 30]`, whose channels the text repeats;
#: else all but the last of `[32, 400]` and of `(32x400`.
_SIZES = re.compile(r"input\[[\d, ]*\]|(?<=\[)(?:\d+, )+(?=\d+\])|(?<=\()\d+x")
#: Refusals of torch that no usual inputs avoid: a view of what was transposed, unless it is a sequence of one token, a
#: spectrum of real numbers whose form is not given, and a mask of bytes, which is never an input.
_REFUSALS = re.compile(
    r"view size is not compatible|stft requires the return_complex parameter"
    r"|(?:predicate to be bool|boolean masks), .*\buint8"
)
_RAISE = dis.opmap["RAISE_VARARGS"]
_ARGUMENTS = re.compile(r"missing \d+ required positional|unexpected keyword argument|positional arguments? but")


@dataclass(slots=True)
class Furthest:
    """The tries that completed the most layers before they failed."""

    layers: int = 0
    inputs: list[Inputs] = field(default_factory=list)
    kinds: dict[tuple[str, ...], BaseException] = field(default_factory=dict)
    tries: int = 0
    #: The first inputs that met an error of each kind.
    _first: dict[tuple[str, ...], Inputs] = field(default_factory=dict)
    #: Kinds of errors that concern only inputs, or are refusals: other inputs may succeed.
    _avoidable: set[tuple[str, ...]] = field(default_factory=set)
    _count: int = 0
    #: Did a try end for want of memory? Then its inputs may have been right.
    _starved: bool = False

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the layers that the forward inside completes."""
        self._count = 0
        handle = register_module_forward_hook(lambda *_: self._count_layer())
        try:
            yield
        finally:
            handle.remove()

    def _count_layer(self) -> None:
        self._count += 1

    @property
    def completed(self) -> int:
        """The number of layers that the last counted forward completed."""
        return self._count

    def failed(self, inputs: Inputs, error: BaseException, *, of_inputs: bool = False) -> None:
        """Note that the counted forward failed. of_inputs: in a call that was given only inputs."""
        self.tries += 1
        self._starved = self._starved or "can't allocate memory" in str(error)
        if self._count > self.layers:
            self.layers, self.inputs, self.kinds, self._first, self._avoidable = self._count, [], {}, {}, set()
        if self._count == self.layers:
            self.inputs.append(inputs)
            kind = kind_of(error)
            self.kinds.setdefault(kind, error)
            self._first.setdefault(kind, inputs)
            if not is_unavoidable(error) and (of_inputs or is_check(error)):
                self._avoidable.add(kind)

    def errors(self) -> tuple[BaseException, ...]:
        """The errors of the furthest tries, one of each kind."""
        return tuple(self.kinds.values())

    def is_certain(self) -> bool:
        """Have enough tries given the same answer? One endless recursion is enough, since each takes long."""
        if any(map(is_unavoidable, self.kinds.values())):
            return self.tries >= (PATIENCE if len(self.kinds) == 1 else CERTAIN) and self.likely() is not None
        if any(kind[0] == RecursionError.__name__ for kind in self.kinds):
            return len(self.inputs) >= ENOUGH and self.likely() is not None
        return len(self.inputs) >= CERTAIN and self.likely() is not None

    def likely(self) -> Inputs | None:
        """The first inputs that got furthest, if their error is the forward's own; of several errors, the one that no
        inputs avoid."""
        own = next((kind for kind, error in self.kinds.items() if is_unavoidable(error)), None)
        if own is not None:
            return self._first[own]
        if self.layers == 0 or len(self.kinds) != 1 or self._avoidable or self._starved:
            return None
        return self.inputs[0] if len(self.inputs) >= ENOUGH else None

    def plausible(self) -> Inputs | None:
        """The first inputs that got furthest, if all that got so far failed at one line, for any reason."""
        places = {kind[2:] for kind in self.kinds}
        return self.inputs[0] if self.layers > 0 and len(places) == 1 and not self._starved else None


def is_unavoidable(error: BaseException) -> bool:
    """Would other inputs cause the same error: an unknown name, a wrong number of arguments between own functions?

    A local name without a value is not known to be one: a branch that other inputs take may bind it. Nor are arguments
    that all functions around the call may only have handed on, as `forward(self, *args)` does.
    """
    if isinstance(error, UnboundLocalError):
        return False
    error = find_placeholder_error(error)
    if isinstance(error, NameError | MissingPackageError) or _REFUSALS.search(str(error)):
        return True
    if isinstance(error, AttributeError):
        return isinstance(error.obj, nn.Module) and not isinstance(error.obj, GuessedNetwork | GuessedIdentity)
    if not isinstance(error, TypeError) or _ARGUMENTS.search(str(error)) is None:
        return False
    codes = (frame.f_code for frame, _ in walk_tb(error.__traceback__))
    return any(not code.co_flags & _HANDS_ON for code in codes if not is_hidden(code))


#: The flags of functions that take any arguments.
_HANDS_ON = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def is_check(error: BaseException) -> bool:
    """Did code outside of torch refuse something by `assert` or `raise`, or read a size that the inputs do not have, or
    a name that no branch that it took has bound?

    It may have refused only a guessed value.
    """
    if isinstance(error, UnboundLocalError):
        return True
    if isinstance(error, IndexError) and str(error) == "tuple index out of range":
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = None if trace is None else trace.tb_frame.f_code
    return trace is not None and code is not None and not is_hidden(code) and code.co_code[trace.tb_lasti] == _RAISE


def kind_of(error: BaseException) -> tuple[str, ...]:
    """The common properties of errors with one cause: type, text without the inputs' sizes, the user's lines.

    Torch's own lines differ between inputs of two and of three dimensions.
    """
    trace = walk_tb(error.__traceback__)
    place = [f"{frame.f_code.co_filename}:{line}" for frame, line in trace if not is_hidden(frame.f_code)]
    return (type(error).__name__, _SIZES.sub("", str(error)), *place)
