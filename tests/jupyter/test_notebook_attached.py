"""The example's notebook in a workspace that has a daemon: that one traces the cells."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from mase_server.client import Client
from tests.jupyter.conftest import html_of
from tests.jupyter.test_notebook import rows_of, text_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def served(executed):
    """A client of a daemon of the notebook's folder that hears of graphs."""
    command = [sys.executable, "-P", "-m", "mase_server", "serve", ".", "--trust", "--python", sys.executable]
    process = subprocess.Popen(
        [*command, "--until-eof"], cwd=executed.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with Client(process.stdout.readline().strip()) as client:
        client.subscribe(topics=["graph"])
        yield client
    process.communicate()
    assert process.returncode == 0


def test_the_example_runs_and_shows_what_it_says(executed, served):
    notebook = nbformat.read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    sources = [cell["source"] for cell in notebook.cells if cell["cell_type"] == "code"]
    assert all(not cell.get("outputs") for cell in notebook.cells)
    cells = executed(*sources)
    assert not [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"]
    by_source = {cell["source"]: cell for cell in cells}
    [model] = [source for source in sources if source.startswith("%%mase")]
    under = text_of(html_of(by_source[model]))
    assert re.search(r"hidden: f32\[(B|4), 32, .*\] = self\.features\(image\)", under)
    assert re.search(r"pooled: f32\[(B|4), 32\] = hidden\.mean", under)
    [layers] = [rows_of(html_of(cell)) for cell in cells if cell["source"].startswith("%mase net")]
    assert [row[2] for row in layers if row[0] == "head"] == ["f32[4, 10]"]
    [quantised] = [rows_of(html_of(cell)) for cell in cells if cell["source"].endswith("\ngraph")]
    assert {row[3] for row in quantised if row[0] == "head"} == {"fixed(8,4)"}
    [number] = [output["data"]["text/plain"] for output in cells[-1]["outputs"]]
    assert 0 < float(number) < 0.25

    # The workspace's daemon has traced the cell, nobody else; and it keeps nothing of it.
    event = next(served.events(timeout=20))
    assert Path(event["path"]).parent == executed.folder
    assert not list(executed.tmp.glob("mase-kernel-*"))
    assert served.call("mase/files")["files"] == []
    assert {each.name for each in executed.folder.iterdir()} <= {"pyproject.toml", "sizes.py"}
