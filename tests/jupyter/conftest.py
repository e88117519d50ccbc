"""A notebook's cells, run by a real kernel as Jupyter runs them."""

import sys

import nbformat
import pytest
from nbclient import NotebookClient


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """A function that runs cells in a new kernel, in a folder of their own; it gives the cells with their outputs."""
    tmp = tmp_path_factory.mktemp("jupyter")
    folder = tmp / "notebooks"
    for each in (folder, tmp / "tmp"):
        each.mkdir()
    (folder / "pyproject.toml").write_text("")

    def run(*sources):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
        resources = {"metadata": {"path": str(folder)}}
        NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources, allow_errors=True).execute()
        return notebook.cells

    run.folder, run.tmp = folder, tmp / "tmp"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CACHE", "STATE", "CONFIG", "DATA"):
            patch.setenv(f"XDG_{name}_HOME", str(tmp / name.lower()))
        patch.setenv("IPYTHONDIR", str(tmp / "ipython"))
        patch.setenv("JUPYTER_PATH", f"{sys.prefix}/share/jupyter")
        patch.setenv("MASE_RUNTIME_DIR", str(tmp / "run"))
        patch.setenv("TMPDIR", str(run.tmp))
        yield run


def html_of(cell):
    """The HTML that a cell shows."""
    [html] = [output["data"]["text/html"] for output in cell["outputs"] if "text/html" in output.get("data", ())]
    return html
