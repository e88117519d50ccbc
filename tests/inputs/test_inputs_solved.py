"""Inputs that follow from what an error says: paddings, splits, unpacked slices, callables and partners.

Ground truth: what is found runs in plain eager PyTorch, with values of several seeds.
"""

import random

import pytest

from mase_server.tracing.inputs.text import format_inputs
from mase_server.tracing.models.found import Unshown
from tests.inputs.test_inputs_kinds import file_of, found_in, runs_in_eager
from tests.inputs.test_inputs_repairs import looked_at
from tests.worker.jobs import Job

#: What is told -> layers, parameters of forward, its body, the inputs.
SOLVED = {
    "a padding longer than a signal": (
        "self.size = 1024",
        "x",
        '"""x (Tensor): signal (B, T)."""\n'
        "s = torch.stft(x, self.size, 256, window=torch.hann_window(self.size), return_complex=True)\nreturn s.abs()",
        None,
    ),
    "two signals in a loss": (
        "self.size = 2048",
        "x, y",
        '"""\nArgs:\n    x (Tensor): Predicted signal (B, T).\n    y (Tensor): Groundtruth signal (B, T).\n"""\n'
        "def mag(a):\n"
        "    return torch.stft(a, self.size, 512, window=torch.hann_window(self.size), return_complex=True).abs()\n"
        "return F.l1_loss(mag(x), mag(y)) + (mag(y) - mag(x)).norm() / mag(y).norm()",
        None,
    ),
    "the longest of some lengths": (
        "self.table = nn.Embedding(30, 8)",
        "texts, src_lens, max_src_len",
        "ids = torch.arange(0, max_src_len).unsqueeze(0).expand(src_lens.shape[0], -1)\n"
        "return self.table(texts).masked_fill((ids >= src_lens.unsqueeze(1)).unsqueeze(-1), 0)",
        "texts: i64[B=2, T=16] < 30; src_lens: i64[B] lengths(T); max_src_len: 16",
    ),
    "halves of channels": (
        "self.half, self.conv = 5, nn.Conv1d(5, 10, 1)",
        "x, x_mask",
        "a, b = torch.split(x, [self.half] * 2, 1)\nm, s = self.conv(a).chunk(2, 1)\n"
        "return torch.cat([a, (m + b * s.exp()) * x_mask], 1)",
        "x: f32[B=2, 10, L=64]; x_mask: f32[B, 1, L] ones",
    ),
    "a mask over all channels of what is computed": (
        "self.convs = nn.ModuleList([nn.Conv1d(3, 16, 3, padding=1), nn.Conv1d(16, 16, 3, padding=1)])",
        "x, x_mask",
        "for conv in self.convs:\n    x = conv(x * x_mask).relu()\nreturn x * x_mask",
        "x: f32[B=2, 3, L=64]; x_mask: f32[B, 1, L] ones",
    ),
    "a mask over all features of each token": (
        "self.table, self.up, self.down = nn.Embedding(90, 24), nn.Linear(24, 48), nn.Linear(48, 24)",
        "x, mask",
        "x = self.table(x) * mask\nx = self.up(x).relu() * mask\nreturn self.down(x) * mask",
        "x: i64[B=2, T=16] < 90; mask: f32[B, T, 1] ones",
    ),
    "a batch of a fixed size": (
        "self.table, self.batch = nn.Embedding(90, 10), 24",
        "x",
        "lengths = (x > 0).sum(1)\nreturn self.table(x).view(self.batch, -1, 10) * lengths.view(self.batch, 1, 1)",
        "x: i64[B=24, T=16] < 90",
    ),
    "as many columns as there are offsets": (
        "self.table = nn.Embedding(11, 6)\nself.register_buffer('offsets', torch.tensor([0, 4]))",
        "x_cat",
        "return self.table(x_cat + self.offsets[None]).view(x_cat.size(0), -1)",
        "x_cat: i64[B=2, T=2] < 7",
    ),
    "numbers in a list with embeddings": (
        "self.table, self.layer = nn.Embedding(11, 6), nn.Linear(15, 3)\n"
        "self.register_buffer('offsets', torch.tensor([0, 4]))",
        "x_num, x_cat",
        "parts = []\nparts.append(x_num)\n"
        "parts.append(self.table(x_cat + self.offsets[None]).view(x_cat.size(0), -1))\n"
        "return self.layer(torch.cat(parts, dim=-1))",
        "x_num: f32[B=2, 3]; x_cat: i64[B, T=2] < 7",
    ),
    "two inputs in a batch of a fixed size": (
        "self.letters, self.words, self.batch = nn.Embedding(90, 10), nn.Embedding(70, 6), 24",
        "xc, xw",
        "h = self.letters(xc.view(-1, xc.size(2))).mean(1).view(self.batch, -1, 10)\n"
        "return torch.cat([h, self.words(xw)], 2)",
        "xc: i64[B=24, T=16, S=12] < 90; xw: i64[B, T] < 70",
    ),
    "the rest of a list": (
        "self.scale = 2.0",
        "inputs, predictions",
        "mel, pitch, energy = inputs[3:]\np, q, r = predictions\n"
        "return F.l1_loss(p, mel) + F.l1_loss(q, pitch) * self.scale + F.l1_loss(r, energy)",
        None,
    ),
    "a field that is added to a table": (
        "self.register_buffer('grid', torch.stack(torch.meshgrid(torch.arange(5.0), torch.arange(7.0), indexing='ij'))"
        "[None])",
        "flow",
        "for _ in range(3):\n    flow = flow * 0.5\n    flow = flow + (self.grid + flow)\nreturn flow",
        "flow: f32[B=2, 2, 5, 7]",
    ),
    "a signal of several windows": (
        "self.window = torch.hann_window(512)",
        "x",
        "b, c, n = x.shape\n"
        "return torch.stft(x.reshape(-1, n), 512, 128, window=self.window, center=False, return_complex=True).abs()",
        None,
    ),
    "a list with a layer for each member": (
        "self.stems = nn.ModuleList([nn.Conv2d(c, 8, 1) for c in (4, 6, 10)])\n"
        "self.heads, self.strides = nn.ModuleList([nn.Conv2d(8, 3, 1) for _ in range(3)]), [8, 16, 32]",
        "xin",
        "out = []\n"
        "for k, (head, stride, x) in enumerate(zip(self.heads, self.strides, xin)):\n"
        "    x = head(self.stems[k](x)).flatten(2)\n    out.append(x.new_zeros(1).type(xin[0].type()) + x * stride)\n"
        "return torch.cat(out, 2)",
        "xin: [f32[B=2, 4, 64, 64], f32[B, 6, 32, 32], f32[B, 10, 16, 16]]",
    ),
    "maps that are read by the number of a layer": (
        "self.lateral, self.start = nn.ModuleList([nn.Conv2d(c, 8, 1) for c in (4, 6)]), 0",
        "inputs",
        "return [layer(inputs[i + self.start]).mean() for i, layer in enumerate(self.lateral)]",
        "inputs: [f32[B=2, 4, 64, 64], f32[B, 6, 32, 32]]",
    ),
    "shapes and channels that checks ask for": (
        "self.layer, self.more = nn.Linear(2048, 8), nn.Linear(384, 8)",
        "maps, others",
        "for name, x, count in (('first', maps, 2048), ('second', others, 384)):\n"
        "    if x.dim() != 5:\n"
        "        raise ValueError(f'expected {name} features [B, T, C, h, w], got {tuple(x.shape)}')\n"
        "for name, x, count in (('first', maps, 2048), ('second', others, 384)):\n"
        "    if x.shape[2] != count:\n"
        "        raise ValueError(f'{name} has {x.shape[2]} channels, but the model makes {count} (note-007)')\n"
        "return self.layer(maps.flatten(3).mean(3)) + self.more(others.flatten(3).mean(3))",
        None,
    ),
    "points of which a check says the number": (
        "self.layer = nn.Linear(6, 8)",
        "hidden, places",
        '"""\nhidden: [B, N, T, E]\nplaces: [N, 2]\n"""\n'
        "if places.dim() != 2:\n    raise ValueError(f'places must be [N, 2], got {tuple(places.shape)}')\n"
        "near = torch.cdist(places, places).topk(3, largest=False)[0].mean(1)\n"
        "return self.layer(hidden[:, :, -1]) * near[:, None] + torch.zeros(hidden.shape[1], 8)",
        "hidden: f32[B=2, N=8, T=16, 6]; places: f32[N, 2]",
    ),
    "labels of a loss for volumes": (
        "self.ignored = -1",
        "input, target",
        '"""input: scores (N, C, D, H, W)"""\n'
        "weight = input.transpose(0, 1).flatten(1).sum(1)\n"
        "return F.cross_entropy(input, target, weight=weight, ignore_index=self.ignored)",
        "input: f32[B=2, 64, D=8, H=32, W=32]; target: i64[B, D, H, W] < 10",
    ),
    "a state for each cell of a list": (
        "self.cells = nn.ModuleList([nn.GRUCell(6, 8), nn.GRUCell(8, 8)])",
        "x, hidden",
        "states = []\nfor index, cell in enumerate(self.cells):\n    x = cell(x, hidden[index])\n    states += [x]\n"
        "return torch.stack(states)",
        None,
    ),
    "lengths that an assertion compares": (
        "self.up, self.out = nn.Conv1d(4, 6, 1), nn.Conv1d(1, 6, 1)",
        "noise, cond",
        "cond = F.interpolate(self.up(cond), scale_factor=150)\nassert cond.size(-1) == noise.size(-1)\n"
        "return self.out(noise) + cond",
        None,
    ),
    "a list of records": (
        "self.conv = nn.Conv2d(3, 4, 3)",
        "batched_input",
        "x = torch.stack([record['image'] for record in batched_input])\nx = self.conv(x)\n"
        "for record in batched_input:\n    if 'boxes' in record:\n        x = x + record['boxes']\nreturn x",
        "batched_input: [{image: f32[3, H=32, W=32]}, {image: f32[3, H, W]}]",
    ),
    "some members of a tuple": (
        "self.words, self.bigrams = nn.Embedding(9, 4), nn.Embedding(8, 4)",
        "x",
        "return self.words(x[0]) + self.bigrams(x[2])",
        None,
    ),
    "images of scores and labels in a loss": (
        "self.smooth = 1.0",
        "output, target",
        "hot = torch.FloatTensor(target.size()[0], 10, target.size()[1], target.size()[2]).zero_()\n"
        "hot = hot.scatter_(1, target.unsqueeze(1), 1)\n"
        "return F.cross_entropy(output, target) + (output.softmax(1) * hot).sum() + self.smooth",
        "output: f32[B=2, 10, H=32, W=32]; target: i64[B, H, W] < 10",
    ),
    "a number of dimensions that a check tells": (
        "self.one, self.other = nn.Linear(6, 4), nn.Linear(5, 4)",
        "img, txt",
        "if img.ndim != 3 or txt.ndim != 3:\n    raise ValueError('img and txt must have 3 dimensions.')\n"
        "return torch.cat((self.one(img), self.other(txt)), 1)",
        "img: f32[B=2, T=16, 6]; txt: f32[B, T, 5]",
    ),
    "columns that a convolution makes fewer": (
        "self.conv, self.out = nn.Conv2d(1, 8, 3, stride=2), nn.Linear(8 * 19, 5)",
        "inputs",
        '"""inputs (Tensor): features (batch, time, dim)."""\n'
        "x = self.conv(inputs.unsqueeze(1))\nb, c, t, f = x.size()\n"
        "return self.out(x.transpose(1, 2).contiguous().view(b, t, c * f))",
        None,
    ),
    "a layer that is handed over": (
        "self.norm = nn.LayerNorm(16)",
        "x, sublayer",
        "return x + sublayer(self.norm(x))",
        None,
    ),
    "maps that are joined with one that was made larger": (
        "self.up = nn.Sequential(*(nn.Conv2d(3, 3, 3, padding=1) for _ in range(300)), nn.Upsample(scale_factor=4))\n"
        "self.out = nn.Conv2d(5, 3, 3, padding=1)",
        "x, height, mask",
        "return self.out(torch.cat([self.up(x), height, mask], 1))",
        "x: f32[B=2, 3, H=32, W=32]; height: f32[B, 1, 128, 128]; mask: bool[B, 1, 128, 128] ones",
    ),
    "readings that are joined with a table of steps and places": (
        "self.layer, self.table = nn.Linear(3, 8), nn.Parameter(torch.zeros(7, 11, 5))\nself.out = nn.Linear(13, 2)",
        "x",
        "table = self.table.expand(x.shape[0], *self.table.shape)\n"
        "return self.out(torch.cat([self.layer(x), table], dim=-1))",
        "x: f32[B=2, 7, 11, 3]",
    ),
    "attributes of a record whose sizes a helper unpacks": (
        "self.layer = nn.Linear(6, 4)",
        "batch",
        "return self.mix(batch)\n\ndef mix(self, held):\n    n, steps, width = held.payload.shape\n"
        "    known = torch.arange(steps)[None] < held.lengths[:, None]\n"
        "    return self.layer(held.payload[..., :6] * known[..., None])",
        None,
    ),
    "labels that have to be alike in pairs": (
        "self.weight = 0.5",
        "model_outputs, target",
        "outputs, labels, n = model_outputs, target, len(model_outputs)\n"
        "one, two = torch.arange(0, n, 2), torch.arange(1, n, 2)\n"
        "assert (labels[one] == labels[two]).all(), 'not in pairs'\n"
        "x, y = outputs[one], outputs[two]\nspread = (x.T @ x) / len(x)\nn, m = spread.shape\nassert n == m\n"
        "return F.mse_loss(x, y) + self.weight * spread.flatten()[:-1].view(n - 1, n + 1)[:, 1:].pow(2).sum()",
        "model_outputs: f32[B=2, 64]; target: i64[B] zeros",
    ),
    "a vector that is viewed as a map of one element": (
        "self.width, self.up = 12, nn.Sequential(nn.ConvTranspose2d(12, 8, 4), nn.ReLU(), nn.Conv2d(8, 3, 3))",
        "z",
        "return self.up(z.view(-1, self.width, 1, 1))",
        "z: f32[B=2, 12]",
    ),
    "a check that expects a shape of all that it is given": (
        "self.norm = 2",
        "pred, target",
        "for each in (pred, target):\n    if each.dim() != 4 or each.shape[-1] != 7 or not each.is_floating_point():\n"
        "        raise ValueError('Expected poses of shape (B, T, J, 7), floats of one type')\n"
        "return (pred - target).norm(p=self.norm, dim=-1).mean()",
        "pred: f32[B=2, T=16, 10, 7]; target: f32[B, T, 10, 7]",
    ),
    "a vector that is repeated over a map": (
        "self.layers = nn.Conv2d(32 + 6, 32, 1)",
        "feature_map, z",
        "for at in (2, 3):\n"
        "    z = torch.unsqueeze(z, at)\n"
        "    z = z.repeat(*[feature_map.shape[at] if each == at else 1 for each in range(z.dim())])\n"
        "return self.layers(torch.cat((feature_map, z), dim=1))",
        "feature_map: f32[B=2, 19, H=32, W=32]; z: f32[B, 19]",
    ),
    "a check that tells a shape, and beside it the sizes": (
        "self.joints = 14; self.layer = nn.Linear(14 * 3, 2)",
        "poses",
        "if poses.dim() != 4 or tuple(poses.shape[2:]) != (self.joints, 3):\n"
        "    raise ValueError(f'Expected (N, T, V, C) with V={self.joints}, C=3, got {tuple(poses.shape)}')\n"
        "return self.layer(poses.flatten(2))",
        "poses: f32[B=2, T=16, 14, 3]",
    ),
    "a check that tells the shape of two": (
        "self.layer = nn.Linear(6, 2)",
        "left, right",
        "if left.ndim != 4 or left.shape != right.shape or left.shape[-1] != 3:\n"
        "    raise ValueError('left and right must have equal shape [B, T, J, 3]')\n"
        "return self.layer(torch.cat([left, right], -1))",
        "left: f32[B=2, T=16, 3, 3]; right: f32[B, T, 3, 3]",
    ),
    "features of a narrower type": (
        "self.one, self.two = nn.Conv2d(3, 8, 1), nn.Linear(6, 8, dtype=torch.bfloat16)",
        "x, features",
        "return self.one(x).to(torch.bfloat16) * self.two(features)[..., None, None]",
        "x: f32[B=2, 3, H=32, W=32]; features: bf16[B, 6]",
    ),
    "times of the type that all is computed in": (
        "self.conv, self.time = nn.Conv2d(3, 8, 1, dtype=torch.bfloat16), nn.Linear(1, 8)",
        "x, time",
        "x = self.conv(x.to(torch.bfloat16))\nscale = self.time(time.float()[:, None]).to(time.dtype)\n"
        "return torch.lerp(x, scale[..., None, None], 0.5)",
        "x: f32[B=2, 3, H=32, W=32]; time: bf16[B, 1]",
    ),
    "the bins of a spectrum": (
        "self.n_fft, self.bands = 64, nn.ModuleList([nn.Linear(2 * n, 8) for n in (5, 12, 16)])",
        "spectrum",
        '"""spectrum: complex (n_batch, n_frames, n_freqs)"""\nassert spectrum.ndim == 3\n'
        "x = torch.cat((spectrum.real, spectrum.imag), -1).unflatten(-1, (2, -1))\n"
        "parts = x.split((5, 12, 16), -1)\n"
        "return sum(band(part.flatten(2)) for band, part in zip(self.bands, parts, strict=True))",
        "spectrum: c64[B=2, T=16, 33]",
    ),
}


