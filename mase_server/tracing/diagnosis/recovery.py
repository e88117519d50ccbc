"""Continuing after an error, as compilers do: the expected result of a failed call replaces its result.

The recorder recovers only from errors that the call itself proves. Results derived from a stand-in are doubted: they
are neither recorded nor shown, and an error that involves one is not reported, since it may follow from the first.
So every reported error is independent, and every shown shape is one that eager PyTorch has.
"""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import nn

from mase_server.ops.paths import identity
from mase_server.ops.types import Kwargs
from mase_server.tracing.diagnosis.explainers import explain_call
from mase_server.tracing.diagnosis.failure import Call, Failure, Origin, name_of
from mase_server.tracing.importing.source import parse_file
from mase_server.tracing.recording.calling import GETTER, READS, iterate_leaf_tensors
from mase_server.tracing.recording.calls import Run, references
from mase_server.tracing.recording.positions import is_hidden
from mase_server.tracing.recording.recorder import Recorder
from mase_server.tracing.recording.rules import OutOfRangeError, check_bounds

_Args = tuple[Any, ...]


class RecoveringRecorder(Recorder):
    """A recorder that continues after errors that the failed call proves. recovered: those errors, in order."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.recovered: list[Failure] = []
        self._doubted: dict[int, torch.Tensor] = {}
        #: Were sizes of a stand-in read? Then even calls without doubted tensors may follow from one.
        self._spread = False

    def record(self, args: _Args, kwargs: Kwargs) -> Run:
        """Record as `Recorder.record`; raise the first error that was recovered from."""
        try:
            run = super().record(args, kwargs)
        except Exception as error:
            if not self.recovered:
                raise
            last = self.failure
            if last is not None and last.error is error and not self._spread and _is_proved(last):
                self.recovered.append(last)
        else:
            if not self.recovered:
                return run
            self.calls.pop()  # a failed forward has no output
        self.failure = self.recovered[0]
        raise self.failure.error

    def run(self, func: Callable[..., Any], args: _Args, kwargs: Kwargs) -> Any:
        """Run as `MetaMode.run`, and refuse an index of known value that is out of range, as eager does."""
        check_bounds(func, args, kwargs, self.shadows)
        return super().run(func, args, kwargs)

    def doubts(self, value: Any) -> bool:
        """Does a value depend on a stand-in?"""
        return bool(self._doubted) and any(identity(tensor) in self._doubted for tensor in iterate_leaf_tensors(value))

    def _output_argument(self, value: Any) -> Any:
        return None if self.recovered else super()._output_argument(value)

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: _Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._paused:
            return super().__torch_function__(func, types, args, kwargs)
        if self.doubts((args, kwargs)):
            return self._run_unrecorded(func, args, kwargs)
        try:
            return super().__torch_function__(func, types, args, kwargs)
        except Exception as error:  # noqa: BLE001 - whatever a call of the person's raises; it is raised again or told
            self._trace_operands(error, {**dict(enumerate(args)), **kwargs})
            return self._recover_from(error, lambda: stand_in(func, args, kwargs))

    def _call_leaf(self, module: nn.Module, path: str, args: Any, kwargs: Kwargs, original: Callable[..., Any]) -> Any:
        if self.doubts((args, kwargs)):
            self._paused += 1
            try:
                return self._mark_doubted(original(module, *args, **kwargs))
            except Exception as error:  # noqa: BLE001 - it may follow from a stand-in
                self._spread = True
                return self._mark_doubted(self._make_stand_in(error, lambda: stand_in_of(module, args)))
            finally:
                self._paused -= 1
        try:
            return super()._call_leaf(module, path, args, kwargs, original)
        except Exception as error:  # noqa: BLE001 - whatever a call of the person's raises; it is raised again or told
            self._trace_operands(error, dict(enumerate(args[:1])))
            return self._recover_from(error, lambda: stand_in_of(module, args))

    def _trace_operands(self, error: Exception, operands: dict[Any, Any]) -> None:
        """Note the sources of the operands of the call that raised."""
        if self.failure is None or self.failure.error is not error or self.failure.origins:
            return
        parts = {
            (at, i): item
            for at, each in operands.items()
            if isinstance(each, (list, tuple))
            for i, item in enumerate(each)
        }
        found = {
            at: origin for at, value in (operands | parts).items() if (origin := self._find_origin(value)) is not None
        }
        self.failure = replace(self.failure, origins=found)

    def _find_origin(self, value: Any) -> Origin | None:
        index = self._nodes.get(identity(value)) if isinstance(value, torch.Tensor) else None
        if index is None:
            return None
        while self.calls[index].helper and (before := references(self.calls[index].args)):
            index = before[0]
        call = self.calls[index]
        if call.kind in ("placeholder", "get_attr"):
            return None
        return Origin(f"`{call.target}`" if call.kind == "call_module" else name_of(call.target), call.stack)

    def _run_unrecorded(self, func: Callable[..., Any], args: _Args, kwargs: Kwargs) -> Any:
        """Make a call on doubted tensors without recording it."""
        if type(func) is GETTER or func in _SIZES or func in READS:
            self._spread = True
            return self._mark_doubted(self.run(func, args, kwargs))
        try:
            out = self.run(func, args, kwargs)
        except Exception as error:  # noqa: BLE001 - it may follow from a stand-in
            out = self._make_stand_in(error, lambda: stand_in(func, args, kwargs))
        if self.mutated:
            self._mark_doubted(args[:1])
        return self._mark_doubted(out)

    def _mark_doubted(self, value: Any) -> Any:
        for tensor in iterate_leaf_tensors(value):
            self._doubted[identity(tensor)] = tensor
        return value

    def _recover_from(self, error: Exception, make: Callable[[], Any]) -> Any:
        """The stand-in for the result of a call that raised; raises the error if there is none, or it may be no
        error."""
        failure = self.failure
        if not self.goes_on or failure is None or failure.error is not error:
            raise error
        if self._is_caught() or not _is_proved(failure):
            raise error
        out = self._make_stand_in(error, make)
        if not self._spread:
            error.__traceback__ = self._build_traceback()
            self.recovered.append(failure)
        return self._mark_doubted(out)

    def _make_stand_in(self, error: Exception, make: Callable[[], Any]) -> Any:
        with torch._C.DisableTorchFunction():
            try:
                out = make()
            except Exception:  # noqa: BLE001 - a kernel may refuse the stand-in's arguments too
                out = None
        if out is None:
            raise error
        return out

    def _is_caught(self) -> bool:
        """Does the user's code, or a library's, handle this call's exceptions itself?"""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame is not self._stop:
            if not is_hidden(frame.f_code) and frame.f_lineno in handled_lines(frame.f_code.co_filename):
                return True
            frame = frame.f_back
        return False

    def _build_traceback(self) -> TracebackType | None:
        """The traceback that the exception would have if it had reached the caller of the model."""
        found: TracebackType | None = None
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame is not self._stop:
            found = TracebackType(found, frame, frame.f_lasti, frame.f_lineno)
            frame = frame.f_back
        return found


