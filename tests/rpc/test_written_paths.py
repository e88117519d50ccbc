"""Every parameter that is a path to write: relative ones are refused, nothing of others is written over or through.

The loop is over the table of methods: a new parameter that is a text has to be said to be a path, or not to be one.
"""

import os
import stat
import sys
from contextlib import contextmanager

import pytest
from test_outputs import client, file, project  # noqa: F401

from mase_server.client import RpcError
from mase_server.ir import checkpoint
from mase_server.protocol.wire import CHECKPOINT
from mase_server.rpc.dispatch import METHODS

#: Parameters that are texts, or hold some, and no paths.
TEXTS = {"root", "model", "pass", "arguments", "steps", "inputs", "build", "names", "colours", "set", "sets", "scope",
         "only", "columns", "other", "errors", "topics", "of", "text", "view",
         "device", "train", "dtype", "parallel", "before", "after"}  # fmt: skip
#: Paths that are read, or that name what is known already: (method or "" for all, parameter).
READ = {("", "path"), ("mase/importCheckpoint", "name"), ("mase/restartWorkers", "folder")}
#: Paths that are written to, and the ending of what is made there.
WRITTEN = {("mase/draw", "file"): ".svg", ("mase/exportCheckpoint", "name"): ".pt", ("mase/emitVerilog", "folder"): ""}
CODES = ("invalid-params", "cannot-write", "pass-failed")
THEIRS = "of somebody else"


def texts(method):
    """The names of a method's parameters that may hold a path."""
    return {key.removesuffix("?") for key, kind in method.params.items() if kind in (str, dict, list[str])}


def test_every_text_parameter_is_known_to_be_a_path_or_none():
    found = {(name, each) for name, method in METHODS.items() for each in texts(method) - TEXTS}
    assert {each for each in found if each not in WRITTEN and each not in READ and ("", each[1]) not in READ} == set()
    assert found.issuperset(WRITTEN)


def test_both_halves_know_how_a_graph_file_begins():
    assert CHECKPOINT == checkpoint.MAGIC


def content(folder):
    """Every file below a folder, links unfollowed: what it is and holds."""
    found = {}
    for each in sorted(folder.rglob("*")):
        status = each.lstat()
        held = each.read_bytes() if stat.S_ISREG(status.st_mode) else each.readlink() if each.is_symlink() else ""
        found[str(each)] = (stat.S_IFMT(status.st_mode), held)
    return found


def hostile(folder, ending):
    """Places that nothing may be written to, as the parameter names them."""
    made = _files(folder, ending) if ending else _folders(folder)
    end = ".svg" if ending == ".svg" else ""
    yield from (f"{folder / name}{end}" for name in made)
    yield from (f"{place}{end}" for place in ("relative", "../above", "./here", "~/home", "file:///tmp/x"))
    yield from (f"{place}{end}" for place in ("/proc/self/mem", "/proc/self/fd/1", "/proc/nowhere/x", f"{folder}/\0"))
    if ending == ".svg":
        yield from ("", "/dev/null", "/dev/full", "/proc/self/mem", str(folder / "net.py"), str(folder))


def _files(folder, ending):
    (folder / "net.py").write_text(THEIRS)
    (folder / f"theirs{ending}").write_text(THEIRS)
    (folder / f"link{ending}").symlink_to(folder / "net.py")
    (folder / f"dangling{ending}").symlink_to(folder / "new")
    (folder / f"folder{ending}").mkdir()
    os.mkfifo(folder / f"pipe{ending}")
    # A drawing replaces a drawing; what is in a .pt may be a week's training.
    return ("link", "dangling", "folder", "pipe", *(("theirs",) if ending == ".pt" else ()))


def _folders(folder):
    (folder / "theirs").mkdir()
    (folder / "theirs" / "file").write_text(THEIRS)
    (folder / "link").symlink_to(folder / "theirs")
    (folder / "plain").write_text(THEIRS)
    return ("theirs", "link", "plain")


@contextmanager
def untouched(*folders):
    """Nothing of these changes."""
    before = [content(folder) for folder in folders]
    yield
    assert [content(folder) for folder in folders] == before


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no such files")
@pytest.mark.parametrize(("method", "name"), WRITTEN)
def test_nothing_is_written_where_it_should_not_be(method, name, client, file, tmp_path):  # noqa: F811
    for place in list(hostile(tmp_path, WRITTEN[method, name])):
        with untouched(tmp_path), pytest.raises(RpcError) as caught:
            client.call(method, {"path": file, name: place})
        assert caught.value.code in CODES, (place, caught.value)
        assert name in str(caught.value) or place in str(caught.value), (place, caught.value)


def test_what_was_made_here_is_made_again(client, file, tmp_path):  # noqa: F811
    for _ in range(2):
        client.draw(file, file=str(tmp_path / "net.svg"))
        client.export_checkpoint(file, name=str(tmp_path / "net"))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["net.mz", "net.pt", "net.svg"]


def test_the_weights_of_a_training_are_not_replaced(client, file, tmp_path):  # noqa: F811
    (tmp_path / "best.pt").write_text(THEIRS)
    with pytest.raises(RpcError) as caught:
        client.export_checkpoint(file, name=str(tmp_path / "best"))
    assert str(caught.value) == (
        f"{tmp_path}/best.pt was not written by mase-server, and nothing was written; choose another name, "
        f"or move that file"
    )
    assert caught.value.code == "cannot-write"
    assert content(tmp_path) == {f"{tmp_path}/best.pt": (stat.S_IFREG, THEIRS.encode())}
