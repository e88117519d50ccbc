"""Simulate an emitted folder: build it with Verilator (cached by content), run it, and compare every integer."""

from mase_server.simulation.building import SimulationError, Synthesis, synthesise
from mase_server.simulation.simulating import results, simulate, write_results

__all__ = ["SimulationError", "Synthesis", "results", "simulate", "synthesise", "write_results"]
