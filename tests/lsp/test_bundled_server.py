"""The server that the extension brings: a Python without any of its packages starts it, and traces with it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from editing import Editor, capabilities

from tests.worker.pythons import make_python

ROOT = Path(__file__).parents[2]
BUNDLE = ROOT / "mase_client_vscode" / "scripts" / "bundle_server.py"
#: The Python that the environment of these tests was made from; it has no package of ours.
BARE = sys._base_executable


@pytest.fixture(scope="module")
def bundled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extension") / "bundled"
    subprocess.run([sys.executable, str(BUNDLE), str(folder)], check=True)
    return folder


def test_it_is_pure_python_and_has_the_licences_of_what_it_brings(bundled):
    kinds = {path.suffix for path in (bundled / "libs").rglob("*") if path.is_file()} - {"", ".typed"}
    assert kinds <= {".py", ".md", ".txt", ".rst"}
    brought = {path.name.partition("-")[0] for path in (bundled / "libs").glob("*.dist-info")}
    assert {"pygls", "lsprotocol", "msgpack", "watchdog", "platformdirs", "attrs", "cattrs"} <= brought
    assert not brought & {"torch", "numpy", "typer", "rich"}
    assert (bundled / "server" / "rtl" / "fixed_linear.sv").exists()


def test_it_starts_from_anywhere_and_changes_no_path_of_others(bundled, tmp_path):
    given = [BARE, "-P", str(bundled / "start.py"), "--version"]
    (tmp_path / "typing.py").write_text("raise SystemExit('the folder of a person was imported from')")
    assert subprocess.run(given, cwd=tmp_path, capture_output=True, text=True).stdout == "mase-server 0.1.0\n"
    without = subprocess.run([BARE, "-c", "import pygls"], cwd=tmp_path, capture_output=True, text=True)
    assert "ModuleNotFoundError" in without.stderr


def test_it_makes_a_report_without_the_packages_of_the_command_line(bundled, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("MASE_RUNTIME_DIR", str(tmp_path / "run"))
    given = [BARE, "-P", str(bundled / "start.py"), "report", "-o", str(tmp_path / "r.zip"), str(tmp_path)]
    done = subprocess.run(given, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "r.zip").exists()


async def test_an_environment_with_torch_is_all_that_a_person_needs(bundled, tmp_path, monkeypatch):
    python, _ = make_python(tmp_path / "env", torch=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    options = {"trusted": True, "interpreter": python}
    (tmp_path / "work").mkdir()
    editor = Editor(tmp_path / "work", can=capabilities(graphs=True), options=options)
    await editor.start(python, "-P", str(bundled / "start.py"), "lsp")
    path = Path(shutil.copy(ROOT / "examples" / "mlp.py", tmp_path / "work"))
    editor.open(path)
    assert await editor.end_state(path) == "ready"
    assert ": f32[B, 16]" in (await editor.hints(path)).values()
    told = await editor.command("mase.emitVerilog", {"uri": path.as_uri(), "build": {}, "show": False})
    assert (told["module"], told["refusal"]) == ("mlp", None)
    await editor.stop()
