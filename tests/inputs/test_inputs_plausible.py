"""Inputs that an expert would give: of several that run, the plausible ones are shown.

Ground truth: what is found runs in plain eager PyTorch, with values of several seeds.
"""

import pytest

from mase_server.tracing.inputs.text import format_inputs
from tests.inputs.test_inputs_in_repositories import shown
from tests.inputs.test_inputs_kinds import MORE, found_in, runs_in_eager
from tests.inputs.test_inputs_repairs import HEAD, looked_at

#: What is handed over -> layers, parameters of forward, its body, the inputs.
PLAUSIBLE = {
    "rows of an image that nobody flattens": (
        "self.fc1, self.fc2 = nn.Linear(784, 50), nn.Linear(50, 10)",
        "x",
        "return self.fc2(F.relu(self.fc1(x)))",
        "x: f32[B=2, 784]",
    ),
    "an image that is flattened": (
        "self.fc1, self.fc2 = nn.Linear(784, 50), nn.Linear(50, 10)",
        "x",
        "x = x.view(x.size(0), -1)\nreturn self.fc2(F.relu(self.fc1(x)))",
        "x: f32[B=2, 1, 28, 28]",
    ),
    "an image that a layer flattens": (
        "self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))",
        "x",
        "return self.net(x)",
        "x: f32[B=2, 1, 28, 28]",
    ),
    "an image that is made of rows": (
        "self.fc1, self.fc2 = nn.Linear(784, 50), nn.Linear(50, 784)",
        "x",
        "h = F.relu(self.fc1(x))\nreturn self.fc2(h).view(-1, 1, 28, 28)",
        "x: f32[B=2, 784]",
    ),
    "sentences of several graphs that a view joins": (
        "self.words = nn.Embedding(50, 8)",
        "graphs",
        "e = self.words(graphs.view(-1, graphs.size(-1))).mean(1)\nreturn e.view(-1, graphs.size(1), 8)",
        "graphs: i64[B=2, T=16, S=12] < 50",
    ),
    "query, key and value of heads": (
        "self.layers, self.out = nn.ModuleList([nn.Linear(16, 16) for _ in range(3)]), nn.Linear(16, 16)",
        "query, key, value",
        "b = query.size(0)\n"
        "q, k, v = [f(x).view(b, -1, 4, 4).transpose(1, 2) for f, x in zip(self.layers, (query, key, value))]\n"
        "x = (q @ k.transpose(-2, -1)).softmax(-1) @ v\n"
        "return self.out(x.transpose(1, 2).contiguous().view(b, -1, 16))",
        "query: f32[B=2, T=16, 16]; key: f32[B, T, 16]; value: f32[B, T, 16]",
    ),
    "tokens of a block whose parts are handed on": (
        "self.q, self.o, self.scale = nn.Linear(16, 16), nn.Linear(16, 16), nn.Parameter(torch.ones(16))",
        "x, mask",
        "return self.run(self.scale * x, lambda y: self.heads(y, mask))\n\n"
        "def run(self, x, inner):\n    return x + self.o(inner(x))\n\n"
        "def heads(self, x, mask):\n"
        "    q = self.q(x).view(x.shape[0], -1, 4, 4).transpose(1, 2)\n"
        "    s = (q @ q.transpose(-2, -1)).masked_fill(mask == 0, -1e9).softmax(-1)\n"
        "    return (s @ q).transpose(1, 2).reshape(x.shape[0], -1, 16)",
        None,
    ),
    "tokens whose number is read": (
        "self.layer = nn.Linear(16, 16)",
        "x",
        "scale = x.size(1) ** -0.5\nreturn self.layer(x) * scale + torch.zeros(x.shape[2])",
        "x: f32[B=2, T=16, 16]",
    ),
    "columns that are read": (
        "self.value, self.hour, self.day = nn.Linear(5, 8), nn.Embedding(24, 8), nn.Embedding(7, 8)",
        "x, marks",
        "return self.value(x) + self.hour(marks[:, :, 2]) + self.day(marks[:, :, 1])",
        "x: f32[B=2, T=16, 5]; marks: i64[B, T, 3] < 7",
    ),
    "columns that only another configuration reads": (
        "self.value, self.hour, self.day = nn.Linear(5, 8), nn.Embedding(24, 8), nn.Embedding(7, 8)",
        "x, marks",
        "minute = self.minute(marks[:, :, 4]) if hasattr(self, 'minute') else 0\n"
        "return self.value(x) + self.hour(marks[:, :, 2]) + self.day(marks[:, :, 1]) + minute",
        "x: f32[B=2, T=16, 5]; marks: i64[B, T, 3] < 7",
    ),
    "features of each time beside others": (
        "self.conv, self.mark = nn.Conv1d(7, 16, 3, padding=1), nn.Linear(4, 16)",
        "x, marks",
        "return self.conv(x.permute(0, 2, 1)).transpose(1, 2) + self.mark(marks)",
        None,
    ),
    "indices that are computed with": (
        "self.a, self.b = nn.Parameter(torch.randn(10, 6)), nn.Parameter(torch.randn(4, 6))",
        "input",
        "q, r = (input / 4).long(), torch.remainder(input, 4).long()\n"
        "return F.embedding_bag(q, self.a) * F.embedding_bag(r, self.b)",
        "input: i64[B=2, T=16] < 10",
    ),
    "channels of a parameter": (
        "self.alpha = nn.Parameter(torch.ones(1, 6, 1))",
        "x",
        "shape = x.shape\nx = x.reshape(shape[0], shape[1], -1)\n"
        "return (x + torch.sin(self.alpha * x).pow(2) / self.alpha).reshape(shape)",
        "x: f32[B=2, 6, L=64]",
    ),
    "channels of a parameter for images": (
        "self.scale = nn.Parameter(torch.ones(1, 6, 1, 1))",
        "x",
        "return x * self.scale.abs()",
        "x: f32[B=2, 6, H=32, W=32]",
    ),
    "members that are read by number alone": (
        "self.table, self.out = nn.Embedding(40, 8), nn.Linear(8, 3)",
        "inputs",
        "text, aspect = inputs[0], inputs[1]\nlengths = (aspect != 0).sum(-1, keepdim=True).clamp(min=1)\n"
        "x = self.table(text).mean(1) + self.table(aspect).sum(1) / lengths\nreturn self.out(x)",
        "inputs: [i64[B=2, T=16] < 40, i64[B, T] < 40]",
    ),
    "one member that is read": (
        "self.table, self.rnn = nn.Embedding(40, 8), nn.GRU(8, 6, batch_first=True)",
        "inputs",
        "tokens = inputs[0]\nreturn self.rnn(self.table(tokens))[0]",
        "inputs: [i64[B=2, T=16] < 40]",
    ),
    "lengths in a column": (
        "self.layer = nn.Linear(8, 8)",
        "keys, keys_length",
        '"""\n- keys is a 3D tensor with shape: ``(batch_size, T, 8)``\n'
        '- keys_length is a 2D tensor with shape: ``(batch_size, 1)``\n"""\n'
        "mask = torch.arange(keys.shape[1])[None] < keys_length.view(-1, 1)\n"
        "return self.layer(keys) * mask.unsqueeze(-1)",
        "keys: f32[B=2, T=16, 8]; keys_length: i64[B, 1] lengths(T)",
    ),
    "sources of audio": (
        "self.gain = 0.5",
        "wav",
        "noise, clean = wav\nreturn torch.stack([noise * self.gain, clean])",
        "wav: (f32[B=2, L=64], f32[B, L])",
    ),
    "noise levels": (
        "self.conv, self.time = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(1, 8)",
        "x, sigma",
        "e = self.time((sigma.log() / 4)[..., None])\nreturn self.conv(x) + e[..., None, None]",
        "x: f32[B=2, 3, H=32, W=32]; sigma: f32[B] uniform",
    ),
    "dimensions that are read": (
        "self.rate = 0.5",
        "x",
        "return x * x.new_ones(1, x.size(1), x.size(2)) / (1 - self.rate)",
        "x: f32[B=2, T=16, 64]",
    ),
    "dimensions that a method reads": (
        "self.squash = nn.Sigmoid()",
        "input, target",
        "input = self.squash(input)\nreturn (self.rows(input) * self.rows(target)).sum(-1)\n\n"
        "def rows(self, tensor):\n"
        '    """Rows of one channel each: (N, C, D, H, W) -> (C, N * D * H * W)."""\n'
        "    return tensor.transpose(0, 1).reshape(tensor.size(1), -1)",
        "input: f32[B=2, 3, D=8, H=32, W=32]; target: f32[B, 3, D, H, W]",
    ),
    "the last columns of boxes": (
        "self.scale = 0.1",
        "anchors, shifts",
        "x = anchors[..., 0] + shifts[..., 0] * self.scale\ny = anchors[..., 3] + shifts[..., 3] * self.scale\n"
        "return torch.stack([x, y], dim=2)",
        "anchors: f32[B=2, T=16, 4]; shifts: f32[B, T, 4]",
    ),
    "an image of a usual side": (
        "self.a, self.b, self.c = nn.Conv2d(4, 8, 8, stride=4), nn.Conv2d(8, 16, 4, stride=2), nn.Conv2d(16, 16, 3)\n"
        "self.fc = nn.Linear(784, 5)",
        "x",
        "return self.fc(self.c(self.b(self.a(x))).view(-1, 784))",
        "x: f32[B=2, 4, H=84, W=84]",
    ),
    "a signal that gets its channel": (
        "self.mel, self.step = nn.ConvTranspose2d(1, 1, (3, 32), stride=(1, 16), padding=(1, 8)), nn.Linear(8, 6)\n"
        "self.table = nn.Parameter(torch.randn(10, 8))\n"
        "self.wave, self.by = nn.Conv1d(1, 6, 3, padding=1), nn.Conv1d(80, 6, 1)",
        "audio, diffusion_step, spectrogram",
        "x = self.wave(audio.unsqueeze(1))\nx = x + self.step(self.table[diffusion_step]).unsqueeze(-1)\n"
        "return x + self.by(torch.squeeze(self.mel(torch.unsqueeze(spectrogram, 1)), 1))",
        None,
    ),
    "a signal of which the length is read": (
        "self.register_buffer('filters', torch.randn(3, 1, 9))",
        "input",
        "*others, t = input.shape\nx = F.conv1d(input.view(-1, 1, t), self.filters, padding=4)\n"
        "return x.permute(1, 0, 2).reshape(-1, *others, t)",
        "input: f32[B=2, T=16]",
    ),
    "an image whose squares become channels that a buffer keeps": (
        "self.conv = nn.Conv2d(6, 8, 1)\nself.register_buffer('seen', torch.zeros(12))",
        "x",
        "b, c, h, w = x.shape\nx = x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4)\n"
        "x = x.reshape(b, c * 4, h // 2, w // 2)\nself.seen.copy_(x.mean((0, 2, 3)))\nreturn self.conv(x[:, :6])",
        "x: f32[B=2, 3, H=32, W=32]",
    ),
    "scores of which the shape is compared with that of the classes": (
        "self.squash, self.classes = nn.Sigmoid(), 4",
        "input, target",
        "hot = self.spread(target)\nif input.shape != hot.shape:\n    raise ValueError('not alike')\n"
        "return (self.squash(input) * hot).sum((2, 3))\n\n"
        "def spread(self, target):\n"
        '    """:param target: indices of classes (N, H, W)"""\n'
        "    size = list(target.size())\n    size.insert(1, self.classes)\n"
        "    return torch.zeros(size).scatter_(1, target.unsqueeze(1).long(), 1)",
        "input: f32[B=2, 4, H=32, W=32]; target: i64[B, H, W] < 4",
    ),
    "keys of which nothing is read": (
        "self.scale, self.layer = 0.5, nn.Linear(3, 5)",
        "queries, keys, values, attn_mask",
        "b, l, h, e = queries.shape\n_, s, _, d = values.shape\n"
        "x = queries.reshape(b, l, -1) if l == s else torch.cat([queries, queries], 1)\n"
        "return x.sum() + keys.sum() + values.sum()",
        "queries: f32[B=2, T=16, 64, 64]; keys: f32[B, T, 64, 64]; values: f32[B, T, 64, 64]; "
        "attn_mask: bool[B, T] ones",
    ),
    "an image of which only the sides reach a layer": (
        "self.rows, self.columns = nn.Embedding(50, 8), nn.Embedding(50, 8)",
        "x",
        "h, w = x.shape[-2:]\ni = torch.arange(w, device=x.device)\nj = torch.arange(h, device=x.device)\n"
        "return self.columns(i).unsqueeze(0) + self.rows(j).unsqueeze(1) + x.mean()",
        "x: f32[B=2, 3, H=32, W=32]",
    ),
    "any number of dimensions before the time": (
        "self.rate = 0.5",
        "input",
        '"""Shape:\n    - Input: `(*, T)`\n    - Output: `(F, *, T)`\n"""\n'
        "return input[..., 1:] - self.rate * input[..., :-1]",
        "input: f32[B=2, T=16]",
    ),
    "a vector that nothing reads": (
        "self.layer = nn.Conv2d(3, 5, 1)",
        "x, style_vec",
        "return self.layer(x)",
        "x: f32[B=2, 3, H=32, W=32]; style_vec: f32[B, 64]",
    ),
    "vectors of tokens that no layer is given": (
        "self.rate = 0.5",
        "memory, style",
        "return memory.mean() * self.rate + style.mean()",
        "memory: f32[B=2, T=16, 64]; style: f32[B, 64]",
    ),
    "a batch that the model keeps": (
        "self.rnn, self.out, self.batch_size = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 4), 20",
        "x",
        "h = torch.zeros(1, self.batch_size, 8)\ny, _ = self.rnn(x, (h, h))\n"
        "return self.out(y[:, -1]).view(self.batch_size, 1, 2, 2)",
        "x: f32[B=20, T=16, 6]",
    ),
    "what a loss is given beside its predictions": (
        "self.scale = 0.5",
        "preds, *args",
        "joints, shown = args[0], args[1]\nreturn (self.scale * (preds - joints) ** 2 * shown).sum()",
        "preds: f32[B=2, 10]; args: (f32[B, 10], f32[B, 10])",
    ),
    "masks of the ends of episodes": (
        "self.layer, self.cell = nn.Linear(6, 8), nn.GRUCell(8, 8)",
        "inputs, rnn_hxs, masks",
        "x = self.layer(inputs)\nif self.training:\n    x = rnn_hxs = self.cell(x, rnn_hxs * masks)\nreturn x, rnn_hxs",
        "inputs: f32[B=2, 6]; rnn_hxs: f32[B, 8]; masks: f32[B, 1] ones",
    ),
    "a signal of which a recurrent layer takes the spectrum": (
        "self.rnn = nn.GRU(33, 8, batch_first=True)",
        "noisy",
        "s = torch.stft(noisy, 64, 16, window=torch.hann_window(64), return_complex=True)\n"
        "return self.rnn(s.abs().transpose(1, 2))[0]",
        "noisy: f32[B=2, L=64]",
    ),
    "observations that may come with labels": (
        "self.norm, self.layer = nn.BatchNorm1d(32), nn.Linear(32, 8)",
        "X",
        "labels = None\nif type(X) is tuple:\n    X, labels = X\nh = self.norm(X)\n"
        "if labels is not None:\n    h = torch.cat((labels, h), 1)\nreturn self.layer(h)",
        "X: f32[B=2, 32]",
    ),
    "scores of pixels that a loss sums over space": (
        "self.smooth = 1.0",
        "x, y",
        "shape = x.shape\naxes = [0] + list(range(2, len(shape)))\np = x.softmax(1)\n"
        "return (p * y).sum(axes) / (p.sum(axes) + y.sum(axes) + self.smooth)",
        "x: f32[B=2, 3, H=32, W=32]; y: i64[B, 1, H, W] < 2",
    ),
    "scores that a loss moves while there are dimensions": (
        "self.rate = 1.0",
        "inp, target",
        "count, at = inp.size()[1], 1\nwhile at + 1 < len(inp.shape):\n    inp = inp.transpose(at, at + 1)\n"
        "    at += 1\nreturn F.cross_entropy(inp.contiguous().view(-1, count), target.view(-1)) * self.rate",
        "inp: f32[B=2, 3, H=32, W=32]; target: i64[B, H, W] < 2",
    ),
    "scores that a loss flattens if they have space": (
        "self.gamma = 2",
        "logit, target",
        "if logit.dim() > 2:\n    logit = logit.view(logit.size(0), logit.size(1), -1).transpose(1, 2)\n"
        "    logit = logit.contiguous().view(-1, logit.size(2))\n"
        "target = target.view(-1, 1)\nchance = F.log_softmax(logit, 1).gather(1, target)\n"
        "return (-(1 - chance.exp()) ** self.gamma * chance).mean()",
        "logit: f32[B=2, 3, H=32, W=32]; target: i64[B, H, W] < 2",
    ),
    "heatmaps of which a loss makes rows": (
        "self.rate = 0.5",
        "output, target",
        "b, n = output.size(0), output.size(1)\nguess = output.reshape((b, n, -1))\ntrue = target.reshape((b, n, -1))\n"
        "return self.rate * F.mse_loss(guess, true)",
        "output: f32[B=2, 3, H=32, W=32]; target: f32[B, 3, H, W]",
    ),
    "labels of pixels of which a loss takes the one channel": (
        "self.rate = 0.1",
        "inp, target",
        "count = inp.size()[1]\nif len(inp.shape) > 2:\n    inp = inp.flatten(2).transpose(1, 2).reshape(-1, count)\n"
        "losses = F.cross_entropy(inp, target[:, 0].reshape(-1), reduction='none')\n"
        "return losses.topk(int(self.rate * losses.numel()))[0].mean()",
        "inp: f32[B=2, 3, H=32, W=32]; target: i64[B, 1, H, W] < 2",
    ),
    "classes of pixels that are made one-hot": (
        "self.eps = 1e-5",
        "inputs, targets",
        "inputs = F.softmax(inputs, dim=1)\ntargets = F.one_hot(targets, inputs.shape[1]).permute(0, 3, 1, 2)\n"
        "if inputs.shape != targets.shape:\n    raise AssertionError('other shapes')\n"
        "return 1 - 2 * (inputs * targets).sum() / (inputs.sum() + targets.sum() + self.eps)",
        "inputs: f32[B=2, 3, H=32, W=32]; targets: i64[B, H, W] < 2",
    ),
    "classes of voxels whose numbers become channels": (
        "self.eps = 1e-5",
        "p, y",
        "y = F.one_hot(y.long(), num_classes=4).permute((0, 4, 1, 2, 3)).float()\n"
        "return 1 - 2 * (p * y).sum() / (p.sum() + y.sum() + self.eps)",
        None,
    ),
    "numbered objects of each picture": (
        "self.eps = 1e-8",
        "logit, inst_gt",
        "logit, loss = F.softmax(logit, dim=1), 0\nfor k in range(logit.shape[0]):\n"
        "    numbers = inst_gt[k].unique()\n    numbers, spread = numbers[numbers != 0], 0\n"
        "    for number in numbers:\n        spread += logit[k][:, inst_gt[k] == number].var(dim=1).sum()\n"
        "    loss += spread / (len(numbers) + self.eps)\nreturn loss",
        "logit: f32[B=2, 3, H=32, W=32]; inst_gt: i64[B, H, W] < 2",
    ),
    "features of places that are weighed": (
        "self.first = nn.Sequential(nn.Linear(12, 8), nn.Tanh())\n"
        "self.second = nn.Sequential(nn.Linear(8, 1), nn.Flatten(), nn.Softmax(dim=-1))",
        "x",
        "weights = self.second(self.first(x))\nreturn (weights.unsqueeze(2) * x).sum(dim=1)",
        "x: f32[B=2, T=16, 12]",
    ),
    "scores whose dimensions are letters": (
        "self.smooth = 1.0",
        "p, q",
        "return torch.einsum('bcxy,bcxy->bc', p, q) / (torch.einsum('bcxy->bc', p) + self.smooth)",
        "p: f32[B=2, 3, H=32, W=32]; q: f32[B, 3, H, W]",
    ),
    "a map that becomes tokens, with its mask": (
        "self.encoder = nn.TransformerEncoderLayer(16, 2, 32)\nself.decoder = nn.TransformerDecoderLayer(16, 2, 32)",
        "src, mask, query_embed, pos_embed",
        "bs, c, h, w = src.shape\nsrc = src.flatten(2).permute(2, 0, 1)\n"
        "pos_embed = pos_embed.flatten(2).permute(2, 0, 1)\nquery_embed = query_embed.unsqueeze(1).repeat(1, bs, 1)\n"
        "mask = mask.flatten(1)\nmemory = self.encoder(src + pos_embed, src_key_padding_mask=mask)\n"
        "return self.decoder(query_embed, memory, memory_key_padding_mask=mask)",
        "src: f32[B=2, 16, H=32, W=32]; mask: bool[B, H, W] zeros; query_embed: f32[T=16, 16]; "
        "pos_embed: f32[B, 16, H, W]",
    ),
    "marks of the times of two series": (
        "self.value, self.out = nn.Linear(7, 16), nn.Linear(16, 7)",
        "x_enc, x_mark_enc, x_dec, x_mark_dec",
        "b, t, c = x_enc.shape\nreturn self.out(self.value(x_enc)).mean(1, keepdim=True) + self.out(self.value(x_dec))",
        "x_enc: f32[B=2, T=16, 7]; x_mark_enc: f32[B, T, 4]; x_dec: f32[B, T, 7]; x_mark_dec: f32[B, T, 4]",
    ),
    "sequences that are packed": (
        "self.scale = 2.0",
        "x, x_len",
        "packed = nn.utils.rnn.pack_padded_sequence(x, x_len.cpu(), batch_first=True, enforce_sorted=False)\n"
        "return nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)[0] * self.scale",
        None,
    ),
    "frames that a view makes images of one channel": (
        "self.conv, self.bands = nn.Conv2d(1, 4, 3, padding=1), 20",
        "inputs",
        "x = self.conv(inputs.view(inputs.size(0), 1, -1, 20))\nreturn x.mean((1, 2))",
        "inputs: f32[B=2, T=16, 20]",
    ),
    "a mask over time": (
        "self.conv = nn.Conv1d(6, 6, 3, padding=1)",
        "x, x_mask",
        "return self.conv(x * x_mask) * x_mask",
        "x: f32[B=2, 6, L=64]; x_mask: f32[B, 1, L] ones",
    ),
}


