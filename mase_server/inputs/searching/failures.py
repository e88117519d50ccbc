"""Whose error is it when no inputs succeed: that of the inputs, or the forward's own?

Wrong inputs fail in many ways, and early. Where everything that gets furthest fails at the same line for the same
reason, whatever its sizes, the mistake is in the forward.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from traceback import walk_tb

from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from mase_server.inputs.spec import Inputs
from mase_server.tracing.loading.placeholders import MissingPackageError
from mase_server.tracing.positions import is_hidden

#: As many failures of one kind, with nothing getting further, are taken for the answer.
CERTAIN = 24
#: As many are needed to tell at all.
ENOUGH = 2
#: As many tries are made in any case where one has met what no inputs avoid.
PATIENCE = 6
#: Sizes that depend on the inputs': all of a convolution's `input[2, 16, 30, 30]`, whose channels the text repeats;
#: else all but the last of `[32, 400]` and of `(32x400`.
_SIZES = re.compile(r"input\[[\d, ]*\]|(?<=\[)(?:\d+, )+(?=\d+\])|(?<=\()\d+x")
#: Only inputs that have nothing to transpose, such as sequences of one token, would do.
_VIEW = "view size is not compatible"
_RAISE = dis.opmap["RAISE_VARARGS"]
_ARGUMENTS = re.compile(r"missing \d+ required positional|unexpected keyword argument|positional arguments? but")


@dataclass(slots=True)
class Furthest:
    """The tries that completed the most layers before they failed."""

    layers: int = 0
    inputs: list[Inputs] = field(default_factory=list)
    kinds: dict[tuple[str, ...], BaseException] = field(default_factory=dict)
    tries: int = 0
    #: The kinds that are about inputs alone, or a refusal: other inputs may do.
    _avoidable: set[tuple[str, ...]] = field(default_factory=set)
    _count: int = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the layers that the forward inside completes."""
        self._count = 0
        handle = register_module_forward_hook(lambda *_: self._completed())
        try:
            yield
        finally:
            handle.remove()

    def _completed(self) -> None:
        self._count += 1

    @property
    def completed(self) -> int:
        """How many layers the forward that was counted last completed."""
        return self._count

    def failed(self, inputs: Inputs, error: BaseException, *, of_inputs: bool = False) -> None:
        """The forward that was counted failed. of_inputs: in a call that was given nothing else."""
        self.tries += 1
        if self._count > self.layers:
            self.layers, self.inputs, self.kinds, self._avoidable = self._count, [], {}, set()
        if self._count == self.layers:
            self.inputs.append(inputs)
            kind = kind_of(error)
            self.kinds.setdefault(kind, error)
            if not unavoidable(error) and (of_inputs or is_check(error)):
                self._avoidable.add(kind)

    def errors(self) -> tuple[BaseException, ...]:
        """What they failed with, one error of each kind."""
        return tuple(self.kinds.values())

    def is_certain(self) -> bool:
        """Have enough tries told the same? One endless recursion is enough, since each takes long."""
        if any(map(unavoidable, self.kinds.values())):
            return self.tries >= PATIENCE and self.likely() is not None
        if any(kind[0] == RecursionError.__name__ for kind in self.kinds):
            return len(self.inputs) >= ENOUGH and self.likely() is not None
        return len(self.inputs) >= CERTAIN and self.likely() is not None

    def likely(self) -> Inputs | None:
        """The first inputs that got furthest, if the error that they met is the forward's own."""
        if self.layers == 0 or len(self.kinds) != 1 or self._avoidable:
            return None
        enough = len(self.inputs) >= ENOUGH or unavoidable(self.errors()[0])
        return self.inputs[0] if enough else None

    def plausible(self) -> Inputs | None:
        """The first inputs that got furthest, if all that got so far failed at one line, whatever the reasons."""
        places = {kind[2:] for kind in self.kinds}
        return self.inputs[0] if self.layers > 0 and len(places) == 1 else None


def unavoidable(error: BaseException) -> bool:
    """Would other inputs meet the same: a name that is not there, a wrong number of arguments between own functions?"""
    if isinstance(error, NameError | MissingPackageError) or _VIEW in str(error):
        return True
    if isinstance(error, AttributeError):
        return isinstance(error.obj, nn.Module)
    inner = sum(not is_hidden(frame.f_code) for frame, _ in walk_tb(error.__traceback__))
    return isinstance(error, TypeError) and inner > 0 and _ARGUMENTS.search(str(error)) is not None


def is_check(error: BaseException) -> bool:
    """Did code outside of torch refuse something on its own account, by `assert` or `raise`?

    What it refuses may be nothing but what was guessed.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = None if trace is None else trace.tb_frame.f_code
    return trace is not None and code is not None and not is_hidden(code) and code.co_code[trace.tb_lasti] == _RAISE


def kind_of(error: BaseException) -> tuple[str, ...]:
    """What two errors share if they have one cause: type, what is said without the inputs' sizes, the person's lines.

    Torch's own lines differ between inputs of two and of three dimensions.
    """
    trace = walk_tb(error.__traceback__)
    place = [f"{frame.f_code.co_filename}:{line}" for frame, line in trace if not is_hidden(frame.f_code)]
    return (type(error).__name__, _SIZES.sub("", str(error)), *place)
