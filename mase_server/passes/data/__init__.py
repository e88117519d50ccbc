"""What passes run a graph on: files, functions of the person's, anything that gives batches, or random inputs."""

from __future__ import annotations

from mase_server.passes.data.batches import Data, load
from mase_server.passes.data.declared import DATA, SAMPLES

__all__ = ["DATA", "SAMPLES", "Data", "load"]
