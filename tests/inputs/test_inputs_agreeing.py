"""Inputs that have to agree, image sizes that a forward insists on, and parts that are looked at alone.

Ground truth: what is found runs in plain eager PyTorch, with values of several seeds.
"""

import pytest

from mase_server.tracing.inputs.text import format_inputs
from tests.inputs.test_inputs_kinds import found_in, runs_in_eager

#: What has to agree -> layers, parameters of forward, its body.
AGREEING = {
    "query, key and value": (
        "self.q, self.k, self.v = nn.Linear(16, 8), nn.Linear(16, 8), nn.Linear(16, 8)",
        "query, key, value",
        "a = self.q(query) @ self.k(key).transpose(-2, -1)\nreturn a.softmax(-1) @ self.v(value)",
    ),
    "a context of another width": (
        "self.q, self.kv = nn.Linear(16, 8), nn.Linear(24, 16)",
        "x, context",
        "k, v = self.kv(context).chunk(2, -1)\nreturn (self.q(x) @ k.transpose(1, 2)).softmax(-1) @ v",
    ),
    "source and target": (
        "self.table, self.model = nn.Embedding(50, 16), nn.Transformer(16, 2, 1, 1, 32, batch_first=True)",
        "src, tgt",
        "mask = nn.Transformer.generate_square_subsequent_mask(tgt.size(1))\n"
        "return self.model(self.table(src), self.table(tgt), tgt_mask=mask)",
    ),
    "two images": (
        "self.conv = nn.Conv2d(3, 8, 3)",
        "image1, image2",
        "return (self.conv(image1) - self.conv(image2)).abs().mean((1, 2, 3))",
    ),
    "two images that a mean normalises": (
        "self.conv = nn.Conv2d(8, 2, 3, padding=1); self.register_buffer('mean', torch.zeros(1, 3, 1, 1))",
        "one, other",
        "assert one.size() == other.size()\n"
        "one, other = (F.interpolate(each, scale_factor=1.0) for each in (one, other))\n"
        "one, other = (F.avg_pool2d(each - self.mean, 32) for each in (one, other))\n"
        "flow = F.interpolate(one.new_zeros(one.size(0), 2, one.size(2) // 2, one.size(3) // 2), one.shape[2:])\n"
        "return self.conv(torch.cat([one, other, flow], 1))",
    ),
    "two images side by side": (
        "self.conv = nn.Conv2d(6, 8, 3)",
        "source, target",
        "return self.conv(torch.cat([source, target], 1))",
    ),
    "an image and a mask of one channel": (
        "self.conv = nn.Conv2d(4, 8, 3)",
        "image, mask",
        "return self.conv(torch.cat([image, mask], dim=1))",
    ),
    "a map and one twice as large": (
        "self.up, self.conv = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 8, 3, padding=1)",
        "x1, x2",
        "return self.conv(torch.cat([x2, self.up(x1)], dim=1))",
    ),
    "a map and one that is padded to fit": (
        "self.up, self.conv = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 8, 3, padding=1)",
        "x1, x2",
        "x1 = self.up(x1)\ndy, dx = x2.size(2) - x1.size(2), x2.size(3) - x1.size(3)\n"
        "x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])\nreturn self.conv(torch.cat([x2, x1], dim=1))",
    ),
    "support and query": (
        "self.encoder = nn.Linear(20, 8)",
        "support, query",
        "centres = self.encoder(support).view(2, -1, 8).mean(1)\nreturn -torch.cdist(self.encoder(query), centres)",
    ),
    "content and style": (
        "self.conv = nn.Conv2d(3, 8, 3)",
        "content, style",
        "c, s = self.conv(content), self.conv(style)\n"
        "return (c - c.mean((2, 3), keepdim=True)) * s.std((2, 3), keepdim=True) + s.mean((2, 3), keepdim=True)",
    ),
    "a gate of another scale": (
        "self.wg, self.wx, self.psi = nn.Conv2d(12, 6, 1), nn.Conv2d(8, 6, 1), nn.Conv2d(6, 1, 1)",
        "g, x",
        "return x * self.psi((self.wg(g) + self.wx(x)).relu()).sigmoid()",
    ),
    "tokens and pictures": (
        "self.see, self.read = nn.Conv2d(3, 8, 4, stride=4), nn.Embedding(30, 8)",
        "pixel_values, input_ids",
        "v, t = self.see(pixel_values).flatten(2).mean(-1), self.read(input_ids).mean(1)\n"
        "return F.normalize(v, dim=-1) @ F.normalize(t, dim=-1).t()",
    ),
    "a step of a decoder": (
        "self.table, self.attn, self.rnn = nn.Embedding(30, 8), nn.Linear(24, 1), nn.GRU(8 + 12, 12)",
        "token, hidden, encoder_outputs",
        "e = self.table(token).unsqueeze(0)\nt = encoder_outputs.shape[0]\n"
        "a = self.attn(torch.cat([hidden.repeat(t, 1, 1), encoder_outputs], 2)).softmax(0)\n"
        "c = (a * encoder_outputs).sum(0, keepdim=True)\nreturn self.rnn(torch.cat([e, c], 2), hidden)",
    ),
    "history and candidates": (
        "self.items, self.out = nn.Embedding(40, 8), nn.Linear(32, 1)",
        "hist_items, target_item",
        "h, q = self.items(hist_items), self.items(target_item).unsqueeze(1).expand(-1, hist_items.size(1), -1)\n"
        "return self.out(torch.cat([h, q, h - q, h * q], -1)).sum(1)",
    ),
    "two towers": (
        "self.users = nn.ModuleDict({'name': nn.Embedding(9, 8), 'country': nn.Embedding(5, 8)})\n"
        "self.items = nn.ModuleDict({'kind': nn.Embedding(7, 8), 'colour': nn.Embedding(6, 8)})\n"
        "self.dense = nn.Linear(5, 16)",
        "user, item, dense",
        "u = torch.cat([table(user[key]) for key, table in self.users.items()], -1) + self.dense(dense)\n"
        "v = torch.cat([table(item[key]) for key, table in self.items.items()], -1)\nreturn u @ v.t()",
    ),
    "a trajectory": (
        "self.s, self.a, self.r = nn.Linear(17, 8), nn.Linear(6, 8), nn.Linear(1, 8)\nself.when = nn.Embedding(40, 8)",
        "states, actions, returns_to_go, timesteps",
        "t = self.when(timesteps)\nb, n = states.shape[0], states.shape[1]\n"
        "x = torch.stack((self.r(returns_to_go) + t, self.s(states) + t, self.a(actions) + t), 1)\n"
        "return x.permute(0, 2, 1, 3).reshape(b, 3 * n, 8)",
    ),
}

