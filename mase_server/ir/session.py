"""Recording sessions: one model's base run, and the probes that find its symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from mase_server.tracing.diagnosis.failure import RAISED
from mase_server.tracing.inputs.roles import describe_inputs
from mase_server.tracing.inputs.spec import LARGEST_FILLED, Inputs, inputs_at
from mase_server.tracing.models.found import call_arguments
from mase_server.tracing.recording.calls import Reports, Run
from mase_server.tracing.recording.leaf_functions import custom_functions_kept
from mase_server.tracing.recording.recorder import IsLeaf, Recorder, is_torch_leaf
from mase_server.tracing.recording.rungs import RealRecorder, needs_values, real_copy, worth_a_real_run
from mase_server.tracing.recording.shadow import Shadows
from mase_server.tracing.recording.state import SEED, Tensors, drawing_from, preserve_state, require_tree, state_of
from mase_server.tracing.symbols.probing import IMAGE_SYMBOLS, Probed, Prober, Telling

# Detecting whether a graph was changed.


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The nodes of a graph at one time, with their targets and arguments. fx makes new argument tuples at every
    change."""

    rows: tuple[tuple[Any, ...], ...] = ()

    @classmethod
    def of(cls, graph: fx.Graph) -> Snapshot:
        """The graph as it is now."""
        return cls(tuple((node, node.target, node.args, node.kwargs) for node in graph.nodes))

    def holds(self, graph: fx.Graph) -> bool:
        """Is the graph unchanged since?"""
        now = list(graph.nodes)
        return len(now) == len(self.rows) and all(
            node is row[0] and node.target is row[1] and node.args is row[2] and node.kwargs is row[3]
            for node, row in zip(now, self.rows, strict=True)
        )


#: Seconds: a longer real run is not repeated at other sizes.
MOST_SECONDS = 1.0

#: Seeds of further runs at the base's sizes when values decide: two of them rarely share a size by chance.
OTHER_VALUES = (1, 2, 3)


class Session:
    """Records one model as often as necessary.

    arguments: forward's arguments by parameter name, tensors real or meta.  recorder: the class that records on
    meta. The model is not changed.
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
        self.inputs: Inputs = spec if spec is not None else describe_inputs(self.arguments, model, self._value_of)
        #: How values were run: "meta", or "real" if the model's path depends on values.
        self.rung = "meta"
        #: Was the base run a real one that took too long to repeat at other sizes?
        self._slow = False
        #: Did the base run draw random numbers? Then what it drew may decide sizes.
        self._draws = False
        #: The recorder of the base run: it knows which tensor is which node, and where a forward failed.
        self.base: Recorder | None = None
        #: The exception that the forward raised in the base run.
        self.error: BaseException | None = None

    def _value_of(self, tensor: Any) -> Any:
        return self.shadows.get(tensor) if tensor.is_meta else tensor

    def record(self) -> Run:
        """The base run, on the given arguments; raises what the forward raises (`base` then holds the run up to there).

        HoldsItselfError for a module that contains itself, before anything runs.
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
        """A run at other sizes of the symbols, without positions; if the base failed, up to its own failure."""
        recorder = self._make_recorder(positions=False)
        recorder.goes_on = self.error is not None
        try:
            # Only shapes are wanted on meta: filling an image of a few thousand pixels takes longer than the run.
            on_meta = self.rung == "meta"
            largest, shadows = (LARGEST_FILLED, self.shadows) if on_meta else (None, None)
            with drawing_from(SEED):
                return self._run_recorder(recorder, inputs_at(self.inputs, sizes, largest=largest, shadows=shadows))
        except RAISED:
            if self.error is None:
                raise
            return recorder.partial()

    def probe(
        self,
        base: Run,
        telling: Telling | None = None,
        before_run: Callable[[], None] = lambda: None,
        *,
        for_graph: bool = False,
    ) -> Probed:
        """Find which symbols may vary and how everything depends on them.

        telling: of the last probing.  before_run: called before each run at other sizes.  for_graph: as of
        `Prober.probe`.
        """

        def run_at(sizes: Mapping[str, int]) -> Run:
            before_run()
            return self.record_at(sizes)

        sizes = self.inputs.sizes
        if self.error is not None:
            # A failing model has not yet proved that it takes any image size.
            sizes = {name: size for name, size in sizes.items() if name not in IMAGE_SYMBOLS}
        if self._slow:
            sizes = {}
        prober = Prober(base, sizes, run_at, telling)
        if (self.rung == "real" or self._draws) and self.error is None and not self._slow:
            for seed in OTHER_VALUES:
                with drawing_from(seed):
                    prober.follow_values(
                        self._run_recorder(self._make_recorder(positions=False), inputs_at(self.inputs, seed=seed))
                    )
        return prober.probe(for_graph=for_graph)

    def _base_run(self) -> Run:
        self.base = self._make_recorder(positions=True)
        args, kwargs = call_arguments(self.model, self.arguments)
        with preserve_state(self.model, self.shadows), custom_functions_kept(), drawing_from(SEED) as has_drawn:
            before = state_of(self.model)
            run = self.base.record(args, kwargs)
            self._draws = has_drawn()
            if (after := state_of(self.model)) != before:
                run.state = self._state_kept(self.base, after)
        return run

    def _state_kept(self, first: Recorder, after: Tensors) -> str:
        """The attribute that makes a second call compute something else than the first; "" if there is none.

        Such attributes, like growing caches and running means, are written by each call and read by the next.
        """
        second = self._make_recorder(positions=False)
        try:
            second.record(*call_arguments(self.model, inputs_at(self.inputs)))
        except Exception:  # noqa: BLE001 - the person's forward may fail at its second call
            return next(name for name in after)
        now = state_of(self.model)
        read = first.made() & second.taken()
        for name, held in after.items():
            # `self.table = self.table.to(x.device)` makes another object on the same memory.
            again = [memory for _, memory in now.get(name, [])] != [memory for _, memory in held]
            if again and read & {each for each, _ in held}:
                return name
        return ""

    def _record_for_real(self, error: Exception) -> Run:
        """The base run on real values. If this one fails too, the error on meta is raised, unless only meta has it."""
        on_meta = self.model, self.arguments, self.base
        try:
            # Its constructor has reported already.
            with self.reports.muted() if self.reports is not None else nullcontext():
                self.model = real_copy(self.model, self.shadows, self.construct)
        except Exception:  # noqa: BLE001 - a model that cannot be copied: what meta says stands
            raise error from None
        self.arguments = inputs_at(self.inputs)
        self.rung = "real"
        try:
            return self._base_run()
        except Exception:
            if needs_values(error):
                raise
            self.rung = "meta"
            self.model, self.arguments, self.base = on_meta
            raise error from None
        finally:
            recorder = self.base
            self._slow = isinstance(recorder, RealRecorder) and recorder.work.seconds > MOST_SECONDS

    def _make_recorder(self, *, positions: bool) -> Recorder:
        kind = self._kind if self.rung == "meta" else RealRecorder
        return kind(self.model, self.shadows, is_leaf=self.is_leaf, positions=positions, reports=self.reports)

    def _run_recorder(self, recorder: Recorder, arguments: Mapping[str, Any]) -> Run:
        args, kwargs = call_arguments(self.model, arguments)
        with preserve_state(self.model, self.shadows), custom_functions_kept():
            return recorder.record(args, kwargs)