def _is_proved(failure: Failure) -> bool:
    """Do the operands alone prove that the call cannot succeed?"""
    if isinstance(failure.error, OutOfRangeError):
        return True
    call = Call(failure.func, failure.args, failure.kwargs, failure.module, failure.path)
    return explain_call(call) is not None


@cache
def handled_lines(path: str) -> frozenset[int]:
    """The lines of a file on which surrounding code handles exceptions; all lines of a file that cannot be read."""
    try:
        tree = parse_file(path)
    except (OSError, SyntaxError, ValueError):
        return frozenset(range(1, 100_000))
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and node.handlers:
            found.update(range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1))
    return frozenset(found)


_SIZES = frozenset({torch.Tensor.size, torch.Tensor.dim, torch.Tensor.numel, torch.Tensor.__len__})

# The expected results of failed calls.


def stand_in_of(module: nn.Module, args: _Args) -> Any:
    """The result of a layer for an input that it accepts; None if unknown."""
    x = args[0] if args else None
    if not isinstance(x, torch.Tensor):
        return None
    match module:
        case nn.Linear():
            return x.new_empty(*x.shape[:-1], module.out_features, dtype=module.weight.dtype)
        case nn.Embedding():
            return x.new_empty(*x.shape, module.embedding_dim, dtype=module.weight.dtype)
        case nn.modules.conv._ConvNd():
            spatial = x.shape[-len(module.kernel_size) :]
            return module.forward(x.new_empty(len(x), module.in_channels, *spatial, dtype=module.weight.dtype))
        case nn.RNNBase():
            return module.forward(x.new_empty(*x.shape[:-1], module.input_size))
        case nn.LayerNorm() | nn.GroupNorm() | nn.modules.batchnorm._NormBase() | nn.RMSNorm():
            return torch.empty_like(x)
        case nn.modules.loss._Loss():
            return x.new_empty(())
    return None