SIZES = {
    "a flatten of 28": (
        "self.conv, self.fc = nn.Conv2d(1, 6, 5), nn.Linear(6 * 12 * 12, 10)",
        "x",
        "return self.fc(F.max_pool2d(self.conv(x), 2).flatten(1))",
        "x: f32[B=2, 1, H=28, W=28]",
    ),
    "a flatten of an unusual size": (
        "self.conv, self.fc = nn.Conv2d(3, 6, 3, stride=2), nn.Linear(6 * 21 * 21, 10)",
        "x",
        "return self.fc(F.max_pool2d(self.conv(x), 2).flatten(1))",
        None,
    ),
    "a size that it asserts": (
        "self.side, self.conv = 72, nn.Conv2d(3, 6, 8, stride=8)",
        "x",
        "B, C, H, W = x.shape\nassert H == self.side and W == self.side, f'{H}x{W} is not {self.side}'\n"
        "return self.conv(x).flatten(2).transpose(1, 2)",
        "x: f32[B=2, 3, H=72, W=72]",
    ),
    "a size that it raises for": (
        "self.side, self.conv = 72, nn.Conv2d(3, 6, 8, stride=8)",
        "x",
        "if x.shape[-1] != self.side:\n    raise ValueError('wrong size')\nreturn self.conv(x)",
        None,
    ),
    "a place for every patch": (
        "self.conv, self.places = nn.Conv2d(3, 8, 8, stride=8), nn.Parameter(torch.zeros(1, 50, 8))\n"
        "self.cls = nn.Parameter(torch.zeros(1, 1, 8))",
        "x",
        "x = self.conv(x).flatten(2).transpose(1, 2)\n"
        "return torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.places",
        "x: f32[B=2, 3, H=56, W=56]",
    ),
    "a length that is flattened": (
        "self.conv, self.fc = nn.Conv1d(4, 6, 5), nn.Linear(6 * 33, 3)",
        "x",
        "return self.fc(self.conv(x).flatten(1))",
        "x: f32[B=2, 4, L=37]",
    ),
    "a sequence of so many steps": (
        "self.rnn, self.fc = nn.LSTM(5, 8, batch_first=True), nn.Linear(8 * 21, 3)",
        "x",
        "out, _ = self.rnn(x)\nreturn self.fc(out.reshape(out.size(0), -1))",
        "x: f32[B=2, T=21, 5]",
    ),
    "tokens of so many places": (
        "self.table, self.mix = nn.Embedding(40, 8), nn.Linear(22, 22)",
        "tokens",
        "x = self.table(tokens)\nreturn self.mix(x.transpose(1, 2)).transpose(1, 2)",
        None,
    ),
    "a kernel that is large": (
        "self.conv = nn.Sequential(nn.Conv2d(3, 8, 31, stride=4), nn.ReLU(), nn.Conv2d(8, 8, 11))",
        "x",
        "return self.conv(x)",
        None,
    ),
    "windows that have to fit": (
        "self.window, self.proj = 7, nn.Linear(12, 12)",
        "x",
        "b, h, w, c = x.shape\nx = x.view(b, h // self.window, self.window, w // self.window, self.window, c)\n"
        "return self.proj(x)",
        None,
    ),
    "skips of a network that halves four times": (
        "self.a, self.b = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)",
        "x",
        "x = self.a(x)\ny = F.max_pool2d(x, 16)\nreturn F.interpolate(self.b(y), scale_factor=16) + x",
        None,
    ),
    "at most so many tokens": (
        "self.size, self.table, self.places = 8, nn.Embedding(40, 8), nn.Embedding(8, 8)",
        "idx",
        "b, t = idx.shape\nassert t <= self.size, f'{t} is more than {self.size}'\n"
        "return self.table(idx) + self.places(torch.arange(t))",
        None,
    ),
}