@pytest.mark.parametrize("kind", PLAUSIBLE)
def test_the_plausible_of_several_inputs_that_run_is_shown(workspace, kind):
    *code, expected = PLAUSIBLE[kind]
    found = found_in(workspace, *code)
    assert runs_in_eager(found)
    assert expected is None or format_inputs(found.spec) == expected


def test_an_image_that_is_joined_with_labels_keeps_its_usual_channels(workspace):
    (found,) = looked_at(
        workspace,
        f"""{HEAD}{MORE}class Net(nn.Module):
    def __init__(self, width=64, c_dim=5, repeats=6):
        super().__init__()
        self.main = nn.Sequential(nn.Conv2d(3 + c_dim, width, 3), *(nn.ReLU() for _ in range(repeats)))

    def forward(self, x, c):
        c = c.view(c.size(0), c.size(1), 1, 1)
        c = c.repeat(1, 1, x.size(2), x.size(3))
        x = torch.cat([x, c], dim=1)
        return self.main(x)
""",
    )
    assert runs_in_eager(found)
    assert format_inputs(found.spec) == "x: f32[B=2, 3, H=32, W=32]; c: f32[B, 5]"


def test_a_block_of_heads_gets_tokens(workspace):
    found = found_in(workspace, *PLAUSIBLE["tokens of a block whose parts are handed on"][:3])
    assert format_inputs(found.spec).startswith("x: f32[B=2, T=16, 16]")


