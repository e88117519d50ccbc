"""One model's recordings: the base run, and the probes that find its symbols."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from mase_server.inputs.found import call_arguments
from mase_server.inputs.generate import LARGEST_FILLED, inputs_at
from mase_server.inputs.roles import describe
from mase_server.inputs.spec import Inputs
from mase_server.tracing.bindings import Reports
from mase_server.tracing.calls import Run
from mase_server.tracing.custom_functions import custom_functions_kept
from mase_server.tracing.cycles import require_tree
from mase_server.tracing.errors.failure import RAISED
from mase_server.tracing.probe import IMAGE_SYMBOLS, Outcome, Probed, Prober
from mase_server.tracing.recorder import IsLeaf, Recorder, is_torch_leaf
from mase_server.tracing.rungs import RealRecorder, needs_values, real_copy, worth_a_real_run
from mase_server.tracing.shadow import Shadows
from mase_server.tracing.state import Tensors, state_of, unchanged

#: Real runs that take longer are not repeated at other sizes.
MOST_SECONDS = 1.0

#: Seeds of further runs at the base's sizes, where values decide: sizes that two of them share by chance are rare.
OTHER_VALUES = (1, 2, 3)


class Session:
    """Records one model as often as it takes.

    arguments: forward's arguments by parameter name, tensors real or meta.  recorder: what records on meta.
    The model is left as it was.
    """

    def __init__(
        self,
        model: nn.Module,
        arguments: Mapping[str, Any],
        shadows: Shadows | None = None,
        *,
        is_leaf: IsLeaf = is_torch_leaf,
        reports: Reports | None = None,
        spec: Inputs | None = None,
        construct: Callable[[], nn.Module] | None = None,
        recorder: type[Recorder] = Recorder,
    ) -> None:
        self.model, self.arguments = model, dict(arguments)
        self.shadows = shadows or Shadows()
        self.is_leaf, self.reports, self.construct = is_leaf, reports, construct
        self._kind = recorder
        self.inputs: Inputs = spec if spec is not None else describe(self.arguments, model, self._value_of)
        #: What the values ran on: "meta", or "real" where the model's path depends on values.
        self.rung = "meta"
        #: Was the base run a real one that took too long to be repeated at other sizes?
        self._slow = False
        #: The recorder of the base run: it knows which tensor is which node, and where a forward failed.
        self.base: Recorder | None = None
        #: What the forward raised in the base run.
        self.error: BaseException | None = None

    def _value_of(self, tensor: Any) -> Any:
        return self.shadows.get(tensor) if tensor.is_meta else tensor

    def record(self) -> Run:
        """The base run, on the given arguments; raises what the forward raises (`base` then tells more).

        HoldsItselfError for a module that is a part of itself, before anything is run.
        """
        require_tree(self.model)
        try:
            try:
                return self._base_run()
            except Exception as error:
                if not worth_a_real_run(self.model, error):
                    raise
                return self._record_for_real(error)
        except RAISED as error:
            self.error = error
            raise

    def record_at(self, sizes: Mapping[str, int]) -> Run:
        """A run at other sizes of the symbols, without positions; where the base failed, up to its own failure."""
        recorder = self._recorder(positions=False)
        try:
            # Only shapes are wanted on meta: filling an image of a few thousand pixels takes longer than the run.
            largest = LARGEST_FILLED if self.rung == "meta" else None
            return self._run(recorder, inputs_at(self.inputs, sizes, largest=largest))
        except RAISED:
            if self.error is None:
                raise
            return recorder.partial()

    def probe(self, base: Run, last: Outcome | None = None, before_run: Callable[[], None] = lambda: None) -> Probed:
        """Find which symbols may vary and how everything depends on them.

        last: the outcome of an earlier version.  before_run: called before each run at other sizes.
        """

        def run_at(sizes: Mapping[str, int]) -> Run:
            before_run()
            return self.record_at(sizes)

        sizes = self.inputs.sizes
        if self.error is not None:
            # A model that fails has not proved yet that it takes any image size.
            sizes = {name: size for name, size in sizes.items() if name not in IMAGE_SYMBOLS}
        if self._slow:
            sizes = {}
        prober = Prober(base, sizes, run_at, last)
        if self.rung == "real" and self.error is None and not self._slow:
            for seed in OTHER_VALUES:
                prober.follow_values(self._run(self._recorder(positions=False), inputs_at(self.inputs, seed=seed)))
        return prober.probe()

    def _base_run(self) -> Run:
        self.base = self._recorder(positions=True)
        args, kwargs = call_arguments(self.model, self.arguments)
        with unchanged(self.model, self.shadows), custom_functions_kept():
            before = state_of(self.model)
            run = self.base.record(args, kwargs)
            if (after := state_of(self.model)) != before:
                run.state = self._state_kept(self.base, after)
        return run

    def _state_kept(self, first: Recorder, after: Tensors) -> str:
        """The attribute by which a second call would compute something else than the first, "" if there is none.

        What is written again by each call, and read by the next one: caches that grow, running means.
        """
        second = self._recorder(positions=False)
        try:
            second.record(*call_arguments(self.model, inputs_at(self.inputs)))
        except Exception:  # noqa: BLE001 - the person's forward may fail at its second call
            return next(name for name in after)
        now = state_of(self.model)
        read = first.made() & second.taken()
        for name, held in after.items():
            # `self.table = self.table.to(x.device)` gives another object for the same memory.
            again = [memory for _, memory in now.get(name, [])] != [memory for _, memory in held]
            if again and read & {each for each, _ in held}:
                return name
        return ""

    def _record_for_real(self, error: Exception) -> Run:
        """The base run on real values; the error on meta stands where this one fails too, unless only meta has it."""
        on_meta = self.model, self.arguments, self.base
        self.model = real_copy(self.model, self.shadows, self.construct)
        self.arguments = inputs_at(self.inputs)
        self.rung = "real"
        wall, work = time.perf_counter(), time.process_time()
        try:
            return self._base_run()
        except Exception:
            if needs_values(error):
                raise
            self.rung = "meta"
            self.model, self.arguments, self.base = on_meta
            raise error from None
        finally:
            # What other programs do at the time makes no model slow, nor does a second core.
            seconds = min(time.perf_counter() - wall, time.process_time() - work)
            self._slow = seconds > MOST_SECONDS

    def _recorder(self, *, positions: bool) -> Recorder:
        kind = self._kind if self.rung == "meta" else RealRecorder
        return kind(self.model, self.shadows, is_leaf=self.is_leaf, positions=positions, reports=self.reports)

    def _run(self, recorder: Recorder, arguments: Mapping[str, Any]) -> Run:
        args, kwargs = call_arguments(self.model, arguments)
        with unchanged(self.model, self.shadows), custom_functions_kept():
            return recorder.record(args, kwargs)
