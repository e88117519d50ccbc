"""Models made again with values: those that the file loads, in the structure that the file gave them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from mase_server.tracing.execution.program import as_program
from mase_server.tracing.models.real import Real, real_model
from tests.worker.jobs import Job

NET = """
class Net(nn.Module):
    def __init__(self, head=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16))
        self.head = nn.Linear(16, head)

    def forward(self, x):
        return self.head(self.body(x))


net = Net()
{then}
net(torch.randn(3, 8))
"""


class Net(nn.Module):
    """The same as in the file, for this process."""

    def __init__(self, head: int = 4) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16))
        self.head = nn.Linear(16, head)


def state(head: int = 4) -> dict[str, torch.Tensor]:
    """A state that no seed of the code under test gives."""
    torch.manual_seed(99)
    found = {name: tensor + 0.5 for name, tensor in Net(head).state_dict().items()}
    return {name: tensor.long() if "num_batches" in name else tensor for name, tensor in found.items()}


def real(folder: Path, text: str) -> Real:
    job = Job(folder, text)
    traced = job.traced[0]
    with as_program(str(job.path), str(folder)):
        return real_model(traced.found.model, traced.session.shadows, traced.found.construct)


def same(model: nn.Module, expected: dict[str, torch.Tensor], prefix: str = "") -> bool:
    found = model.state_dict()
    return all(torch.equal(found[prefix + name], tensor) for name, tensor in expected.items())


LOADS = [
    ("torch.load", 'net.load_state_dict(torch.load("kept.pt"))'),
    ("renamed", 'net.load_state_dict({k.removeprefix("m."): v for k, v in torch.load("other.pt")["model"].items()})'),
    ("weights only", 'net.load_state_dict(torch.load("kept.pt", weights_only=True, map_location="cuda"))'),
    ("by parts", 'net.body.load_state_dict(torch.load("body.pt"))\nnet.head.load_state_dict(torch.load("head.pt"))'),
    ("safetensors", 'from safetensors.torch import load_file\nnet.load_state_dict(load_file("kept.safetensors"))'),
    ("load_model", 'from safetensors.torch import load_model\nload_model(net, "kept.safetensors")'),
]


@pytest.mark.parametrize(("name", "then"), LOADS, ids=[name for name, _ in LOADS])
def test_what_the_file_loads_is_loaded_for_real(tmp_path: Path, name: str, then: str):
    kept = state()
    torch.save(kept, tmp_path / "kept.pt")
    torch.save({"model": {f"m.{key}": value for key, value in kept.items()}}, tmp_path / "other.pt")
    for part in ("body", "head"):
        own = {key.removeprefix(f"{part}."): value for key, value in kept.items() if key.startswith(part)}
        torch.save(own, tmp_path / f"{part}.pt")
    from safetensors.torch import save_file

    save_file(kept, str(tmp_path / "kept.safetensors"))
    found = real(tmp_path, NET.replace("{then}", then))
    assert same(found.model, kept)
    assert found.how.startswith("weights of ")


def test_without_a_file_weights_are_random_and_the_same_every_time(tmp_path: Path):
    one, other = (real(tmp_path, NET.replace("{then}", "")) for _ in range(2))
    assert one.how == "random weights (seed 0)"
    assert same(one.model, other.model.state_dict())
    weight = one.model.get_parameter("head.weight")
    assert 0 < float(weight.detach().abs().max()) <= 16**-0.5  # as nn.Linear draws them
    assert torch.equal(one.model.get_buffer("body.1.running_var"), torch.ones(16))


ABSENT = [
    ('net.load_state_dict(torch.load("absent.pt"))', "absent.pt is"),
    ('net.load_state_dict(torch.hub.load_state_dict_from_url("https://example.org/far.pth"))', "far.pth is"),
    ('net.load_state_dict(list(torch.load("absent.pt")))', "absent.pt is"),
    (
        "from urllib.request import urlretrieve\n\ndef fetch(name):\n"
        '    urlretrieve(f"https://example.org/{name}", name)\n    return torch.load(name)\n\n'
        'net.load_state_dict(fetch("far.pth"))',
        "far.pth is",
    ),
    ('for name in ("a.pt", "b.pt", "a.pt"):\n    net.load_state_dict(torch.load(name)["model"])', "a.pt and b.pt are"),
]


@pytest.mark.parametrize(("then", "named"), ABSENT)
def test_a_file_that_is_not_there_gives_random_weights_and_is_named(tmp_path: Path, then: str, named: str):
    found = real(tmp_path, NET.replace("{then}", then))
    assert found.how == f"random weights (seed 0: {named} not on this disk)"


def test_weights_that_a_constructor_downloads_are_named(tmp_path: Path):
    text = """
    import urllib.request


    def load_weights(net):
        net.load_state_dict(torch.load(urllib.request.urlopen("https://example.org/far.pth")))


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 4)
            load_weights(self)

        def forward(self, x):
            return self.layer(x)
    """
    assert real(tmp_path, text).how == "random weights (seed 0: what load_weights downloads is not on this disk)"


def test_the_weights_of_a_part_are_loaded_though_those_of_another_are_not_there(tmp_path: Path):
    kept = state()
    torch.save({key.removeprefix("head."): value for key, value in kept.items() if "head" in key}, tmp_path / "head.pt")
    then = 'net.body.load_state_dict(torch.load("body.pt"))\nnet.head.load_state_dict(torch.load("head.pt"))'
    found = real(tmp_path, NET.replace("{then}", then))
    assert same(found.model, {name: tensor for name, tensor in kept.items() if "head" in name})
    assert found.how == (
        "weights of head.pt; 4 of 6 parameters random (seed 0: body.pt is not on this disk), such as body.0.weight"
    )


def test_a_part_that_was_exchanged_is_the_new_one(tmp_path: Path):
    kept = state()
    torch.save(kept, tmp_path / "kept.pt")
    then = 'net.load_state_dict(torch.load("kept.pt"))\nnet.head = nn.Linear(16, 3)'
    found = real(tmp_path, NET.replace("{then}", then))
    assert found.model.get_parameter("head.weight").shape == (3, 16)
    assert same(found.model, {name: tensor for name, tensor in kept.items() if name.startswith("body")})
    assert float(found.model.get_parameter("head.weight").detach().std()) > 0.05
    assert found.how == "weights of kept.pt; 2 of 6 parameters random (seed 0), such as head.weight"


def test_a_part_that_was_exchanged_for_one_like_it_has_not_what_was_loaded_before(tmp_path: Path):
    kept = state()
    torch.save(kept, tmp_path / "kept.pt")
    then = 'net.load_state_dict(torch.load("kept.pt"))\nnet.head = nn.Linear(16, 4)'
    found = real(tmp_path, NET.replace("{then}", then))
    assert same(found.model, {name: tensor for name, tensor in kept.items() if name.startswith("body")})
    assert not torch.equal(found.model.get_parameter("head.weight"), kept["head.weight"])
    assert "2 of 6 parameters random" in found.how


def test_weights_that_are_shared_afterwards_stay_shared(tmp_path: Path):
    text = """
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Embedding(10, 6), nn.Linear(6, 10, bias=False)

        def forward(self, x):
            return self.out(self.embed(x))

    net = Tied()
    net.out.weight = net.embed.weight
    net(torch.randint(0, 10, (2, 5)))
    """
    model = real(tmp_path, text).model
    assert model.get_parameter("out.weight") is model.get_parameter("embed.weight")


def test_modules_among_the_arguments_have_values_too(tmp_path: Path):
    text = """
    class Wrap(nn.Module):
        def __init__(self, inner, scale):
            super().__init__()
            self.inner, self.scale = inner, nn.Parameter(scale)

        def forward(self, x):
            return self.inner(x) * self.scale

    net = Wrap(nn.Linear(8, 8), torch.full((8,), 3.0))
    net(torch.randn(2, 8))
    """
    model = real(tmp_path, text).model
    assert not any(parameter.is_meta for parameter in model.parameters())
    assert torch.equal(model.get_parameter("scale").detach(), torch.full((8,), 3.0))


def test_pretrained_models_are_loaded_from_their_folder(tmp_path: Path):
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(99)
    kept = BertModel(config)
    kept.save_pretrained(tmp_path / "kept")
    found = real(tmp_path, """
        from transformers import BertModel
        net = BertModel.from_pretrained("./kept")
        net(torch.randint(0, 100, (2, 16)))
        """)  # fmt: skip
    assert same(found.model, kept.state_dict())
    assert found.how == "weights of kept"
    found = real(tmp_path, """
        from transformers import BertModel

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.bert, self.head = BertModel.from_pretrained("./kept"), nn.Linear(32, 2)

            def forward(self, x):
                return self.head(self.bert(x).pooler_output)

        Net()(torch.randint(0, 100, (2, 16)))
        """)  # fmt: skip
    assert same(found.model, kept.state_dict(), "bert.")
    assert "2 of 25 parameters random" in found.how


def test_a_model_of_a_configuration_alone_is_random(tmp_path: Path):
    from transformers import BertConfig

    BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64).save_pretrained(
        tmp_path / "kept"
    )
    found = real(tmp_path, """
        from transformers import BertConfig, BertModel
        net = BertModel(BertConfig.from_pretrained("./kept"))
        net(torch.randint(0, 100, (2, 16)))
        """)  # fmt: skip
    assert found.how == "random weights (seed 0)"


def test_a_model_for_a_gpu_is_made_on_the_cpu(tmp_path: Path):
    found = real(tmp_path, """
        class Net(nn.Module):
            def __init__(self, device="cuda"):
                super().__init__()
                self.fc = nn.Linear(8, 4, device=device)
                self.scale = nn.Parameter(torch.full((4,), 2.0, device=device))
                self.steps = torch.arange(4).to(device)
                self.cuda()

            def forward(self, x):
                return self.fc(x.cuda()) * self.scale + self.steps

        Net()(torch.randn(2, 8, device="cuda"))
        """)  # fmt: skip
    assert {str(parameter.device) for parameter in found.model.parameters()} == {"cpu"}
    assert torch.equal(found.model.get_parameter("scale").detach(), torch.full((4,), 2.0))
    assert torch.equal(found.model.steps, torch.arange(4))


def test_a_constructor_of_a_type_takes_a_tensor_that_it_is_given(tmp_path: Path) -> None:
    text = "import torch\nfrom torch import nn\n\nclass Words(nn.Module):\n    def __init__(self):\n"
    text += "        super().__init__()\n        self.table = nn.Embedding(9, 4)\n\n    def forward(self, ids):\n"
    job = Job(tmp_path, text + "        h = self.table(torch.LongTensor(ids))\n        return h\n")
    (traced,) = job.traced
    assert traced.error is None
    assert job.payload["unshown"] == []
    assert traced.found.inputs["ids"].dtype == torch.int64
