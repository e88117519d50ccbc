"""Verilator builds, kept by content: the same design is never compiled twice, and what all designs share only once."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from mase_server.hardware.library import components

ROOT = Path(__file__).parent.parent.parent
RTL = ROOT / "rtl"
ASSERTIONS = RTL / "assertions"
SIMULATION = RTL / "simulation"
CHECKERS = sorted(ASSERTIONS.glob("*_checker.sv"))
KEPT = ROOT / "tests" / "output" / "rtl"

_COMPILE = ("g++", "-std=gnu++17", "-pthread", "-faligned-new", "-fcf-protection=none", "-w")
_DEFINES = ("-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TRACE=0", "-DVM_TRACE_FST=0", "-DVM_TRACE_VCD=0")
_SLOPPY = ("WIDTH", "UNUSEDSIGNAL", "UNDRIVEN", "PINMISSING", "PINCONNECTEMPTY", "UNOPTFLAT")
_VERILATE = (
    *("--cc", "--top-module", "bench", "--prefix", "Vbench"),
    *("--assert", "--x-initial", "unique", "-Wall", "-Wno-DECLFILENAME"),
)


def run(command, **options):
    """Run a command; what it wrote is in the error if it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command[:4]))} ... failed:\n{done.stdout}{done.stderr}"
    return done.stdout


def simulator(top, roots, optimise="-O0"):
    """The program that simulates the text of module `bench`, which instantiates the components `roots`."""
    sources = components(*roots)
    bound = [path for source in sources if (path := ASSERTIONS / source.name).exists()]
    sources = [*sources, *CHECKERS, *bound]
    parts = [top, optimise, *(path.read_text() for path in [*sources, *sorted(SIMULATION.iterdir())]), _version()]
    made = KEPT / _digest(*parts, *_VERILATE)
    return _kept(made, lambda folder: _build(folder, top, sources, optimise)) / "simulate"


def _build(folder, top, sources, optimise):
    # Warnings are errors for every configuration of every component; what tests wrote around them is not looked at.
    (folder / "bench.sv").write_text(f"/* verilator lint_off {' */ /* verilator lint_off '.join(_SLOPPY)} */\n{top}")
    run(["verilator", *_VERILATE, "--Mdir", folder / "made", folder / "bench.sv", *sources])
    generated = sorted((folder / "made").glob("*.cpp"))
    everything = "".join(f'#include "{path.name}"\n' for path in [*generated, SIMULATION / "glue.cpp"])
    (folder / "everything.cpp").write_text(everything)
    includes = [f"-I{folder / 'made'}", f"-I{SIMULATION}", *_includes()]
    run([*_COMPILE, *_DEFINES, optimise, *includes, "-c", folder / "everything.cpp", "-o", folder / "everything.o"])
    run([*_COMPILE, folder / "everything.o", *sorted(_runtime().glob("*.o")), "-latomic", "-o", folder / "simulate"])
    shutil.rmtree(folder / "made")
    (folder / "everything.o").unlink()


@cache
def _runtime():
    """The object files that every simulator is linked with."""
    driver = SIMULATION / "driver.cpp"
    made = KEPT / f"runtime-{_digest(_version(), driver.read_text(), (SIMULATION / 'driver.h').read_text())}"

    def build(folder):
        library = _verilator_root() / "include"
        for source in (library / "verilated.cpp", library / "verilated_threads.cpp", driver):
            out = folder / f"{source.stem}.o"
            run([*_COMPILE, *_DEFINES, "-O2", f"-I{SIMULATION}", *_includes(), "-c", source, "-o", out])

    return _kept(made, build)


def _kept(folder, build):
    """The folder, built elsewhere first and then renamed: another process may want the same one."""
    if not folder.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as name:
            build(Path(name))
            try:
                Path(name).rename(folder)
                Path(name).mkdir()
            except OSError:
                assert folder.exists()
    return folder


@cache
def _version():
    return run(["verilator", "--version"])


@cache
def _verilator_root():
    return Path(os.environ.get("VERILATOR_ROOT") or run(["verilator", "--getenv", "VERILATOR_ROOT"]).strip())


def _includes():
    library = _verilator_root() / "include"
    return [f"-I{library}", f"-I{library / 'vltstd'}"]


def _digest(*parts):
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
