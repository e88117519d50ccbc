"""What the recording behind a graph knows."""

from __future__ import annotations

from mase_server.ir.build import GraphBuilder
from mase_server.ir.guarded import guards_of
from mase_server.ir.recording import Recording
from mase_server.tracing.calls import Run
from mase_server.tracing.probe import Probed


class Recorded:
    """The part of a MaseGraph that reads its recording."""

    @property
    def recording(self) -> Recording | None:
        """How the graph was recorded; None for a GraphModule that was given."""
        raise NotImplementedError

    def _must_be_recorded(self) -> Recording:
        if self.recording is None:
            raise ValueError("this MaseGraph was made from a GraphModule: there is no recording of it")
        return self.recording

    @property
    def run(self) -> Run:
        """The recording of the model's forward."""
        return self._must_be_recorded().run

    @property
    def builder(self) -> GraphBuilder:
        """The builder of the recorded graph."""
        return self._must_be_recorded().builder

    @property
    def probed(self) -> Probed | None:
        """What probing found; None where there was none."""
        return None if self.recording is None else self.recording.probed

    @property
    def generic(self) -> bool:
        """Does the graph hold for all sizes of its symbols?"""
        return self.probed is not None and self.probed.generic

    @property
    def symbols(self) -> dict[str, int]:
        """Symbols that may vary, with their sizes in the recorded run; a guard leaves some of them no other size."""
        if self.probed is None or not self.probed.generic:
            return {}
        points, guards = self.probed.points, guards_of(self.builder.graph).guards
        held = {name for guard in guards if guard.names <= points[0].keys() for name in guard.names
                if not all(guard.holds(point) for point in points)}  # fmt: skip
        return {name: size for name, size in self.probed.symbols.items() if name not in held}
