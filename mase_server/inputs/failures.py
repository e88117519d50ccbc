"""Whose error is it when no inputs succeed: that of the inputs, or the forward's own?

Wrong inputs fail in many ways, and early. Where everything that gets furthest fails at the same line for the same
reason, whatever its sizes, the mistake is in the forward.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch.nn.modules.module import register_module_forward_hook

from mase_server.inputs.spec import Inputs

#: As many failures of one kind, with nothing getting further, are taken for the answer.
CERTAIN = 24
#: As many are needed to tell at all.
ENOUGH = 2
#: Sizes that depend on the inputs': all of a convolution's `input[2, 16, 30, 30]`, whose channels the text repeats;
#: else all but the last of `[32, 400]` and of `(32x400`.
_SIZES = re.compile(r"input\[[\d, ]*\]|(?<=\[)(?:\d+, )+(?=\d+\])|(?<=\()\d+x")


@dataclass(slots=True)
class Furthest:
    """The tries that completed the most layers before they failed."""

    layers: int = 0
    inputs: list[Inputs] = field(default_factory=list)
    kinds: dict[tuple[str, ...], BaseException] = field(default_factory=dict)
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

    def failed(self, inputs: Inputs, error: BaseException) -> None:
        """The forward that was counted failed."""
        if self._count > self.layers:
            self.layers, self.inputs, self.kinds = self._count, [], {}
        if self._count == self.layers:
            self.inputs.append(inputs)
            self.kinds.setdefault(kind_of(error), error)

    def errors(self) -> tuple[BaseException, ...]:
        """What they failed with, one error of each kind."""
        return tuple(self.kinds.values())

    def is_certain(self) -> bool:
        """Have enough tries told the same? One endless recursion is enough, since each takes long."""
        if any(kind[0] == RecursionError.__name__ for kind in self.kinds):
            return len(self.inputs) >= ENOUGH and self.likely() is not None
        return len(self.inputs) >= CERTAIN and self.likely() is not None

    def likely(self) -> Inputs | None:
        """The first inputs that got furthest, if the error that they met is the forward's own."""
        told = self.layers > 0 and len(self.inputs) >= ENOUGH and len(self.kinds) == 1
        return self.inputs[0] if told else None


def kind_of(error: BaseException) -> tuple[str, ...]:
    """What two errors share if they have one cause: type, place, and what is said, without the inputs' sizes."""
    frames = traceback.extract_tb(error.__traceback__)
    place = [f"{frame.filename}:{frame.lineno}" for frame in frames]
    return (type(error).__name__, _SIZES.sub("", str(error)), *place)