def test_what_is_packed_has_a_batch_a_time_and_features(workspace):
    found = found_in(workspace, *PLAUSIBLE["sequences that are packed"][:3])
    assert len(found.spec.entries["x"].dims) == 3


def test_a_feed_forward_layer_gets_tokens(workspace):
    (found,) = looked_at(
        workspace,
        f"""{HEAD}{MORE}class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.inner, self.outer = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.outer(F.relu(self.inner(x)))
""",
    )
    assert [len(spec.dims) for spec in found.spec.entries.values()] == [3]


def test_the_means_of_an_image_are_as_many_as_its_channels(workspace):
    (found,) = looked_at(
        workspace,
        f"""{HEAD}{MORE}class Normalize(nn.Module):
    def __init__(self, means, sds):
        super().__init__()
        self.means, self.sds = torch.tensor(means), torch.tensor(sds)

    def forward(self, images):
        (b, c, h, w) = images.shape
        means = self.means.repeat((b, h, w, 1)).permute(0, 3, 1, 2)
        return (images - means) / self.sds.repeat((b, h, w, 1)).permute(0, 3, 1, 2)
""",
    )
    assert runs_in_eager(found)
    assert format_inputs(found.spec) == "images: f32[B=2, 3, H=32, W=32]"


def test_features_of_each_time_have_the_length_of_the_series(workspace):
    found = found_in(workspace, *PLAUSIBLE["features of each time beside others"][:3])
    assert [len(spec.dims) for spec in found.spec.entries.values()] == [3, 3]


def test_what_a_loss_hands_to_the_class_that_it_extends_is_read_there(workspace):
    text = """
class Spread(nn.CrossEntropyLoss):
    def forward(self, inp, target):
        count, at = inp.size()[1], 1
        while at + 1 < len(inp.shape):
            inp = inp.transpose(at, at + 1)
            at += 1
        return super().forward(inp.contiguous().view(-1, count), target.view(-1))


class Hardest(Spread):
    def __init__(self):
        super().__init__(reduction="none")

    def forward(self, inp, target):
        losses = super(Hardest, self).forward(inp, target[:, 0].long())
        return losses.topk(losses.numel() // 10)[0].mean()
"""
    found, errors = shown(workspace, text)
    assert not errors
    assert format_inputs(found["Hardest"].spec) == "inp: f32[B=2, 3, H=32, W=32]; target: i64[B, 1, H, W] < 2"
