"""Which Pythons, torches and transformers it was run with: an environment for each, a named suite in it, one table.

Usage: python benchmarks/matrix.py [NAME ...] [--folder FOLDER] [--remove] [--list] [--table]

What was run is kept in `docs/compatibility.json`, a row for each name; `docs/compatibility.md` holds its table. Nothing
is written of what was not run. An environment without torch is the server's alone: it is asked for the shapes of every
example, which a worker of this Python traces, and has to say what this Python's own server says. Other torches than
this project's come from PyPI with CUDA's libraries: four to eight gigabytes, which `--remove` takes away again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
KEPT, PAGE = ROOT / "docs" / "compatibility.json", ROOT / "docs" / "compatibility.md"
REQUIREMENTS = ROOT / "tests" / "requirements.txt"
SCRATCH = Path(tempfile.gettempdir()) / "mase-matrix"
EXAMPLES = ROOT / "examples"
#: The table stands between these lines of the page.
BEGIN, END = "<!-- matrix -->", "<!-- /matrix -->"
#: What a requirement of the tests is left out for: chosen by the environment, or of no use to any suite here.
LEFT_OUT = re.compile(
    r"(torch|transformers|numpy|scipy|cocotb|pyslang|playwright|pynvim|mypy|ruff|distributed|setuptools)=="
)
#: What needs neither torch nor a worker.
PURE = (
    "tests/test_wire.py", "tests/test_notebooks.py", "tests/daemon/test_store.py", "tests/lsp/test_alignment.py",
    "tests/lsp/test_card.py", "tests/lsp/test_documents.py", "tests/lsp/test_encoding.py", "tests/lsp/test_labels.py",
    "tests/lsp/test_text.py", "tests/lsp/test_wording.py",
)  # fmt: skip
#: From the recording to the editor, on every example: what a new torch or Python breaks first.
SMOKE = (*PURE, "tests/examples", "tests/worker/test_boot.py", "tests/lsp/test_with_real_daemon.py")
#: What runs models of transformers, and everything that records.
CORE = ("examples", "ir", "worker", "lsp/test_with_real_daemon.py", "ops", "tracing", "inputs")
SUITES: Mapping[str, Sequence[str]] = {
    "pure": PURE,
    "smoke": SMOKE,
    "library": ("tests/examples", "tests/ir", "--ignore=tests/ir/test_zoo.py"),
    "core": (*PURE, *(f"tests/{each}" for each in CORE)),
}
_SECONDS = 7200


@dataclass(frozen=True, slots=True)
class Environment:
    """What is installed. python: its first two numbers.  torch, transformers: exact versions, "" for none."""

    name: str
    python: str
    torch: str = ""
    transformers: str = ""
    suite: str = "smoke"


ENVIRONMENTS = (
    Environment("transformers-4.57", "3.11", "2.13.0", "4.57.6", "library"),
    Environment("torch-2.6", "3.11", "2.6.0", "5.23.0"),
    Environment("python-3.12", "3.12", "2.9.1", "5.23.0"),
    Environment("python-3.13", "3.13", "2.15.0", "5.23.0"),
    Environment("server-3.12", "3.12", suite="pure"),
    Environment("server-3.13", "3.13", suite="pure"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """What was seen. failures: names of tests.  examples: how many of how many answers were equal, "" if not asked."""

    name: str
    date: str
    python: str
    torch: str
    transformers: str
    suite: str
    passed: int
    skipped: int
    failures: list[str] = field(default_factory=list)
    examples: str = ""


# Environments


def interpreter(version: str) -> str:
    """An interpreter of that version, from the path or pyenv's folder. SystemExit where there is none."""
    versions = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    found = [shutil.which(f"python{version}"), *map(str, sorted(versions.glob(f"{version}.*/bin/python")))]
    for each in filter(None, found):
        told = subprocess.run([each, "--version"], capture_output=True, text=True, check=False)
        if told.returncode == 0 and told.stdout.startswith(f"Python {version}."):
            return each
    raise SystemExit(f"there is no Python {version} here")


def made(environment: Environment, folder: Path) -> Path:
    """Its interpreter; the environment is made if it is not there. SystemExit where something cannot be installed."""
    python = folder / environment.name / "bin" / "python"
    if not python.exists():
        _run([interpreter(environment.python), "-m", "venv", str(python.parents[1])])
    wanted = folder / environment.name / "requirements.txt"
    wanted.write_text("\n".join(requirements(REQUIREMENTS.read_text(encoding="utf-8"), environment)) + "\n")
    if environment.torch:
        _run([str(python), "-m", "pip", "install", "--quiet", f"torch=={environment.torch}", "setuptools"])
    _run([str(python), "-m", "pip", "install", "--quiet", "--requirement", str(wanted)])
    # Not by PYTHONPATH, which a child of a server is shown not to see.
    (next(python.parents[1].glob("lib/*/site-packages")) / "project.pth").write_text(f"{ROOT}\n")
    return python


