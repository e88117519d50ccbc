"""Verilator builds, kept by content: the same design is never compiled twice, and what all designs share only once."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from mase_server.hardware.verilog import find_components
from mase_server.simulation.building import Sources, build_program, find_tools

ROOT = Path(__file__).parent.parent.parent
RTL = ROOT / "rtl"
ASSERTIONS = RTL / "assertions"
SIMULATION = RTL / "simulation"
CHECKERS = sorted(ASSERTIONS.glob("*_checker.sv"))
KEPT = ROOT / "tests" / "output" / "rtl"

_SLOPPY = ("WIDTH", "UNUSEDSIGNAL", "UNDRIVEN", "PINMISSING", "PINCONNECTEMPTY", "UNOPTFLAT")
#: Warnings are errors for every configuration of every component; what tests wrote around them is not looked at.
_WISHES = ("--assert", "-Wall", "-Wno-DECLFILENAME")


def run(command, **options):
    """Run a command; what it wrote is in the error if it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command[:4]))} ... failed:\n{done.stdout}{done.stderr}"
    return done.stdout


def simulator(top, roots, optimise="-O0", replaced=None):
    """The program that simulates the text of module `bench`, which instantiates the components `roots`.

    replaced: the name of a component -> the file that stands in its place.
    """
    files = [(replaced or {}).get(file.stem, file) for file in find_components(*roots)]
    bound = [path for file in files if (path := ASSERTIONS / file.name).exists()]
    with tempfile.TemporaryDirectory() as name:
        bench = Path(name) / "bench.sv"
        bench.write_text(f"/* verilator lint_off {' */ /* verilator lint_off '.join(_SLOPPY)} */\n{top}")
        # Assertions look at an asynchronous reset at edges of the clock.
        wishes = (*_WISHES, "-Wno-SYNCASYNCNET") if replaced else _WISHES
        sources = Sources([bench, *files, *CHECKERS, *bound], SIMULATION, optimise, wishes)
        return asyncio.run(build_program(sources, _tools(), KEPT, lambda message, fraction: None))


@cache
def _tools():
    return asyncio.run(find_tools())


@contextmanager
def lend_programs(place: Path) -> Iterator[None]:
    """Inside, the folder `place` holds the programs that are kept from one run of the tests to the next.

    They are hard links of their own, since the cache of a user takes no link that leads elsewhere.
    """
    KEPT.mkdir(parents=True, exist_ok=True)
    shutil.copytree(KEPT, place, copy_function=_link)
    yield
    for folder in place.iterdir():
        if not (KEPT / folder.name).exists() and not folder.name.startswith("making-"):
            shutil.copytree(folder, KEPT / folder.name, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
