"""What forwards are handed, kind by kind: nested containers, masks, indices, sequences, clouds, graphs, options.

Ground truth: what is found runs in plain eager PyTorch, with values of several seeds.
"""

import sys
from types import ModuleType

import pytest
import torch

from mase_server.tracing.inputs.spec import inputs_at
from mase_server.tracing.inputs.text import format_inputs
from mase_server.tracing.models.found import Found, call_arguments
from tests.inputs.test_inputs_repairs import HEAD, looked_at

MORE = (
    "import math\nimport torch.nn.functional as F\nfrom dataclasses import dataclass\n"
    "from typing import NamedTuple, Optional, Dict, List, Tuple\nfrom torch import Tensor\n"
    "from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence\n\n"
)

#: Kind -> layers, parameters of forward, its body, and a text of the inputs where only one will do.
CONTAINERS = {
    "a dict": (
        "self.see, self.read = nn.Conv2d(3, 8, 3), nn.Embedding(30, 8)",
        "batch",
        'return self.see(batch["image"]).mean((2, 3)) + self.read(batch["text"]).mean(1)',
    ),
    "a dict with get": (
        "self.layer = nn.Linear(12, 8)",
        "batch",
        'x = batch.get("features")\nreturn self.layer(x)',
    ),
    "a dict in a dict": (
        "self.layer, self.other = nn.Linear(12, 8), nn.Linear(7, 8)",
        "sample",
        'return self.layer(sample["net_input"]["x"]) + self.other(sample["net_input"]["y"])',
    ),
    "a dict that a helper reads": (
        "self.layer = nn.Linear(12, 8)",
        "batch",
        "return self.layer(self.picked(batch))\n\ndef picked(self, batch):\n"
        '    return torch.cat([batch["left"], batch["right"]], -1)',
    ),
    "a dict handed on with stars": (
        "self.layer, self.other = nn.Linear(12, 8), nn.Linear(7, 8)",
        "batch",
        "return self.inner(**batch)\n\ndef inner(self, x, y):\n    return self.layer(x) + self.other(y)",
    ),
    "keywords": (
        "self.layer, self.other = nn.Linear(12, 8), nn.Linear(7, 8)",
        "**inputs",
        'return self.layer(inputs["x"]) + self.other(inputs["y"])',
    ),
    "keywords handed on": (
        "self.layer, self.other = nn.Linear(12, 8), nn.Linear(7, 8)",
        "**inputs",
        "return self.inner(**inputs)\n\ndef inner(self, x, y):\n    return self.layer(x) + self.other(y)",
    ),
    "any number of tensors": (
        "self.layer = nn.Linear(12, 8)",
        "*inputs",
        "return sum(self.layer(each) for each in inputs)",
    ),
    "two tensors with a star": (
        "self.layer, self.other = nn.Linear(12, 8), nn.Linear(7, 8)",
        "*inputs",
        "x, y = inputs\nreturn self.layer(x) + self.other(y)",
    ),
    "a pair in a pair": (
        "self.layer, self.rnn = nn.Linear(12, 8), nn.LSTMCell(8, 6)",
        "inputs",
        "x, (h, c) = inputs\nreturn self.rnn(self.layer(x), (h, c))[0]",
    ),
    "a dataclass": (
        "self.layer, self.read = nn.Linear(12, 8), nn.Embedding(30, 8)",
        "batch: Batch",
        "return self.layer(batch.features) + self.read(batch.label)",
    ),
    "a named tuple": (
        "self.layer, self.read = nn.Linear(12, 8), nn.Embedding(30, 8)",
        "batch: Pair",
        "features, label = batch\nreturn self.layer(features) + self.read(batch.label)",
    ),
    "an object with attributes and keys": (
        "self.read = nn.Embedding(30, 8)",
        "batch",
        'mask = batch["attention_mask"]\nreturn self.read(batch.input_ids) * mask.unsqueeze(-1)',
    ),
    "what a test of membership asks": (
        "self.layer, self.read = nn.Linear(12, 8), nn.Embedding(30, 8)",
        "batch",
        'x = self.layer(batch["x"])\nif "label" in batch:\n    x = x + self.read(batch["label"])\nreturn x',
    ),
    "a list of images": (
        "self.layers = nn.ModuleList([nn.Conv2d(3, 8, 1), nn.Conv2d(5, 8, 1)])",
        "features: List[Tensor]",
        "return [layer(x) for layer, x in zip(self.layers, features)]",
    ),
    "a pyramid": (
        "self.layers = nn.ModuleList([nn.Conv2d(4, 8, 1), nn.Conv2d(6, 8, 1), nn.Conv2d(10, 8, 1)])",
        "features",
        "a, b, c = [layer(x) for layer, x in zip(self.layers, features)]\n"
        "b = b + F.interpolate(c, scale_factor=2)\nreturn a + F.interpolate(b, scale_factor=2)",
    ),
    "a list without annotation": (
        "self.first, self.second = nn.Linear(12, 8), nn.Linear(7, 8)",
        "xs",
        "return self.first(xs[0]) + self.second(xs[1])",
    ),
    "a dict annotated": (
        "self.layers = nn.ModuleDict({'rgb': nn.Linear(12, 8), 'depth': nn.Linear(7, 8)})",
        "inputs: Dict[str, Tensor]",
        "return sum(self.layers[name](x) for name, x in inputs.items())",
    ),
    "a dict of which a loop over layers reads the keys": (
        "self.tables = nn.ModuleDict({'user': nn.Embedding(9, 8), 'country': nn.Embedding(5, 8)})",
        "sparse",
        "return torch.cat([table(sparse[name]) for name, table in self.tables.items()], -1)",
    ),
    "numbers and categories of a table": (
        "self.weight = nn.Parameter(torch.randn(5, 8))\n"
        "self.cats = nn.ModuleList([nn.Embedding(4, 8), nn.Embedding(9, 8)])",
        "x_num, x_cat",
        "tokens = [x_num[..., None] * self.weight]\n"
        "tokens += [table(x_cat[:, i])[:, None] for i, table in enumerate(self.cats)]\nreturn torch.cat(tokens, 1)",
    ),
    "maps as many as it has layers for": (
        "self.widths = [4, 6, 10]\nself.layers = nn.ModuleList([nn.Conv2d(each, 8, 1) for each in self.widths])",
        "inputs",
        "assert len(inputs) == len(self.widths)\n"
        "a, b, c = [self.layers[i](inputs[i]) for i in range(len(inputs))]\n"
        "b = b + F.interpolate(c, scale_factor=2)\nreturn a + F.interpolate(b, scale_factor=2)",
    ),
    "an optional mask": (
        "self.layer = nn.Linear(12, 8)",
        "x, mask=None",
        "x = self.layer(x)\nreturn x if mask is None else x.masked_fill(mask, 0)",
    ),
    "a keyword that must be given": (
        "self.layer, self.other = nn.Linear(12, 8), nn.Linear(7, 8)",
        "x, *, y",
        "return self.layer(x) + self.other(y)",
    ),
}

