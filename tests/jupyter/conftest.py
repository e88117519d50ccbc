"""A notebook's cells, run by a real kernel as Jupyter runs them."""

import sys

import nbformat
import pytest
from nbclient import NotebookClient


@pytest.fixture
def executed(tmp_path, monkeypatch):
    """A function that runs cells in a new kernel, in a folder of their own; it gives the cells with their outputs."""
    for name in ("CACHE", "STATE", "CONFIG", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_PATH", f"{sys.prefix}/share/jupyter")
    folder = tmp_path / "notebooks"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("")

    def run(*sources, allow_errors=False):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
        resources = {"metadata": {"path": str(folder)}}
        client = NotebookClient(
            notebook, timeout=120, kernel_name="python3", resources=resources, allow_errors=allow_errors
        )
        client.execute()
        return notebook.cells

    run.folder = folder
    return run


def html_of(cell):
    """The HTML that a cell shows."""
    [html] = [output["data"]["text/html"] for output in cell["outputs"] if "text/html" in output.get("data", ())]
    return html
