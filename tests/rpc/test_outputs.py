"""What is written of a real model: a checkpoint that gives what the model gives, its weights as bytes, a drawing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rpc_answers import checked
from safetensors.torch import load_file

from mase_server import MaseGraph
from mase_server.client import Array, Client, RpcError, fetch

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


class Checked(Client):
    """A client that holds every answer against what is declared."""

    def call(self, method, params=None, **options):
        return checked(method, super().call(method, params, **options))


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return tmp_path_factory.mktemp("outputs")


@pytest.fixture(scope="module")
def client(project):
    """A client of a server in a folder of its own, with the file `net.py` open."""
    with pytest.MonkeyPatch.context() as patch:
        for name, variable in (("run", "MASE_RUNTIME_DIR"), ("cache", "XDG_CACHE_HOME"), ("state", "XDG_STATE_HOME")):
            patch.setenv(variable, str(project / name))
        patch.setenv("PYTHONPATH", str(ROOT))
        (project / "net.py").write_text(NET)
        command = [sys.executable, "-m", "mase_server", "serve", str(project), "--trust", "--python", sys.executable]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            with Checked(server.stdout.readline().strip()) as client:
                client.open(str(project / "net.py"))
                yield client
        finally:
            server.terminate()
            server.wait()


@pytest.fixture
def file(client, project):
    return str(project / "net.py")


def test_a_checkpoint_gives_what_the_model_gives(client, file, tmp_path):
    made = client.export_checkpoint(file, name=str(tmp_path / "net"))
    assert made["files"] == [str(tmp_path / "net.pt"), str(tmp_path / "net.mz")]
    with pytest.raises(RpcError, match="the folder /nowhere does not exist; make it first"):
        client.export_checkpoint(file, name="/nowhere/net")
    loaded = subprocess.run(
        [sys.executable, "-c", LOADED, str(tmp_path / "net")], capture_output=True, text=True, check=False
    )
    assert loaded.returncode == 0, loaded.stderr
    assert json.loads(loaded.stdout) == ["x", "fc", "relu", "output"]


def test_a_drawing_is_told_or_written(client, file, tmp_path):
    told = client.draw(file)["svg"]
    assert told.startswith("<svg")
    assert client.draw(file, file=str(tmp_path / "net.svg")) == {"file": str(tmp_path / "net.svg")}
    assert (tmp_path / "net.svg").read_text() == told


def test_weights_are_those_of_the_checkpoint_bit_for_bit(client, file, tmp_path):
    client.export_checkpoint(file, name=str(tmp_path / "net"))
    wanted = {tuple(tensor.shape): tensor for tensor in load_file(tmp_path / "net.pt").values()}
    found = fetch(client, file)
    assert {name: (array.dtype, array.shape) for name, array in found.items()} == {
        "fc.weight": ("float32", (3, 4)),
        "fc.bias": ("float32", (3,)),
    }
    for array in found.values():
        assert torch.equal(torch.from_numpy(array.numpy()), wanted[array.shape])


def test_weights_come_in_pages_of_any_size(client, file):
    whole = fetch(client, file)["fc.weight"]
    data, start = bytearray(), 0
    while start is not None:
        page = client.weights(file, names=["fc.weight"], start=start, count=20)
        [array] = page["arrays"]
        assert (array["size"], array["offset"], page["total"]) == (48, start, 48)
        data += array["data"]
        start = page["next"]
    assert data == whole.data


def test_without_bytes_only_names_and_sizes_come(client, file):
    page = client.weights(file, count=0)
    assert page["next"] is None
    assert [(each["name"], each["size"], each["data"]) for each in page["arrays"]] == [
        ("fc.weight", 48, b""), ("fc.bias", 12, b""),
    ]  # fmt: skip
    assert page["weights"] == "random weights (seed 0)"


def test_an_array_that_there_is_not_is_named(client, file):
    with pytest.raises(RpcError, match=r"'fc.wait'; did you mean 'fc.weight'\? It has fc.weight, fc.bias"):
        client.weights(file, names=["fc.wait"])
    with pytest.raises(RpcError, match="start is -1 and count 4194304; they begin at 0"):
        client.weights(file, start=-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool])
def test_bytes_of_any_type_are_a_numpy_array(dtype):
    tensor = torch.tensor([[0.0, 1.5, -2.25], [3.0, 1e-3, 200.0]]).to(dtype)
    data = tensor.view(torch.uint8).numpy().tobytes()
    made = Array(str(dtype).removeprefix("torch."), (2, 3), data).numpy()
    assert torch.equal(torch.from_numpy(made.copy()).to(dtype), tensor)


LOADING = NET.replace("import torch\n", "import torch\nfrom pathlib import Path\n", 1).replace(
    "    print(Net()(",
    """    net = Net()
    net.load_state_dict(torch.load(Path(__file__).with_name("kept.pt")), strict=False)
    print(net(""",
)


def test_statistics_of_weights_are_those_of_the_file_that_the_model_loads(client, project):
    values = torch.tensor([[0.0, -2.0, 0.5, 0.5], [0.0, 6.0, 1.0, 1.0], [float("nan"), 0.0, 2.0, 3.0]])
    torch.save({"fc.weight": values}, project / "kept.pt")
    (project / "loading.py").write_text(LOADING)
    path = str(project / "loading.py")
    client.open(path)
    told = client.weight_statistics(path, of="fc")
    assert told["weights"].startswith("weights of kept.pt; 1 of 2 parameters random")
    weight, bias = told["parameters"]
    finite = values[values.isfinite()]
    assert (weight["name"], weight["dtype"], weight["shape"], weight["count"]) == ("fc.weight", "float32", [3, 4], 12)
    assert (weight["min"], weight["max"], weight["zeros"], weight["not_finite"]) == (-2.0, 6.0, 3 / 12, 1)
    assert weight["mean"] == pytest.approx(float(finite.mean()))
    assert weight["std"] == pytest.approx(float(finite.std()))
    assert weight["bins"] == [int(each) for each in torch.histc(finite, bins=len(weight["bins"]), min=-2, max=6)]
    # What no file gave is random, so nothing is told of its values.
    assert (bias["random"], bias["count"], bias["bins"], bias["mean"]) == (True, 3, [], None)
    assert [each["name"] for each in client.weight_statistics(path, of="fc.bias")["parameters"]] == ["fc.bias"]
    client.close(path)


def test_random_weights_have_no_statistics(client, file):
    told = client.weight_statistics(file, of="fc")
    assert told["weights"] == "random weights (seed 0)"
    assert [(each["name"], each["random"], each["bins"]) for each in told["parameters"]] == [
        ("fc.weight", True, []), ("fc.bias", True, []),
    ]  # fmt: skip
    with pytest.raises(RpcError, match=r"no parameters in 'f'; did you mean 'fc'\?"):
        client.weight_statistics(file, of="f")


@pytest.fixture
def trained(tmp_path):
    """A checkpoint of the same model with weights of its own, and these."""
    namespace = {"__name__": "net"}
    exec(NET, namespace)
    torch.manual_seed(11)
    model = namespace["Net"]()
    MaseGraph(model, {"x": torch.randn(2, 4)}).export(str(tmp_path / "trained"))
    return str(tmp_path / "trained"), model.state_dict()


def test_a_checkpoint_takes_the_place_of_the_model_until_it_is_undone(client, file, trained):
    name, wanted = trained
    before = fetch(client, file)
    told = client.import_checkpoint(file, name=name)
    assert told["steps"] == [f"load_checkpoint(name={name!r})"]
    found = fetch(client, file)
    assert all(torch.equal(torch.from_numpy(found[key].numpy()), tensor) for key, tensor in wanted.items())
    assert client.weights(file, count=0)["weights"] == "weights of trained"
    [weight] = client.weight_statistics(file, of="fc.weight")["parameters"]
    assert weight["mean"] == pytest.approx(float(wanted["fc.weight"].mean()))
    assert client.weight_statistics(file, of="fc", original=True)["parameters"][0]["random"]
    assert client.models(file)[0]["transform"]["weights"] == "weights of trained"
    assert client.emit_verilog(file)["weights"] == "weights of trained"
    client.forget_verilog(file)
    client.undo_pass(file)
    assert {name: array.data for name, array in fetch(client, file).items()} == {
        name: array.data for name, array in before.items()
    }


def test_a_checkpoint_of_another_model_is_refused_and_changes_nothing(client, file, tmp_path):
    other = torch.nn.Sequential(torch.nn.Linear(4, 2))
    MaseGraph(other, {"input": torch.randn(2, 4)}).export(str(tmp_path / "other"))
    with pytest.raises(RpcError, match="is a checkpoint of another model: it takes input, and this model takes x"):
        client.import_checkpoint(file, name=str(tmp_path / "other"))
    with pytest.raises(RpcError, match=r"none.mz does not exist; a checkpoint is given by its name"):
        client.import_checkpoint(file, name=str(tmp_path / "none"))
    with pytest.raises(RpcError, match="name is 'net'; it has to be an absolute path"):
        client.import_checkpoint(file, name="net")
    assert client.pipeline(file)["steps"] == []