@pytest.mark.parametrize("kind", SOLVED)
def test_an_error_that_tells_a_size_or_a_kind_is_solved(workspace, kind):
    *code, expected = SOLVED[kind]
    found = found_in(workspace, *code)
    assert runs_in_eager(found)
    assert expected is None or format_inputs(found.spec) == expected


def test_a_signal_whose_parts_a_convolution_takes_has_the_channels_that_the_constructor_says(workspace):
    text = """import torch
from torch import nn


class Coupling(nn.Module):
    def __init__(self, in_channels):
        super().__init__()
        self.half, self.conv = in_channels // 2, nn.Conv1d(in_channels // 2, in_channels, 1)

    def forward(self, x):
        a, b = x[:, : self.half], x[:, self.half :]
        out = self.conv(a)
        return torch.cat([a, out[:, : self.half] + b * out[:, self.half :].exp()], 1)
"""
    (found,) = looked_at(workspace, text)
    assert not isinstance(found, Unshown), found
    assert format_inputs(found.spec) == "x: f32[B=2, 3, L=64]"


def test_numbers_drawn_in_a_forward_are_the_same_in_every_try(workspace):
    code = (
        "self.layer = nn.Linear(4, 4)",
        "x",
        "import random\nx = self.layer(x)\nreturn x[:, torch.arange(20, 20 + random.randint(0, 60))]",
    )
    texts = set()
    for seed in range(4):
        random.seed(seed)
        texts.add(format_inputs(found_in(workspace, *code).spec))
    assert len(texts) == 1


