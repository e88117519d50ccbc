"""What the recorder knows of a call that raised: enough to explain the error to the person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from mase_server.tracing.calling import map_leaves
from mase_server.tracing.positions import Stack
from mase_server.tracing.values import tensor_type

#: What a person's code may raise at our borders: an exception, its `sys.exit`, a KeyboardInterrupt of its own.
RAISED = (Exception, SystemExit, KeyboardInterrupt)


@dataclass(frozen=True, slots=True)
class Origin:
    """What made an operand: the path of a layer or the name of a function, and the frames that called it."""

    maker: str
    stack: Stack


@dataclass(frozen=True, slots=True)
class Failure:
    """A torch callable that raised `error`.

    args, kwargs: its arguments with tensors replaced by `TensorType`.  scope: path of the module whose forward ran.
    module, path: the leaf module inside which it happened, if any.  origins: what made the operands, by position.
    """

    error: BaseException
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    scope: str
    module: nn.Module | None = None
    path: str = ""
    origins: Mapping[Any, Origin] = field(default_factory=dict)

    @classmethod
    def of(
        cls, error: BaseException, func: Callable[..., Any], args: Any, kwargs: dict[str, Any], scope: str
    ) -> Failure:
        """Describe the call while its arguments are at hand."""

        def change(value: Any) -> Any:
            return tensor_type(value) if isinstance(value, torch.Tensor) else value

        return cls(error, func, map_leaves(args, change), map_leaves(kwargs, change), scope)

    def inside(self, module: nn.Module, path: str) -> Failure:
        """The same failure, known to have happened inside a leaf module."""
        return replace(self, module=module, path=path)
