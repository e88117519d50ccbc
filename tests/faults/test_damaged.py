"""Data that was cut off or overwritten: told where it is read with the file's name, and nothing is lost by it."""

import io
import json

import numpy
import pytest
import torch
from good_net import GOOD, good, seen
from pygls.exceptions import JsonRpcException

from mase_server.ir.checkpoint import export
from tests.ir.checkpoints import small

pytestmark = pytest.mark.asyncio(loop_scope="module")


def saved_by(save, content):
    into = io.BytesIO()
    save(into, content)
    return into.getvalue()


#: How a program reads its width, and a whole file that says 20.
READ = {
    "width.pt": ("torch.load('width.pt')['width']", saved_by(lambda to, it: torch.save(it, to), {"width": 20})),
    "width.npz": (
        "int(__import__('numpy').load('width.npz')['width'])",
        saved_by(lambda to, it: numpy.savez(to, width=it), 20),
    ),
    "width.npy": ("int(__import__('numpy').load('width.npy'))", saved_by(numpy.save, numpy.array(20))),
    "width.json": ("__import__('json').load(open('width.json'))['width']", b'{"width": 20}'),
}
DAMAGE = {
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", READ)
async def test_a_damaged_file_is_told_at_its_line_and_traced_again_once_it_is_whole(stand, name, damage):
    read, whole = READ[name]
    data = stand.folder / name
    data.write_bytes(whole)
    model = f"{damage}_{name.replace('.', '_')}.py"
    text = GOOD.replace("\n\nclass", f"\nWIDTH = {read}\n\n\nclass", 1).replace("width=16", "width=WIDTH")
    assert await stand.open(model, text) == "ready"
    assert await stand.shown(model) == seen(20)
    data.write_bytes(DAMAGE[damage](whole))
    assert await stand.editor.end_state(stand.folder / model) == "failed"
    [problem] = await stand.problems(model)
    assert f" It was raised while {name} was read." in problem.message
    assert text.split("\n")[problem.range.start.line].startswith("WIDTH = ")
    assert await stand.shown(model) == seen(20)
    assert await stand.is_stale(model)
    data.write_bytes(whole)
    assert await stand.editor.end_state(stand.folder / model) == "ready"
    assert await stand.shown(model) == seen(20)
    assert not await stand.problems(model)
    await stand.others_answer()
    stand.close(model)


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_checkpoint_is_told_by_the_pass_that_reads_it_and_the_graph_stays(stand, damage):
    export(small(), stand.folder / "kept")
    for suffix in (".mz", ".pt"):
        path = stand.folder / f"kept{suffix}"
        whole = path.read_bytes()
        path.write_bytes(DAMAGE[damage](whole))
        params = {
            "path": str(stand.folder / "one.py"),
            "model": "Net",
            "pass": "load_checkpoint",
            "arguments": {"name": str(stand.folder / "kept")},
        }
        with pytest.raises(JsonRpcException) as told:
            await stand.editor.request("mase/applyPass", params)
        assert f"kept{suffix}" in told.value.message
        path.write_bytes(whole)
        await stand.others_answer()


def notebook(text):
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "id": "a", "source": text}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


@pytest.mark.parametrize("damage", ["cut", "zeros"])
async def test_a_damaged_notebook_is_told_and_traced_again_once_it_is_whole(stand, damage):
    path, whole = stand.folder / f"{damage}.ipynb", notebook(good(20))
    path.write_bytes(whole)
    await stand.editor.request("mase/open", {"uri": path.as_uri()})
    assert await stand.editor.end_state(path) == "ready"
    path.write_bytes(DAMAGE[damage](whole))
    told = await stand.editor.expect("mase/status", lambda one: one.uri == path.as_uri() and one.state == "failed")
    assert told.message.startswith("This is not a notebook of format 4: it has no readable cells.")
    assert told.stale
    [problem] = await stand.problems(path.name)
    assert problem.message == told.message
    path.write_bytes(whole)
    assert await stand.editor.end_state(path) == "ready"
    await stand.others_answer()