def stand_in(func: Callable[..., Any], args: _Args, kwargs: Kwargs) -> torch.Tensor | None:
    """The result of a torch function for operands that it accepts; None if unknown."""
    name = name_of(func)
    operands = list(iterate_leaf_tensors((args, kwargs)))
    rule = _STAND_INS.get(name.removesuffix("_"))
    if rule is not None and operands:
        return rule(operands, args, kwargs)
    return max(operands, key=torch.Tensor.numel).clone() if name in _LIKE_OPERAND else None


def _stand_in_for_product(operands: list[torch.Tensor], args: _Args, kwargs: Kwargs) -> torch.Tensor:
    a, b = operands[:2]
    return a.new_empty(*a.shape[:-1], b.shape[-1])


def _stand_in_for_cat(operands: list[torch.Tensor], args: _Args, kwargs: Kwargs) -> torch.Tensor:
    first, dim = operands[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
    shape = list(first.shape)
    shape[dim] = sum(part.shape[dim] for part in operands if part.dim() == first.dim())
    return first.new_empty(shape)


def _stand_in_for_view(operands: list[torch.Tensor], args: _Args, kwargs: Kwargs) -> torch.Tensor:
    x = operands[0]
    sizes = args[1] if len(args) == 2 and isinstance(args[1], (tuple, list)) else args[1:]
    given = math.prod(size for size in sizes if size != -1)
    return x.new_empty([max(1, x.numel() // max(given, 1)) if size == -1 else size for size in sizes])


def _stand_in_for_linear(operands: list[torch.Tensor], args: _Args, kwargs: Kwargs) -> torch.Tensor:
    x, weight = operands[:2]
    return x.new_empty(*x.shape[:-1], weight.shape[0], dtype=weight.dtype)


def _stand_in_for_loss(operands: list[torch.Tensor], args: _Args, kwargs: Kwargs) -> torch.Tensor:
    return operands[0].new_empty(())


_STAND_INS: dict[str, Callable[[list[torch.Tensor], _Args, Kwargs], torch.Tensor]] = {
    **dict.fromkeys(("matmul", "mm", "bmm"), _stand_in_for_product),
    **dict.fromkeys(("cat", "concat", "concatenate"), _stand_in_for_cat),
    **dict.fromkeys(("view", "reshape"), _stand_in_for_view),
    **dict.fromkeys(("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "binary_cross_entropy"), _stand_in_for_loss),
    "binary_cross_entropy_with_logits": _stand_in_for_loss,
    "linear": _stand_in_for_linear,
}
_LIKE_OPERAND = frozenset(
    {
        "add", "radd", "iadd", "sub", "rsub", "isub", "mul", "rmul", "imul", "div", "truediv", "where", "masked_fill",
        "layer_norm", "batch_norm", "group_norm", "maximum", "minimum", "add_", "sub_", "mul_", "masked_fill_",
    }
)  # fmt: skip