MASKS_AND_INDICES = {
    "a padding mask": (
        "self.attn = nn.MultiheadAttention(16, 2, batch_first=True)",
        "x, key_padding_mask",
        "return self.attn(x, x, x, key_padding_mask=key_padding_mask)[0]",
    ),
    "an additive mask": (
        "self.layer = nn.Linear(16, 16)",
        "x, attn_mask",
        "q = self.layer(x)\nreturn ((q @ q.transpose(-2, -1)) + attn_mask).softmax(-1) @ x",
    ),
    "a mask over heads": (
        "self.layer = nn.Linear(16, 16)",
        "x, mask",
        "b, t, c = x.shape\nq = self.layer(x).view(b, t, 4, 4).transpose(1, 2)\n"
        "a = (q @ q.transpose(-2, -1)).masked_fill(mask == 0, float('-inf'))\n"
        "return (a.softmax(-1) @ q).transpose(1, 2).reshape(b, t, c)",
    ),
    "a mask that is inverted": (
        "self.layer = nn.Linear(16, 1)",
        "x, mask",
        "s = self.layer(x).squeeze(-1)\ns = s.masked_fill(~mask, -1e9)\nreturn s.softmax(-1)",
    ),
    "a mask that is subtracted from one": (
        "self.table = nn.Embedding(40, 16)",
        "input_ids, attention_mask",
        "x = self.table(input_ids)\nbias = (1.0 - attention_mask[:, None, :]) * -1e4\n"
        "return ((x @ x.transpose(1, 2)) + bias).softmax(-1) @ x",
    ),
    "lengths": (
        "self.table, self.rnn = nn.Embedding(40, 12), nn.LSTM(12, 8, batch_first=True)",
        "tokens, lengths",
        "packed = pack_padded_sequence(self.table(tokens), lengths.cpu(), batch_first=True)\n"
        "out, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)\nreturn out",
    ),
    "lengths of another name": (
        "self.rnn = nn.GRU(12, 8)",
        "x, n",
        "packed = pack_padded_sequence(x, n)\nreturn self.rnn(packed)[1]",
    ),
    "the last step of each": (
        "self.rnn = nn.GRU(12, 8, batch_first=True)",
        "x, lengths",
        "out = self.rnn(x)[0]\nreturn out[torch.arange(len(x)), lengths - 1]",
    ),
    "indices into features": (
        "self.layer = nn.Linear(12, 8)",
        "x, which",
        "b, n, c = x.shape\nx = self.layer(x)\nreturn x.gather(1, which.unsqueeze(-1).expand(-1, -1, 8))",
    ),
    "indices into rows": (
        "self.layer = nn.Linear(12, 8)",
        "x, index",
        "assert x.dim() == 2\nreturn self.layer(x).index_select(0, index)",
    ),
    "classes to be one-hot": (
        "self.layer = nn.Linear(12 + 7, 8)",
        "z, label",
        "return self.layer(torch.cat([z, F.one_hot(label, 7).float()], 1))",
    ),
    "positions of a bounded table": (
        "self.table, self.places = nn.Embedding(40, 8), nn.Embedding(10, 8)",
        "tokens, positions",
        "return self.table(tokens) + self.places(positions)",
    ),
    "places as many as tokens": (
        "self.table, self.places = nn.Embedding(40, 8), nn.Parameter(torch.zeros(1, 10, 8))",
        "tokens",
        "return self.table(tokens) + self.places",
    ),
    "segments": (
        "self.table, self.kinds = nn.Embedding(40, 8), nn.Embedding(2, 8)",
        "input_ids, token_type_ids",
        "return self.table(input_ids) + self.kinds(token_type_ids)",
    ),
    "users and items": (
        "self.users, self.items = nn.Embedding(50, 8), nn.Embedding(9, 8)",
        "user, item",
        "return (self.users(user) * self.items(item)).sum(-1)",
    ),
    "users and items in pairs": (
        "self.users, self.items, self.out = nn.Embedding(50, 8), nn.Embedding(9, 8), nn.Linear(16, 1)",
        "x",
        "u, i = x[:, 0], x[:, 1]\nreturn self.out(torch.cat([self.users(u), self.items(i)], -1))",
    ),
    "fields with offsets": (
        "self.table = nn.Embedding(60, 8)\n"
        "self.register_buffer('offsets', torch.tensor([0, 10, 30]))\nself.out = nn.Linear(24, 1)",
        "x",
        "e = self.table(x + self.offsets)\nreturn self.out(e.flatten(1))",
    ),
    "indices into a parameter": (
        "self.codes = nn.Parameter(torch.randn(6, 4))",
        "codes",
        "return self.codes[codes] * 2",
    ),
    "a table read by function": (
        "self.weight = nn.Parameter(torch.randn(6, 4))",
        "ids",
        "return F.embedding(ids, self.weight)",
    ),
}

