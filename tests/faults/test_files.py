"""What may stand where a model file stood: told at its first line, waited for by nobody, gone with the next save."""

import asyncio
import os
import shutil
import socket

import pytest
from good_net import good, seen
from lsprotocol import types as lsp

from mase_server.reading import MOST

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGAIN = " It is traced again as soon as it can be read."


def directory(path):
    path.mkdir()


def pipe(path):
    os.mkfifo(path)


def open_socket(path):
    # Names of sockets are short: bound in a short folder, then moved.
    with socket.socket(socket.AF_UNIX) as made:
        before = os.open(".", os.O_RDONLY)
        try:
            os.chdir(path.parent)
            made.bind(path.name)
        finally:
            os.fchdir(before)
            os.close(before)


def endless(path):
    path.symlink_to("/dev/zero")


def loop(path):
    path.symlink_to(path)


def dangling(path):
    path.symlink_to("nowhere.py")


def fifty_megabytes(path):
    path.write_text(good())
    os.truncate(path, 50_000_000)


def ten_megabytes_of_code(path):
    path.write_text(good() + "\n\ndef part(x):\n    return x\n" * 350_000)


LARGE = "This file has more than 8 MiB, and is not traced. Move data and the like to a file of their own."
FAULTS = {
    directory: "This is a directory, not a file.",
    pipe: "This is a named pipe, not a file.",
    open_socket: "This is a socket, not a file.",
    endless: "This is a device, not a file.",
    loop: "This is a link that leads back to itself.",
    dangling: "This is a link to nowhere.py, which does not exist.",
    fifty_megabytes: LARGE,
    ten_megabytes_of_code: LARGE,
}


def remove(path):
    """Whatever stands there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


def put(stand, name, kind):
    """Have something else stand where a file was, from one moment to the next."""
    path, beside = stand.folder / name, stand.folder / f"{name}.beside"
    kind(beside)
    if kind is loop:
        beside.unlink()
        beside.symlink_to(path)
    if kind is directory:
        path.unlink()
    beside.rename(path)
    stand.editor.client.text_document_did_save(lsp.DidSaveTextDocumentParams(stand.editor.id(path)))


@pytest.mark.parametrize("kind", FAULTS)
async def test_what_replaces_a_file_is_told_and_the_next_save_brings_the_shapes_back(stand, kind):
    name = f"{kind.__name__}.py"
    assert await stand.open(name, good()) == "ready"
    put(stand, name, kind)
    assert await stand.editor.end_state(stand.folder / name) == "failed"
    assert await stand.problem(name) == ("unreadable", FAULTS[kind] + AGAIN, "import torch")
    assert await stand.shown(name) == seen()
    assert await stand.is_stale(name)
    await stand.others_answer()

    remove(stand.folder / name)
    assert await stand.save(name, good(20)) == "ready"
    assert not await stand.problems(name)
    assert await stand.shown(name) == seen(20)
    stand.close(name)


@pytest.mark.parametrize("kind", [pipe, endless, fifty_megabytes, ten_megabytes_of_code])
async def test_what_never_was_a_file_is_told_as_soon_as_it_is_opened(stand, kind):
    path = stand.folder / f"never_{kind.__name__}.py"
    kind(path)
    item = lsp.TextDocumentItem(path.as_uri(), "python", 1, "what the editor shows\n")
    stand.editor.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
    stand.texts[path] = item.text
    assert await stand.editor.end_state(path) == "failed"
    assert await stand.problem(path.name) == ("unreadable", FAULTS[kind] + AGAIN, "what the editor shows")
    await stand.others_answer()
    stand.close(path.name)
    path.unlink()


async def test_a_pipe_among_the_modules_is_not_waited_for_either(stand):
    part = stand.folder / "piped_part.py"
    os.mkfifo(part)
    text = good().replace("import torch\n", "import torch\nimport piped_part\n", 1)
    assert await stand.open("piped_whole.py", text) == "ready"
    code, message, line = await stand.problem("piped_whole.py")
    assert (code, line) == ("missing-package", "import piped_part")  # Python takes no pipe for a module
    assert message.startswith("No module named 'piped_part'")
    await stand.others_answer()
    part.unlink()  # what an import looked for: the file is traced again
    assert await stand.editor.end_state(stand.folder / "piped_whole.py") == "ready"
    assert await stand.save("piped_whole.py", good()) == "ready"
    assert not await stand.problems("piped_whole.py")
    stand.close("piped_whole.py")


async def test_a_large_file_costs_the_server_no_memory(stand):
    def most():
        with open(f"/proc/{stand.server}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

    before = most()
    path = stand.folder / "memory.py"
    path.write_text(good())
    assert await stand.open("memory.py") == "ready"
    beside = path.with_suffix(".beside")  # so that no part of it is read while it is still written
    beside.write_bytes(good().encode() + b"# more\n" * (MOST // 7))
    beside.rename(path)
    assert await stand.editor.end_state(path) == "failed"
    assert most() - before < 16 << 10  # KiB
    stand.close("memory.py")
    path.unlink()


async def test_a_file_that_goes_is_told_when_it_is_asked_for_and_found_when_it_comes_back(stand):
    path = stand.folder / "going.py"
    assert await stand.open("going.py", good()) == "ready"
    path.unlink()
    await stand.editor.request("mase/retrace", {"textDocument": {"uri": path.as_uri()}})
    assert await stand.editor.end_state(path) == "failed"
    code, message, _ = await stand.problem("going.py")
    assert code == "unreadable"
    assert message == "This file is not there any more: it was deleted, or moved with its folder." + AGAIN
    assert await stand.shown("going.py") == seen()
    path.write_text(good())  # the very same content: something else than this editor put it back
    assert await stand.editor.end_state(path) == "ready"
    assert not await stand.problems("going.py")
    assert not await stand.is_stale("going.py")
    await stand.others_answer()
    stand.close("going.py")


async def test_a_file_may_be_deleted_and_made_again_by_every_save(stand):
    path = stand.folder / "again.py"
    assert await stand.open("again.py", good()) == "ready"
    for width in range(17, 21):
        path.unlink()
        await asyncio.sleep(0)
        path.write_text(good(width))
        while await stand.editor.end_state(path) != "ready":
            pass
    assert not await stand.problems("again.py")
    stand.editor.retype(path, good(), good(20))  # as editors do once they see that the file has changed
    stand.texts[path] = good(20)
    assert await stand.shown("again.py") == seen(20)
    stand.close("again.py")
