"""What is written of a real model: a checkpoint that gives what the model gives, and a drawing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mase_server.client import Client, RpcError

ROOT = Path(__file__).parent.parent.parent
NET = """import torch
import torch.nn as nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x).relu()

if __name__ == "__main__":
    print(Net()(torch.randn(2, 4)).shape)
"""
LOADED = """import json, sys, torch
from mase_server import MaseGraph
graph = MaseGraph.from_checkpoint(sys.argv[1])
x = torch.randn(5, 4)
layer = graph.model.fc
assert torch.equal(graph.model(x), torch.relu(torch.nn.functional.linear(x, layer.weight, layer.bias)))
print(json.dumps([node.name for node in graph.fx_graph.nodes]))
"""


def test_a_checkpoint_and_a_drawing_of_a_real_model(tmp_path, monkeypatch):
    for name, variable in (("run", "MASE_RUNTIME_DIR"), ("cache", "XDG_CACHE_HOME"), ("state", "XDG_STATE_HOME")):
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    path = tmp_path / "net.py"
    path.write_text(NET)
    command = [sys.executable, "-m", "mase_server", "serve", str(tmp_path), "--trust", "--python", sys.executable]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        with Client(server.stdout.readline().strip()) as client:
            client.open(str(path))
            made = client.export_checkpoint(str(path), name=str(tmp_path / "net"))
            assert made["files"] == [str(tmp_path / "net.pt"), str(tmp_path / "net.mz")]
            assert client.draw(str(path))["svg"].startswith("<svg")
            assert client.draw(str(path), file=str(tmp_path / "net.svg")) == {"file": str(tmp_path / "net.svg")}
            with pytest.raises(RpcError, match="the folder /nowhere does not exist; make it first"):
                client.export_checkpoint(str(path), name="/nowhere/net")
    finally:
        server.terminate()
        server.wait()
    assert "<svg" in (tmp_path / "net.svg").read_text()
    loaded = subprocess.run(
        [sys.executable, "-c", LOADED, str(tmp_path / "net")], capture_output=True, text=True, check=False
    )
    assert loaded.returncode == 0, loaded.stderr
    assert json.loads(loaded.stdout) == ["x", "fc", "relu", "output"]