KINDS = {
    "time steps": (
        "self.conv, self.time = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(16, 8)",
        "x, t",
        "half = torch.exp(-math.log(1e4) * torch.arange(8, device=x.device) / 8)\n"
        "arguments = t[:, None].float() * half[None]\n"
        "e = self.time(torch.cat([arguments.sin(), arguments.cos()], -1))\nreturn self.conv(x) + e[:, :, None, None]",
    ),
    "time steps of a table": (
        "self.conv, self.time = nn.Conv2d(3, 8, 3, padding=1), nn.Embedding(5, 8)",
        "x, t, y",
        "return self.conv(x) + self.time(t)[:, :, None, None] + F.one_hot(y, 8)[:, :, None, None]",
    ),
    "noise levels": (
        "self.conv, self.noise = nn.Conv2d(1, 8, 3, padding=1), nn.Linear(1, 8)",
        "x, sigma",
        "return self.conv(x) + self.noise(sigma.log().view(-1, 1))[:, :, None, None]",
    ),
    "a graph": (
        "self.layer = nn.Linear(5, 4)",
        "x, edge_index",
        "row, col = edge_index\nout = torch.zeros(x.size(0), 4).index_add_(0, row, self.layer(x)[col])\nreturn out",
    ),
    "a graph with features of edges and batch": (
        "self.layer, self.edge = nn.Linear(5, 4), nn.Linear(3, 4)",
        "x, edge_index, edge_attr, batch",
        "m = self.layer(x)[edge_index[0]] + self.edge(edge_attr)\n"
        "h = torch.zeros(x.size(0), 4).index_add_(0, edge_index[1], m)\n"
        "return torch.zeros(int(batch.max()) + 1, 4).index_add_(0, batch, h)",
    ),
    "a graph as an object": (
        "self.layer = nn.Linear(5, 4)",
        "data",
        "x, edge_index = data.x, data.edge_index\n"
        "return torch.zeros(x.size(0), 4).index_add_(0, edge_index[1], self.layer(x)[edge_index[0]])",
    ),
    "an adjacency matrix": (
        "self.weight = nn.Parameter(torch.randn(5, 4))",
        "x, adj",
        "return torch.mm(adj, torch.mm(x, self.weight))",
    ),
    "adjacency matrices of a batch": (
        "self.layer = nn.Linear(5, 4)",
        "x, adj",
        "return torch.bmm(adj, self.layer(x))",
    ),
    "a cloud with points behind": (
        "self.conv, self.fc = nn.Conv1d(3, 8, 1), nn.Linear(8, 9)",
        "x",
        "b = x.size(0)\nx = self.conv(x).max(2)[0]\nreturn self.fc(x) + torch.eye(3).view(1, 9).repeat(b, 1)",
    ),
    "a cloud with features": (
        "self.conv = nn.Conv1d(3 + 6, 8, 1)",
        "xyz, points",
        "return self.conv(torch.cat([xyz, points], 1)).max(2)[0]",
    ),
    "distances of points": (
        "self.layer = nn.Linear(3, 8)",
        "xyz",
        "d = torch.cdist(xyz, xyz)\nnear = d.topk(4, largest=False)[1]\n"
        "b = torch.arange(xyz.shape[0])[:, None, None]\nreturn self.layer(xyz[b, near]).max(2)[0]",
    ),
    "raw audio": ("self.conv = nn.Conv1d(1, 8, 400, stride=160)", "wav", "return self.conv(wav.unsqueeze(1))"),
    "a spectrogram": (
        "self.conv, self.proj = nn.Conv1d(80, 16, 3, padding=1), nn.Linear(16, 4)",
        "mel",
        "return self.proj(F.gelu(self.conv(mel)).permute(0, 2, 1))",
    ),
    "a spectrum from audio": (
        "self.conv = nn.Conv2d(1, 8, 3)",
        "x",
        "s = torch.stft(x, 64, 16, window=torch.hann_window(64), return_complex=True).abs()\n"
        "return self.conv(s.unsqueeze(1))",
    ),
    "results of several layers": (
        "self.queries = nn.Parameter(torch.zeros(3, 16))",
        "sources: list[torch.Tensor], at: int",
        "values = torch.stack(sources)\nkeys = F.rms_norm(values, (values.size(-1),))\n"
        "weights = torch.einsum('dbtc,c->dbt', keys, self.queries[at]).softmax(0)\n"
        "return torch.einsum('dbt,dbtc->btc', weights, values)",
    ),
    "maps of several layers in another order": (
        "self.scale = nn.Parameter(torch.ones(1))",
        "maps: list[torch.Tensor]",
        "return self.scale * torch.stack(maps).permute(1, 0, 3, 4, 2)",
    ),
    "a complex spectrum": (
        "self.layer = nn.Linear(2, 8)",
        "spec",
        "assert spec.ndim == 3\nparts = spec.unsqueeze(-1)\n"
        "return self.layer(torch.cat([parts.real, parts.imag], -1)) * parts",
    ),
    "a spectrum whose parts are viewed": (
        "self.layer = nn.Linear(2, 2)",
        "x",
        "return torch.view_as_complex(self.layer(torch.view_as_real(x)))",
    ),
    "a spectrum that becomes audio": (
        "self.scale = nn.Parameter(torch.ones(1))",
        "spec",
        "b, bins, frames = spec.shape\n"
        "return torch.istft(self.scale * spec, 64, 16, window=torch.hann_window(64), center=True)",
    ),
    "video": (
        "self.conv = nn.Conv3d(3, 8, (3, 7, 7), stride=(1, 2, 2), padding=(1, 3, 3))",
        "x",
        "return self.conv(x).mean((2, 3, 4))",
    ),
    "frames of images": (
        "self.conv = nn.Conv2d(3, 8, 3)",
        "x",
        "b, t, c, h, w = x.shape\nx = self.conv(x.view(b * t, c, h, w)).mean((2, 3))\nreturn x.view(b, t, -1).mean(1)",
    ),
    "a state that may be none": (
        "self.rnn = nn.LSTM(12, 8)",
        "x, state",
        "out, state = self.rnn(x, state)\nreturn out, state",
    ),
    "observations and actions": (
        "self.q = nn.Sequential(nn.Linear(11 + 3, 16), nn.ReLU(), nn.Linear(16, 1))\nself.pi = nn.Linear(11, 3)",
        "obs, act",
        "return self.q(torch.cat([obs, act], -1)).squeeze(-1), self.pi(obs)",
    ),
    "an action to be scored": (
        "self.pi = nn.Linear(11, 5)",
        "obs, action",
        "return torch.distributions.Categorical(logits=self.pi(obs)).log_prob(action)",
    ),
    "a time series": (
        "self.seasonal, self.trend = nn.Linear(36, 12), nn.Linear(36, 12)",
        "x",
        "m = x.mean(1, keepdim=True)\nx = (x - m).permute(0, 2, 1)\n"
        "return (self.seasonal(x) + self.trend(x)).permute(0, 2, 1)",
    ),
    "rays": (
        "self.xyz, self.dir = nn.Linear(3 * 7, 16), nn.Linear(16 + 3, 4)",
        "x, d",
        "def enc(v):\n    waves = [f(v * 2.0 ** i) for i in range(3) for f in (torch.sin, torch.cos)]\n"
        "    return torch.cat([v, *waves], -1)\n"
        "h = self.xyz(enc(x)).relu()\nreturn self.dir(torch.cat([h, d], -1))",
    ),
    "a number": (
        "self.layer = nn.Linear(12, 8)",
        "x, steps: int",
        "for _ in range(steps):\n    x = x + 1\nreturn self.layer(x)",
    ),
    "a number that nobody annotates": (
        "self.layer = nn.Linear(8, 8)",
        "x, n",
        "outs = []\nfor _ in range(n):\n    x = self.layer(x)\n    outs.append(x)\nreturn torch.stack(outs, 1)",
    ),
    "a flag": (
        "self.layer = nn.Linear(12, 8)",
        "x, use_relu",
        "x = self.layer(x)\nif use_relu:\n    x = F.relu(x)\nreturn x",
    ),
    "a word": (
        "self.layer = nn.Linear(12, 8)",
        "x, mode: str",
        "x = self.layer(x)\nif mode == 'sum':\n    return x.sum(1)\nelif mode == 'mean':\n    return x.mean(1)\n"
        "raise ValueError(mode)",
    ),
    "a factor": ("self.layer = nn.Linear(12, 8)", "x, alpha: float", "return self.layer(x) * alpha"),
    "a size": (
        "self.layer = nn.Conv2d(12, 8, 1)",
        "x, size",
        "return F.interpolate(self.layer(x), size=size)",
    ),
    "height and width of tokens": (
        "self.conv = nn.Conv2d(12, 12, 3, padding=1, groups=12)",
        "x, H, W",
        "B, N, C = x.shape\nx = x.transpose(1, 2).view(B, C, H, W)\nreturn self.conv(x).flatten(2).transpose(1, 2)",
    ),
    "positions to start from": (
        "self.layer = nn.Linear(12, 8)\nself.register_buffer('table', torch.randn(50, 12))",
        "x, start_pos: int",
        "t = x.shape[1]\nreturn self.layer(x + self.table[start_pos:start_pos + t])",
    ),
    "rotations": (
        "self.layer = nn.Linear(16, 16)",
        "x, cos, sin",
        "b, t, c = x.shape\nq = self.layer(x).view(b, t, 2, 8)\na, z = q.chunk(2, -1)\n"
        "return torch.cat([a * cos - z * sin, a * sin + z * cos], -1).view(b, t, c)",
    ),
}