PARTS = {
    "a block of a transformer": (
        "self.norm, self.attn = nn.LayerNorm(16), nn.MultiheadAttention(16, 2, batch_first=True)",
        "x",
        "y = self.norm(x)\nreturn x + self.attn(y, y, y)[0]",
    ),
    "attention that splits heads": (
        "self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)",
        "x",
        "b, n, c = x.shape\nq, k, v = self.qkv(x).reshape(b, n, 3, 4, 4).permute(2, 0, 3, 1, 4)\n"
        "return self.out(((q @ k.transpose(-2, -1)).softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))",
    ),
    "squeeze and excitation": (
        "self.fc = nn.Sequential(nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 16), nn.Sigmoid())",
        "x",
        "b, c, _, _ = x.size()\ny = F.adaptive_avg_pool2d(x, 1).view(b, c)\n"
        "return x * self.fc(y).view(b, c, 1, 1).expand_as(x)",
    ),
    "a norm of channels in front": (
        "self.weight, self.bias = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))",
        "x",
        "u = x.mean(1, keepdim=True)\nx = (x - u) / ((x - u).pow(2).mean(1, keepdim=True) + 1e-6).sqrt()\n"
        "return self.weight[:, None, None] * x + self.bias[:, None, None]",
    ),
    "patches that merge": (
        "self.reduction, self.norm = nn.Linear(32, 16), nn.LayerNorm(32)",
        "x, H, W",
        "B, L, C = x.shape\nassert L == H * W, 'wrong size'\nx = x.view(B, H, W, C)\n"
        "x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)\n"
        "return self.reduction(self.norm(x.view(B, -1, 4 * C)))",
    ),
    "modulation": (
        "self.gamma, self.beta = nn.Linear(10, 6), nn.Linear(10, 6)\nself.conv = nn.Conv2d(6, 6, 3, padding=1)",
        "x, cond",
        "x = self.conv(x)\nreturn x * self.gamma(cond)[:, :, None, None] + self.beta(cond)[:, :, None, None]",
    ),
    "a causal convolution of time": (
        "self.conv = nn.Conv1d(6, 6, 3, dilation=2)",
        "x",
        "return self.conv(F.pad(x, (4, 0))) + x",
    ),
    "convolutions of tokens": (
        "self.conv = nn.Conv1d(48, 48, 1)",
        "inputs",
        "return self.conv(inputs.transpose(-1, -2)).transpose(-1, -2) + inputs",
    ),
    "places that are added": (
        "pe = torch.zeros(100, 12)\nself.register_buffer('pe', pe.unsqueeze(0))\nself.drop = nn.Dropout(0.1)",
        "x",
        "return self.drop(x + self.pe[:, :x.size(1)])",
    ),
    "dropping of paths": (
        "self.p = 0.1",
        "x",
        "if not self.training:\n    return x\nreturn x * torch.rand((x.shape[0],) + (1,) * (x.ndim - 1))",
    ),
    "a loss of overlap": (
        "self.smooth = 1.0",
        "pred, target",
        "p = torch.sigmoid(pred).flatten(1)\nt = target.flatten(1).float()\n"
        "return 1 - ((2 * (p * t).sum(1) + self.smooth) / (p.sum(1) + t.sum(1) + self.smooth)).mean()",
    ),
    "a focal loss": (
        "self.gamma = 2",
        "inputs, targets",
        "ce = F.cross_entropy(inputs, targets, reduction='none')\n"
        "return ((1 - torch.exp(-ce)) ** self.gamma * ce).mean()",
    ),
    "a loss of pairs": (
        "self.temperature = 0.1",
        "z_i, z_j",
        "z = F.normalize(torch.cat([z_i, z_j]), dim=1)\ns = z @ z.t() / self.temperature\n"
        "s = s.masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)\nn = len(z_i)\n"
        "return F.cross_entropy(s, torch.cat([torch.arange(n) + n, torch.arange(n)]))",
    ),
}


@pytest.mark.parametrize("kind", AGREEING)
def test_several_inputs_agree(workspace, kind):
    assert runs_in_eager(found_in(workspace, *AGREEING[kind]))


@pytest.mark.parametrize("kind", SIZES)
def test_a_size_that_a_forward_insists_on_is_found(workspace, kind):
    *code, expected = SIZES[kind]
    found = found_in(workspace, *code)
    assert runs_in_eager(found)
    assert expected is None or format_inputs(found.spec) == expected


@pytest.mark.parametrize("kind", PARTS)
def test_a_part_is_found_inputs_for_when_it_is_alone(workspace, kind):
    assert runs_in_eager(found_in(workspace, *PARTS[kind]))