def requirements(pinned: str, environment: Environment) -> Iterator[str]:
    """What is installed beside torch: the pins that were chosen; what those pull in is the resolver's."""
    chosen = pinned.partition("# what these pull in")[0].splitlines()
    yield from (line for line in chosen if line and not line.startswith("#") and not LEFT_OUT.match(line))
    if environment.torch:
        yield from ("numpy", "scipy", f"transformers=={environment.transformers}")


def versions(python: Path) -> tuple[str, str, str]:
    """Of Python, torch and transformers, as they say themselves; "" where one is not there."""
    code = (
        "import platform, importlib.metadata as m\n"
        "have = {each.metadata['Name'].lower(): each.version for each in m.distributions()}\n"
        "print(platform.python_version(), have.get('torch', '-'), have.get('transformers', '-'))"
    )
    told = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.split()
    first, second, third = (each.removeprefix("-") for each in told)
    return first, second, third


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr.strip()[-2000:]}")


# Suites


def run(environment: Environment, folder: Path) -> Row:
    """Make it, run its suite, and ask the server for the examples where it has no torch."""
    python = made(environment, folder)
    report = folder / f"{environment.name}.xml"
    words = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not editor", f"--junitxml={report}"]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    settings.pop("PYTHONPATH", None)
    subprocess.run([*words, *SUITES[environment.suite]], cwd=ROOT, env=settings, check=False, timeout=_SECONDS)
    passed, skipped, failures = counted(report.read_text(encoding="utf-8"))
    examples = "" if environment.torch else _examples(python, settings)
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    return Row(environment.name, date, *versions(python), environment.suite, passed, skipped, failures, examples)


def counted(report: str) -> tuple[int, int, list[str]]:
    """Passed, skipped, and the names of what failed, of pytest's report as XML."""
    passed, skipped, failures = 0, 0, list[str]()
    for case in ElementTree.fromstring(report).iter("testcase"):
        kinds = {each.tag for each in case}
        if kinds & {"failure", "error"}:
            failures.append(f"{case.get('classname', '')}::{case.get('name', '')}")
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    return passed, skipped, failures


def _examples(python: Path, settings: Mapping[str, str]) -> str:
    """How many examples the server says the same of as this Python's own server; the worker is this Python's."""
    theirs, ours = (_tensors(server, settings) for server in (str(python), sys.executable))
    return f"{sum(theirs.get(file) == told for file, told in ours.items())} of {len(ours)}"


def _tensors(server: str, settings: Mapping[str, str]) -> dict[str, object]:
    """What `shapes` says of the tensors of each example."""
    words = [server, "-m", "mase_server", "shapes", "--no-daemon", "--format", "json", "--python", sys.executable]
    files = [str(file) for file in sorted(EXAMPLES.glob("*.py"))]
    done = subprocess.run([*words, *files], cwd=ROOT, env=dict(settings), capture_output=True, text=True, check=False)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return {each["file"]: each["tensors"] for each in told}


# The page


def keep(row: Row) -> None:
    """Put a row in place of the one with its name."""
    rows = {each.name: each for each in kept()} | {row.name: row}
    KEPT.write_text(json.dumps([asdict(each) for each in rows.values()], indent=1) + "\n", encoding="utf-8")


def kept() -> list[Row]:
    """All rows that were ever run."""
    return [Row(**each) for each in json.loads(KEPT.read_text(encoding="utf-8"))] if KEPT.exists() else []


def table(rows: Sequence[Row]) -> Iterator[str]:
    """The rows as Markdown."""
    yield "| Python | torch | transformers | suite | passed | failed | skipped | date |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        torch = row.torch or f"none: the server alone; {row.examples} examples answered alike"
        yield (
            f"| {row.python} | {torch} | {row.transformers or 'none'} | {row.suite} | {row.passed:,} "
            f"| {len(row.failures)} | {row.skipped} | {row.date} |"
        )


def with_table(page: str, rows: Sequence[Row]) -> str:
    """A page with the table of these rows between its marks."""
    before, _, rest = page.partition(BEGIN)
    lines = "\n".join(table(rows))
    return f"{before}{BEGIN}\n{lines}\n{END}{rest.partition(END)[2]}"


def main() -> int:
    """Run what is named, or all; 1 where a test failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--folder", type=Path, default=SCRATCH, help="where the environments are made")
    parser.add_argument("--remove", action="store_true", help="remove each environment after its run")
    parser.add_argument("--list", action="store_true", help="the environments and the suites")
    parser.add_argument("--table", action="store_true", help="write the page's table again, run nothing")
    given = parser.parse_args()
    if given.list:
        print("\n".join([*map(str, ENVIRONMENTS), *(f"{name}: {' '.join(each)}" for name, each in SUITES.items())]))
        return 0
    if unknown := set(given.names) - {each.name for each in ENVIRONMENTS}:
        parser.error(f"there is no {', '.join(sorted(unknown))}; --list names all")
    chosen = [each for each in ENVIRONMENTS if not given.names or each.name in given.names]
    failed = False
    for environment in () if given.table else chosen:
        row = run(environment, given.folder)
        keep(row)
        print(f"{row.name}: {row.passed} passed, {len(row.failures)} failed, {row.skipped} skipped", flush=True)
        failed |= bool(row.failures)
        if given.remove:
            shutil.rmtree(given.folder / environment.name)
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), kept()), encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
