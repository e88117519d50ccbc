"""The results of the hardware at the last run, as a file of integers."""

from __future__ import annotations

from pathlib import Path

from mase_server.simulation.arrays import Integers, write_npz
from mase_server.simulation.streams import Stream, streams


def results(folder: Path) -> dict[str, Integers]:
    """For each output the integers of its samples, [samples, *shape], and its format: value = integer / 2**fraction.

    Keys: `data_out_0`, `data_out_0_width`, `data_out_0_fraction_width`, and so on.
    SimulationError where the folder was not emitted; OSError where it was not simulated.
    """
    found: dict[str, Integers] = {}
    for stream in streams(folder):
        if stream.kind == "out":
            found[stream.name] = _samples(stream, folder)
            found[f"{stream.name}_width"] = Integers((), [stream.width])
            found[f"{stream.name}_fraction_width"] = Integers((), [stream.fraction_width])
    return found


def write_results(folder: Path, file: Path) -> None:
    """Write `results` as a .npz file."""
    write_npz(file, results(folder))


def _samples(stream: Stream, folder: Path) -> Integers:
    samples = list(stream.samples(stream.got(folder)))
    return Integers((len(samples), *stream.shape), [value for sample in samples for value in sample])
