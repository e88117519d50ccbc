"""Trust is of one folder and what is below it, ends when it is taken back, and what it lets run has limits."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from editing import Editor
from hostile import SERVER
from lsprotocol import types as lsp

from mase_server.client import Client, RpcError
from mase_server.daemon.trust import grant_trust, revoke_trust

_LONG_AGO = 1_000_000_000
MODEL = """\
import os
os.utime({canary!r})
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, {outputs})

    def forward(self, x):
        y = self.fc(x)
        return y

Net()(torch.zeros(3, 4))
"""
#: How many outputs a model has, which its shape tells: one by one for each limit that holds.
LIMITS = """
import errno, resource, tempfile
held = [resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)]
with tempfile.TemporaryFile(buffering=0) as file:
    file.seek((1 << 30) - 1)
    held.append(file.write(b"x") == 1)
    try:
        file.write(b"x")
    except OSError as error:
        held.append(error.errno == errno.EFBIG)
"""


class Planted:
    """Folders with one model each that tells when it runs."""

    def __init__(self, home):
        self.home = home
        self.trusted = self._model("work")
        self.inside = self._model("work/below")
        self.sibling = self._model("work-of-another")
        self.above = self._model(".")
        self.linked = self._link(home / "alias", self.sibling.parent)
        self.workspace = self.trusted.parent

    def _model(self, folder, outputs="2"):
        where = self.home / folder
        where.mkdir(exist_ok=True)
        (where / "canary").touch()
        (where / "model.py").write_text(MODEL.format(canary=str(where / "canary"), outputs=outputs))
        os.utime(where / "canary", (_LONG_AGO, _LONG_AGO))
        return where / "model.py"

    def _link(self, name, target):
        name.symlink_to(target)
        return name / "model.py"

    def ran(self):
        """The folders whose model ran since this was asked last."""
        canaries = [each for each in self.home.rglob("canary") if each.stat().st_mtime != _LONG_AGO]
        for each in canaries:
            os.utime(each, (_LONG_AGO, _LONG_AGO))
        return [each.parent for each in canaries if not each.parent.is_symlink()]


@pytest.fixture
def planted(tmp_path):
    return Planted(tmp_path)


def code_of(client, method, path=None, **params):
    with pytest.raises(RpcError) as caught:
        client.call(method, params or {"path": str(path)})
    return caught.value.code


def test_trust_is_of_one_folder_alone_and_can_be_taken_back(planted, private_home, tmp_path, monkeypatch):
    for name, value in private_home.items():
        monkeypatch.setenv(name, value)
    state = Path(private_home["XDG_STATE_HOME"]) / "mase-server"
    grant_trust(state, str(planted.workspace))
    held = LIMITS + "outputs = 10 + sum(held)"
    planted.trusted.write_text(held + "\n" + MODEL.format(canary=str(planted.workspace / "canary"), outputs="outputs"))
    command = [*SERVER, "serve", str(planted.workspace), "--python", sys.executable, "--until-eof"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline().startswith("unix:")
        with Client(workspace=planted.workspace) as client:
            for other in (planted.sibling, planted.above, planted.linked):
                assert code_of(client, "mase/open", other) == "untrusted"
                assert code_of(client, "mase/retrace", other) == "untrusted"
            assert planted.ran() == []
            told = client.call("mase/open", {"path": str(planted.trusted)})
            assert told["state"] == "ready", told["message"]
            assert planted.ran() == [planted.workspace]
            output = client.call("mase/models", {"path": str(planted.trusted)})["models"][0]
            assert output["parameters"] == 13 * 5, "a limit does not hold where a person's code runs"
            assert client.call("mase/open", {"path": str(planted.inside)})["state"] == "ready"
            assert planted.ran() == [planted.inside.parent]
            assert revoke_trust(state, str(planted.workspace))
            assert code_of(client, "mase/retrace", planted.trusted) == "untrusted"
            assert code_of(client, "mase/transformed", planted.trusted) == "untrusted"
            planted.trusted.write_text(planted.trusted.read_text() + "# saved\n")
            assert code_of(client, "mase/restartWorkers", folder=str(planted.workspace)) == "untrusted"
            assert planted.ran() == []
        server.stdin.close()
        assert server.wait(60) == 0


async def test_a_clients_word_is_of_its_folders_and_the_person_is_asked_about_others(planted, tmp_path):
    """A trusted window that opens a file from elsewhere: by a link in a text, or by going to a definition."""
    (tmp_path / "work-of-another" / "plain.py").write_text("print('no model')\n")
    options = {"trusted": True, "interpreter": sys.executable}
    editor = Editor(planted.workspace, options=options, answer=lsp.MessageActionItem("Not now"))
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    await editor.client.start_io(*SERVER, "lsp", env=env)
    await editor.initialize()
    try:
        plain = planted.sibling.with_name("plain.py")
        editor.open(plain)
        assert await editor.end_state(plain) == "no_model"
        editor.open(planted.sibling)
        assert await editor.end_state(planted.sibling) == "untrusted"
        asked = await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
        assert asked.message.startswith(
            f"To show tensor shapes, MASE runs the model files of {planted.sibling.parent}."
        )
        assert planted.ran() == []
        editor.open(planted.trusted)
        assert await editor.end_state(planted.trusted) == "ready"
        assert planted.ran() == [planted.workspace]
    finally:
        editor.unread.clear()
        await asyncio.wait_for(editor.stop(), 30)
