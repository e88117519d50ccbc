"""One model's recordings: the base run, and the probes that find its symbols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from mase_server.inputs.generate import inputs_at
from mase_server.inputs.roles import describe
from mase_server.inputs.spec import Inputs
from mase_server.tracing.bindings import Reports
from mase_server.tracing.calls import Run
from mase_server.tracing.probe import Probed, Prober
from mase_server.tracing.recorder import IsLeaf, Recorder, is_torch_leaf
from mase_server.tracing.shadow import Shadows
from mase_server.tracing.state import unchanged


class Session:
    """Records one model as often as it takes.

    arguments: forward's arguments by parameter name, tensors real or meta.  The model is left as it was.
    """

    def __init__(
        self,
        model: nn.Module,
        arguments: Mapping[str, Any],
        shadows: Shadows | None = None,
        *,
        is_leaf: IsLeaf = is_torch_leaf,
        reports: Reports | None = None,
    ) -> None:
        self.model, self.arguments = model, dict(arguments)
        self.shadows = shadows or Shadows()
        self.is_leaf, self.reports = is_leaf, reports
        self.inputs: Inputs = describe(self.arguments, model, self._value_of)
        self.recorder: Recorder | None = None

    def _value_of(self, tensor: Any) -> Any:
        return self.shadows.get(tensor) if tensor.is_meta else tensor

    def record(self) -> Run:
        """The base run, on the given arguments; raises what the forward raises (`recorder` then tells more)."""
        return self._record(self.arguments, positions=True)

    def record_at(self, sizes: Mapping[str, int]) -> Run:
        """A run at other sizes of the symbols, without positions."""
        return self._record(inputs_at(self.inputs, sizes), positions=False)

    def probe(self, base: Run) -> Probed:
        """Find which symbols may vary and how everything depends on them."""
        return Prober(base, self.inputs.sizes, self.record_at).probe()

    def _record(self, arguments: Mapping[str, Any], *, positions: bool) -> Run:
        self.recorder = Recorder(
            self.model, self.shadows, is_leaf=self.is_leaf, positions=positions, reports=self.reports
        )
        args, kwargs = positional(self.model, arguments)
        with unchanged(self.model, self.shadows):
            return self.recorder.record(args, kwargs)


def positional(model: nn.Module, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by parameter name as (args, kwargs) for calling the model: *args spread, **kwargs merged."""
    import inspect

    bound = inspect.signature(model.forward).bind_partial()
    parameters = bound.signature.parameters
    extra = next((name for name, p in parameters.items() if p.kind is inspect.Parameter.VAR_KEYWORD), None)
    for name, value in arguments.items():
        if name in parameters:
            bound.arguments[name] = value
        elif extra is not None:
            bound.arguments.setdefault(extra, {})[name] = value
    return bound.args, bound.kwargs
