"""Notebooks as scripts: IPython's own transformer is the ground truth of what in a cell is not Python."""

import ast
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mase_server.notebooks import (
    FLAGS,
    MARK,
    NotebookError,
    cell_errors,
    cells_of,
    is_script,
    read_traced_bytes,
    runnable_python,
    script_from_cells,
)

transformer = pytest.importorskip("IPython.core.inputtransformer2")


def notebook(*cells, **metadata):
    return json.dumps({"cells": list(cells), "metadata": metadata, "nbformat": 4}).encode()


def code(source, **metadata):
    return {"cell_type": "code", "metadata": metadata, "outputs": [], "source": source}


def python_of(cell):
    """The lines of one cell as they are run."""
    first, *lines, last = runnable_python(script_from_cells([cell])).split("\n")
    assert first in (MARK, "")
    assert last == ""
    return lines


MAGICS = [
    "%matplotlib inline",
    "!pip install einops",
    "x = 1\n!pip install \\\n   einops \\\n   tqdm\ny = 2",
    "?torch.nn",
    "torch.nn.Linear?",
    "torch.nn.Linear??",
    "%timeit x = 1",
    "files = !ls",
    "files = %sx ls",
    "if True:\n    !ls\nelse:\n    %cd -q .",
    "text = '''\n%no magic\n! nor this\n'''",
    "x = (7\n    % 2)",
    "x = 7 \\\n    % 2",
    "# is it?\nx = 'why?'  # yes?",
    "x = {\n  'a': [1,\n!ls\n]}",
    'f = f"{1 % 2}"\ny = "it\'s" % ()',
    "def f():\n    '''What?\n\n    %d\n    '''\n    return 1",
    "x = 5\nx %= 3",
    "s = r'\\'\n%who",
]


@pytest.mark.parametrize("cell", MAGICS)
def test_what_ipython_rewrites_is_taken_out_and_nothing_else(cell):
    lines, told = python_of(cell), transformer.TransformerManager().transform_cell(cell)
    assert len(lines) == cell.count("\n") + 1
    try:
        compile(told, "<cell>", "exec")
    except SyntaxError:
        assert not any(lines)  # IPython cannot run it either: the cell is left out
        return
    ours = [line for line in lines if line.strip() not in ("", "pass") and "get_ipython" not in line]
    theirs = [line for line in told.split("\n") if line.strip() and "get_ipython" not in line]
    assert ours == theirs
    ast.parse("\n".join(lines))


def test_a_line_keeps_its_place_whatever_stands_around_it():
    lines = python_of("%%time\nawait run()\n    \n%time net = Net()\nq = 1")
    assert lines == ["", "await run()", "    ", "if 1: net = Net()", "q = 1"]
    assert len("if 1: ") == len("%time ")


@pytest.mark.parametrize(
    "cell", ["%%bash\nls -la", "%%html\n<b>", "%%writefile net.py\nimport torch", "\n%%latex\n$x$"]
)
def test_a_cell_of_another_language_is_no_python(cell):
    assert not any(python_of(cell))


def test_a_cell_with_an_error_is_left_out_and_told_at_its_line():
    source = script_from_cells(["a = 1", "b = 2\ndef (:", "c = 3", "return 1"])
    assert [line for line in runnable_python(source).split("\n") if line not in ("", MARK)] == ["a = 1", "c = 3"]
    told = [(error.lineno, source.split("\n")[error.lineno - 1]) for error in cell_errors(source)]
    assert told == [(5, "def (:"), (9, "return 1")]


def test_futures_of_any_cell_hold_for_the_whole():
    source = script_from_cells(["import os", "from __future__ import annotations\n\ndef f(x: Missing): ..."])
    code = compile(runnable_python(source), "<script>", "exec", FLAGS)
    names = {}
    exec(code, names)
    assert names["f"].__annotations__ == {"x": "Missing"}


def test_only_python_cells_are_of_a_notebook():
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["x = 1"]},
        {"cell_type": "raw", "metadata": {}, "source": "x = 2"},
        code(["a = 1\n", "b = 2"]),
        code("c = 3\r\nd = 4"),
        code(["echo"], vscode={"languageId": "shellscript"}),
        code([]),
    ]
    assert cells_of(notebook(*cells)) == ["a = 1\nb = 2", "c = 3\nd = 4", ""]
    assert cells_of(notebook(*cells, kernelspec={"language": "R"})) == []
    assert cells_of(notebook(*cells, language_info={"name": "julia"})) == []
    assert cells_of(notebook(code("e = 5"), kernelspec={"name": "python3"})) == ["e = 5"]


@pytest.mark.parametrize("data", [b"", b"x = 1", b"[]", b"{}", b'{"cells": [1]}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_notebook_is_told_so(data, tmp_path):
    with pytest.raises(NotebookError, match=r"^This is no notebook of format 4: "):
        cells_of(data)
    path = tmp_path / "broken.ipynb"
    path.write_bytes(data)
    assert read_traced_bytes(str(path)) == data
    assert is_script(data) == (not data)


texts = st.text(st.sampled_from("ab =%!?#'\"\\()[]{}\n:,.")) | st.sampled_from(MAGICS)


@given(st.lists(texts, max_size=4))
def test_any_cells_keep_their_lines_and_give_python(cells):
    source = script_from_cells(cells)
    assert cells_of(notebook(*map(code, cells))) == cells
    told = runnable_python(source)
    assert told.count("\n") == source.count("\n")
    compile(told, "<script>", "exec", FLAGS)
    assert is_script(source.encode())


def test_a_file_that_changes_is_read_again_however_alike(tmp_path):
    path = tmp_path / "net.ipynb"
    for text in ("a = 1", "a = 2"):
        new = tmp_path / "new"
        new.write_bytes(notebook(code(text)))
        new.replace(path)
        assert read_traced_bytes(str(path)).decode() == script_from_cells([text])
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_traced_bytes(str(path))
