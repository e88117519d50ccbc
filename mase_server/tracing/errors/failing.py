"""A program on meta that remembers the torch call which raised, as a recorder does for a forward."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from mase_server.tracing.calling import Values
from mase_server.tracing.errors.failure import Failure
from mase_server.tracing.shadow import MetaMode, Shadows


class FailureMode(MetaMode):
    """MetaMode that describes the call out of which an exception came. failure: the last such call."""

    def __init__(self, shadows: Shadows) -> None:
        super().__init__(shadows)
        self.failure: Failure | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Values = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        try:
            return self.run(func, args, kwargs or {})
        except Exception as error:
            if self.failure is None or self.failure.error is not error:
                with torch._C.DisableTorchFunction():
                    self.failure = Failure.of(error, func, args, kwargs or {}, "")
            raise
