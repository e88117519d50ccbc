"""What runs a person's code was handed nothing that leads to the server, but the messages of its own process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hostile import SERVER

from mase_server.client import Client

#: Looks at all that its process was given, and tells it in a file, past what refuses that to programs.
CURIOUS = """\
import ctypes, json, os
import torch
from torch import nn

def read(name):
    with open(f"/proc/self/{name}", "rb") as file:
        return [os.fsdecode(word) for word in file.read().split(b"\\0") if word]

links = {}
for number in os.listdir("/proc/self/fd"):
    try:
        links[number] = os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        pass  # of the list itself
told = {"environment": dict(os.environ), "begun": read("environ"), "command": read("cmdline"), "links": links}
libc = ctypes.CDLL(None)
where = libc.open(FOUND, os.O_WRONLY | os.O_CREAT, 0o600)
data = json.dumps(told).encode()
libc.write(where, data, len(data))

class Net(nn.Module):
    def forward(self, x):
        return x + 1

Net()(torch.zeros(3, 4))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells it, which Linux alone has")
@pytest.mark.parametrize(("where", "tcp"), [("MASE_RUNTIME_DIR", False), ("XDG_RUNTIME_DIR", True)])
def test_code_finds_no_way_to_the_server_in_what_its_process_was_given(tmp_path, monkeypatch, where, tcp):
    run, folder, found = tmp_path / "secret-run", tmp_path / "work", tmp_path / "found.json"
    run.mkdir(mode=0o700)
    folder.mkdir()
    monkeypatch.delenv("MASE_RUNTIME_DIR", raising=False)
    for name, value in ((where, run), ("XDG_CACHE_HOME", tmp_path / "cache"), ("XDG_STATE_HOME", tmp_path / "state")):
        monkeypatch.setenv(name, str(value))
    (folder / "net.py").write_text(CURIOUS.replace("FOUND", repr(os.fsencode(found))))
    token = tmp_path / "secret-token"
    options = ["--tcp", "127.0.0.1:0", "--token-file", str(token)] if tcp else []
    command = [*SERVER, "serve", str(folder), "--python", sys.executable, "--trust", "--until-eof", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        address = server.stdout.readline().strip()
        try:
            with Client(address, token_file=token if tcp else None) as client:
                assert client.call("mase/open", {"path": str(folder / "net.py")})["state"] == "ready"
        finally:
            server.stdin.close()
    told = json.loads(found.read_text())
    secrets = ["secret-run", "secret-token", address, address.rpartition(":")[2]]
    assert not [each for each in secrets if each in json.dumps(told)]
    kinds = sorted(link.partition(":")[0] for link in told["links"].values() if not Path(link).is_absolute())
    assert kinds == ["pipe", "pipe", "socket"], "beside its own wire and what it prints it has others open"