def test_inputs_run_whatever_a_forward_draws(workspace):
    found = found_in(
        workspace,
        "self.gain = 0.5",
        "wav",
        "import random\nif random.random() >= self.gain:\n    return wav\n"
        "x = wav * 2\nreturn x[:, :, : x.shape[-1] // 2]",
    )
    for seed in range(6):
        random.seed(seed)
        assert runs_in_eager(found)


def test_a_forward_that_needs_too_much_memory_is_not_at_fault(workspace):
    (item,) = looked_at(
        workspace,
        file_of(
            "self.layer = nn.Linear(4, 4)",
            "x",
            "x = self.layer(x)\nraise RuntimeError('[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: '\n"
            "    'can\\'t allocate memory: you tried to allocate 4294967296 bytes.')",
        ),
    )
    assert isinstance(item, Unshown)


def test_a_signal_is_longer_than_its_padding(workspace):
    found = found_in(workspace, *SOLVED["two signals in a loss"][:3])
    assert [(spec.dtype, len(spec.dims)) for spec in found.spec.entries.values()] == [("f32", 2), ("f32", 2)]
    assert found.inputs["x"].shape == found.inputs["y"].shape
    assert found.inputs["x"].shape[1] > 1024


def test_a_sequence_is_as_long_as_its_slice_is_unpacked(workspace):
    found = found_in(workspace, *SOLVED["the rest of a list"][:3])
    assert len(found.inputs["inputs"]) == 6


def test_sizes_that_a_forward_draws_are_unknown(workspace):
    text = "import random\nimport torch\nfrom torch import nn\n\nclass Net(nn.Module):\n    def __init__(self):\n"
    text += "        super().__init__()\n        self.layer = nn.Linear(4, 4)\n\n    def forward(self, x):\n"
    text += "        chosen = torch.arange(random.randint(3, 60))\n        y = self.layer(x)\n        return y\n"
    job = Job(workspace, text)
    assert job.value("chosen")[2] == ["?"]
    assert job.value("y")[2] == ["B", "4"]


def test_lists_of_tensors_that_a_check_compares_end_no_search(workspace):
    body = "pair, other = [self.layer(x)], [x]\nassert x.dim() == 9 and pair == other\nreturn x"
    (item,) = looked_at(workspace, file_of("self.layer = nn.Linear(4, 4)", "x", body))
    assert item.doubtful
