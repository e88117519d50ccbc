"""An emitted folder simulated: built with Verilator (kept by content), run, and compared integer by integer."""

from mase_server.simulation.simulating import simulate

__all__ = ["simulate"]
