"""Interpreters that cannot be used: each is told with its reason, others' files are traced, and mending helps."""

import re
import shutil
import sys
import venv
from pathlib import Path

import pytest
import pytest_asyncio
from family import until
from faulting import Stand
from good_net import good, seen

from mase_server.daemon import process

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: A folder with no torch comes first, so that what is found without a choice is the server's own.
ELSEWHERE = {"PATH": "/nowhere", "VIRTUAL_ENV": "", "CONDA_PREFIX": ""}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory):
    """A server that was told no interpreter: a `.venv` beside a file decides."""
    stand = Stand(tmp_path_factory.mktemp("environments"), environment=ELSEWHERE, options={"interpreter": None})
    await stand.start()
    yield stand
    await stand.stop()


def script(text):
    def make(folder):
        python = folder / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(text)
        python.chmod(0o755)

    return make


def without_torch(folder):
    """A real environment with nothing installed."""
    venv.create(folder)
    return next(folder.glob("lib/python*/site-packages"))


def with_torch(text):
    def make(folder):
        package = without_torch(folder) / "torch"
        package.mkdir()
        (package / "__init__.py").write_text(text)

    return make


#: name -> (what stands in `.venv`, code, pattern of the message's first line).
FAULTS = {
    "no_program": (script("no program at all\n"), "no-interpreter", r"{python} does not start: Exec format error\."),
    "another_program": (
        script("#!/bin/sh\necho I am no Python >&2\nexit 7\n"), "import-failed",
        r"{python} ended before it could trace\. Its last words: I am no Python",
    ),
    "an_old_python": (
        script('#!/bin/sh\necho "SyntaxError: future feature annotations is not defined" >&2\nexit 1\n'),
        "import-failed", r"Its last words: SyntaxError: future feature annotations is not defined",
    ),
    "no_torch": (without_torch, "no-torch", r"{python} has no torch\. Install it there \(pip install torch\), or"),
    "old_torch": (
        with_torch('__version__ = "1.13.1"\n'), "torch-too-old",
        r"{python} has torch 1\.13\.1; tracing needs 2\.6 or newer\. Upgrade it there \(pip install -U torch\)",
    ),
    "broken_torch": (
        with_torch('raise ImportError("libcudart.so.12: cannot open shared object file")\n'), "import-failed",
        r"torch is installed in {python} but does not import: ImportError: libcudart\.so\.12: cannot open shared",
    ),
    "deadly_torch": (
        with_torch('import os\nprint("torch says goodbye", flush=True)\nos._exit(3)\n'), "import-failed",
        r"{python} ended before it could trace\. Its last words: torch says goodbye",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
async def test_an_environment_that_cannot_trace_is_told_and_mending_it_is_enough(stand, name):
    make, code, pattern = FAULTS[name]
    folder = stand.folder / name
    folder.mkdir()
    make(folder / ".venv")
    python = str(folder / ".venv" / "bin" / "python")
    assert await stand.open(f"{name}/net.py", good()) == "no_environment"
    said, message, line = await stand.problem(f"{name}/net.py")
    assert (said, line) == (code, "import torch")
    first, _, rest = message.partition("\n")
    assert first.startswith("No interpreter for this folder can trace: ")
    assert re.search(pattern.format(python=re.escape(python)), first), first
    assert rest == f"{python} was chosen by .venv in {folder}."
    await until(lambda: not [each for each in stand.processes() if python in each.command])
    await stand.others_answer()

    shutil.rmtree(folder / ".venv")
    assert await stand.save(f"{name}/net.py", good(20)) == "ready"
    assert not await stand.problems(f"{name}/net.py")
    assert await stand.shown(f"{name}/net.py") == seen(20)
    stand.close(f"{name}/net.py")


async def test_an_environment_that_is_removed_gives_way_to_the_next_and_comes_back(stand):
    folder = stand.folder / "removed"
    folder.mkdir()
    site = without_torch(folder / ".venv")
    paths = [entry for entry in sys.path if "site-packages" in entry]
    (site / "all.pth").write_text("\n".join(paths))
    own = str(folder / ".venv" / "bin" / "python")

    async def interpreter():
        return (await stand.editor.request("mase/traced", {"path": str(folder / "net.py")})).interpreter

    assert await stand.open("removed/net.py", good()) == "ready"
    assert await interpreter() == own
    (folder / ".venv").rename(folder / "gone")
    assert await stand.save("removed/net.py", good(20)) == "ready"
    assert await stand.shown("removed/net.py") == seen(20)
    assert await interpreter() == sys.executable
    (folder / "gone").rename(folder / ".venv")
    assert await stand.save("removed/net.py", good(24)) == "ready"
    assert await interpreter() == own
    await stand.others_answer()
    stand.close("removed/net.py")


async def test_a_python_that_hangs_is_ended_and_told(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "HANDSHAKE_SECONDS", 0.2)
    make = script(f"#!/bin/sh\necho $$ > {tmp_path}/pid.new\nmv {tmp_path}/pid.new {tmp_path}/pid\nexec sleep 600\n")
    make(tmp_path / ".venv")
    with pytest.raises(process.NoEnvironment) as told:
        await process.boot_worker(
            str(tmp_path / ".venv" / "bin" / "python"), "parent", str(tmp_path), process.DEFAULT_JOB
        )
    assert told.value.code == "import-failed"
    assert str(told.value) == f"{tmp_path}/.venv/bin/python did not finish importing torch within 0 s."
    if (tmp_path / "pid").exists():  # it may have been ended before it said its number
        assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/exe").exists()
