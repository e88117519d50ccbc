"""A file has one name, however it is spelled, and trust is asked of that name: of a folder, or of a document."""

import os
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire import Wire

from mase_server.client import Client, RpcError
from mase_server.daemon.trust import grant_trust
from mase_server.paths import canonical_path

MODEL = """\
open({canary!r}, "w").close()
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        return x + 1

Net()(torch.zeros(3, 4))
"""


class Places:
    """A trusted folder and a stranger's, with links that lead from each into the other."""

    def __init__(self, home):
        self.home, self.trusted, self.stranger = home, home / "trusted", home / "stranger"
        for folder in (self.trusted, self.stranger):
            (folder / "sub").mkdir(parents=True)
            (folder / "m.py").write_text(MODEL.format(canary=str(folder / "canary")))
            (folder / "other.py").write_text(MODEL.format(canary=str(folder / "canary")))
        (self.trusted / "link").symlink_to(self.stranger)
        (self.stranger / "link").symlink_to(self.trusted)
        (self.trusted / "linked.py").symlink_to(self.stranger / "m.py")
        (self.stranger / "linked.py").symlink_to(self.trusted / "m.py")
        (self.trusted / "twice.py").symlink_to("../stranger/link/link/m.py")
        (home / "alias").symlink_to("trusted")

    def ways(self, target):
        """Strategies for paths that lead to `m.py` of one of the two folders."""
        other = self.trusted if target == self.stranger else self.stranger
        links = [other / "linked.py", *([self.trusted / "twice.py"] if target == self.stranger else [])]
        aliases = [target / "m.py", self.home / "alias" / ".." / target.name / "m.py", other / "link" / "m.py", *links]
        dots = [other / ".." / target.name / "m.py", other / "sub" / ".." / ".." / target.name / "m.py",
                other / "link" / "sub" / ".." / "m.py", target / "link" / ".." / target.name / "m.py"]  # fmt: skip
        return st.builds(respelled, st.sampled_from([*map(str, aliases), *map(str, dots)]), st.randoms())


def respelled(path, random):
    """The same with repeated slashes and parts that lead nowhere."""
    parts = []
    for part in path.split("/")[1:]:
        parts += random.choice([[], [], ["."], ["", ""], ["..", *parts[-1:]] if parts and parts[-1] != ".." else []])
        parts.append(part)
    return f"/{'/'.join(parts)}" if os.path.realpath("/" + "/".join(parts)) == os.path.realpath(path) else path


def uri_of(path, random):
    """A URI of a path, of which any character may stand as its code."""
    said = "".join(quote(each, safe="") if random.random() < 0.2 and each != "/" else quote(each) for each in path)
    said = "".join(f"%{ord(each):02x}" if random.random() < 0.1 and each.isalpha() else each for each in said
                   ) if "%" not in said else said  # fmt: skip
    return random.choice(["file://", "file://", "FILE://", "file://localhost", "file:"]) + said


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return Places(tmp_path_factory.mktemp("spelled"))


@pytest.fixture(scope="module")
def editor(places, private_home):
    """An editor that trusts its one folder."""
    with Wire(private_home) as wire:
        wire.initialize([places.trusted.as_uri()], trusted=True, interpreter=sys.executable)
        yield wire


