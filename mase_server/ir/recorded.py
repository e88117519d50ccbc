"""What the recording behind a graph knows."""

from __future__ import annotations

from mase_server.ir.build import GraphBuilder
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
        """Symbols that may vary, with their sizes in the recorded run."""
        return self.probed.symbols if self.probed is not None and self.probed.generic else {}
