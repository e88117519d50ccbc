"""An emitted folder simulated: built with Verilator (kept by content), run, and compared integer by integer."""

from mase_server.simulation.processes import SimulationError
from mase_server.simulation.results import results, write_results
from mase_server.simulation.simulating import simulate
from mase_server.simulation.synthesising import Synthesis, synthesise

__all__ = ["SimulationError", "Synthesis", "results", "simulate", "synthesise", "write_results"]