@pytest.fixture(scope="module")
def tool(editor, places, private_home):
    """A tool that asks the editor's server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MASE_RUNTIME_DIR", private_home["MASE_RUNTIME_DIR"])
        while editor.ask("mase/info", {}) and not list(Path(private_home["MASE_RUNTIME_DIR"]).rglob("*.json")):
            pass
        with Client(workspace=places.trusted) as client:
            yield client


def code_of(client, method, **params):
    with pytest.raises(RpcError) as caught:
        client.call(method, params)
    return caught.value.code


def test_no_spelling_of_a_strangers_file_is_trusted(editor, tool, places):
    @given(places.ways(places.stranger), st.randoms())
    def check(path, random):
        told = editor.ask("mase/open", {"uri": uri_of(path, random)})
        assert (told["path"], told["state"]) == (str(places.stranger / "m.py"), "untrusted")
        assert code_of(tool, "mase/open", path=path) == "untrusted"

    check()
    assert not (places.stranger / "canary").exists()


def test_every_spelling_of_a_trusted_file_is_the_same_file(editor, tool, places):
    real = str(places.trusted / "m.py")

    @given(places.ways(places.trusted), st.randoms())
    def check(path, random):
        told = editor.ask("mase/open", {"uri": uri_of(path, random)})
        assert (told["path"], told["state"], told["generation"]) == (real, "ready", 1)
        told = tool.call("mase/open", {"path": path})
        assert (told["path"], told["state"], told["generation"]) == (real, "ready", 1)

    check()
    assert {each["path"] for each in tool.call("mase/files", {})["files"]} <= {real, str(places.stranger / "m.py")}


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///trusted/%00/m.py", "/trusted/\0/m.py"),
        ("file:///trusted/m.py%00.txt", "/trusted/m.py\0.txt"),
        ("file:trusted/m.py", "trusted/m.py"),
        ("file://[nowhere/m.py", "../m.py"),
        (None, "/trusted/\ud800.py"),
        (None, ""),
    ],
)
def test_what_can_be_no_path_is_refused_with_the_reason(editor, tool, uri, path):
    if uri is not None:
        told = editor.ask("mase/open", {"uri": uri})
        assert told["code"] == -32602, told
        assert "names no file: " in told["message"]
        editor.tell("textDocument/didSave", textDocument={"uri": uri})
    told = editor.ask("mase/open", {"path": path})
    assert told["code"] == -32602, told
    assert "names no file: " in told["message"] or "has to be absolute" in told["message"]
    if "\ud800" not in path:  # MessagePack has no such text
        assert code_of(tool, "mase/open", path=path) == "invalid-params"
    assert editor.ask("mase/info", {})["name"] == "mase-server"


def test_where_letters_do_not_matter_they_are_those_of_the_folder(tmp_path):
    (tmp_path / "Work").mkdir()
    (tmp_path / "Work" / "Net.py").touch()
    if not (tmp_path / "wORK").exists():
        assert canonical_path(tmp_path / "wORK" / "nET.PY") == str(tmp_path / "wORK" / "nET.PY")
        pytest.skip(
            "this file system tells capital letters from small ones, so that each spelling is a file of its own"
        )
    assert canonical_path(tmp_path / "wORK" / "nET.PY") == str(tmp_path / "Work" / "Net.py")


def test_a_strangers_file_is_asked_of_the_kept_trust_and_not_of_the_editors(places, tmp_path, monkeypatch):
    """`--trust` is of what this editor opens, not of what other tools name."""
    home = environment(tmp_path, monkeypatch)
    (places.home / "kept").mkdir()
    kept, open_one = places.home / "kept" / "m.py", places.stranger / "other.py"
    kept.write_text(MODEL.format(canary=str(kept.with_name("canary"))))
    grant_trust(Path(home["XDG_STATE_HOME"]) / "mase-server", str(kept.parent))
    with Wire(home, "--trust") as wire:
        wire.initialize([places.trusted.as_uri()], interpreter=sys.executable)
        wire.open(open_one.as_uri(), open_one.read_text())
        assert wire.end_state(open_one.as_uri()) == "ready", wire.log
        with Client(address_in(home)) as client:
            assert code_of(client, "mase/open", path=str(places.stranger / "m.py")) == "untrusted"
            assert client.call("mase/open", {"path": str(open_one)})["state"] == "ready"
            assert client.call("mase/open", {"path": str(kept)})["state"] == "ready"
            assert client.call("mase/open", {"path": str(places.trusted / "other.py")})["state"] == "ready"


def test_without_a_workspace_folder_trust_is_of_the_documents_that_are_open(tmp_path, monkeypatch):
    home = environment(tmp_path, monkeypatch)
    mine, beside = tmp_path / "mine.py", tmp_path / "beside.py"
    for each in (mine, beside):
        each.write_text(MODEL.format(canary=str(each.with_suffix(".canary"))))
    with Wire(home) as wire:
        wire.initialize(trusted=True, interpreter=sys.executable)
        wire.open(mine.as_uri(), mine.read_text())
        assert wire.end_state(mine.as_uri()) == "ready", wire.log
        with Client(address_in(home)) as client:
            assert code_of(client, "mase/open", path=str(beside)) == "untrusted"
            assert code_of(client, "mase/retrace", path=str(beside)) == "untrusted"
            assert client.call("mase/retrace", {"path": str(mine)})["state"] == "ready"
        wire.tell("textDocument/didClose", textDocument={"uri": mine.as_uri()})
        assert wire.end_state(beside.as_uri()) == "untrusted"
        with Client(address_in(home)) as client:
            assert code_of(client, "mase/retrace", path=str(mine)) == "untrusted"
    assert not beside.with_suffix(".canary").exists()


def environment(tmp_path, monkeypatch):
    """A home of its own for one server, in which there is one socket."""
    home = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_STATE_HOME": str(tmp_path / "state")}
    home["MASE_RUNTIME_DIR"] = str(tmp_path / "run")
    monkeypatch.setenv("MASE_RUNTIME_DIR", home["MASE_RUNTIME_DIR"])
    return home


def address_in(home):
    [socket] = Path(home["MASE_RUNTIME_DIR"]).glob("*.sock")
    return f"unix:{socket}"