TYPES = (
    "@dataclass\nclass Batch:\n    features: Tensor\n    label: Tensor\n    name: str = 'none'\n\n\n"
    "class Pair(NamedTuple):\n    features: Tensor\n    label: Tensor\n\n\n"
)


def file_of(layers, parameters, body):
    layers = layers.replace("\n", "\n        ")
    own, *others = body.split("\n\ndef ")
    own = own.replace("\n", "\n        ")
    methods = "".join("\n\n    def " + each.replace("\n", "\n    ") for each in others)
    return (
        f"{HEAD}{MORE}\n{TYPES}class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {layers}\n\n    def forward(self, {parameters}):\n        {own}{methods}\n"
    )


def found_in(workspace, layers, parameters, body):
    (found,) = looked_at(workspace, file_of(layers, parameters, body))
    assert isinstance(found, Found), found
    return found


def runs_in_eager(found, seeds=3):
    """Does the forward succeed in eager PyTorch with values of several seeds?"""
    torch.manual_seed(0)
    model = found.construct().eval()
    for seed in range(seeds):
        args, kwargs = call_arguments(model, inputs_at(found.spec, seed=seed))
        with torch.no_grad():
            model(*args, **kwargs)
    return True


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_container_is_found_with_what_the_forward_reads(workspace, kind):
    assert runs_in_eager(found_in(workspace, *CONTAINERS[kind]))


@pytest.mark.parametrize("kind", MASKS_AND_INDICES)
def test_masks_lengths_and_indices_are_valid(workspace, kind):
    assert runs_in_eager(found_in(workspace, *MASKS_AND_INDICES[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_of_a_field_are_found(workspace, kind):
    found = found_in(workspace, *KINDS[kind])
    assert runs_in_eager(found)
    assert format_inputs(found.spec)


def test_loaded_modules_that_have_no_file_to_tell_do_not_end_the_search(workspace, monkeypatch):
    """`inspect` fails once at each of them, when it is asked for the text of a frame's code."""
    (workspace / "before").mkdir()
    found_in(workspace / "before", *CONTAINERS["a dict"])  # what torch itself asks `inspect` once is asked
    for number in range(40):
        nameless = ModuleType(f"nameless_{number}")
        nameless.__file__ = ""
        monkeypatch.setitem(sys.modules, nameless.__name__, nameless)
    assert runs_in_eager(found_in(workspace, *CONTAINERS["a dict in a dict"]))
