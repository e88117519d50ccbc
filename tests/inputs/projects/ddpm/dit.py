# transformer on latent patches, conditioned by scale and shift
import math

import torch
from torch import nn


class Timesteps(nn.Module):
    def __init__(self, width, waves=128):
        super().__init__()
        self.waves = waves
        self.net = nn.Sequential(nn.Linear(2 * waves, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, t):
        rates = torch.logspace(0, -4, self.waves, device=t.device)
        angle = t.float().unsqueeze(1) * rates
        return self.net(torch.cat((angle.sin(), angle.cos()), dim=1))


class Labels(nn.Module):
    """One more row for "no label": classifier-free guidance drops labels while training."""

    def __init__(self, num_classes, width, p_drop):
        super().__init__()
        self.num_classes, self.p_drop = num_classes, p_drop
        self.table = nn.Embedding(num_classes + int(p_drop > 0), width)

    def forward(self, y):
        if self.training and self.p_drop > 0:
            dropped = torch.rand(y.shape[0], device=y.device) < self.p_drop
            y = y.masked_fill(dropped, self.num_classes)
        return self.table(y)


class ConditionedBlock(nn.Module):
    def __init__(self, width, heads, ratio):
        super().__init__()
        self.quiet = nn.LayerNorm(width, elementwise_affine=False)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, int(width * ratio)), nn.GELU("tanh"), nn.Linear(int(width * ratio), width))
        self.condition = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))
        nn.init.zeros_(self.condition[-1].weight)

    def forward(self, x, c):
        a1, b1, g1, a2, b2, g2 = self.condition(c)[:, None].chunk(6, dim=-1)
        h = self.quiet(x) * (1 + a1) + b1
        x = x + g1 * self.attn(h, h, h, need_weights=False)[0]
        h = self.quiet(x) * (1 + a2) + b2
        return x + g2 * self.mlp(h)


class DiT(nn.Module):
    def __init__(self, input_size, patch_size, in_channels, hidden_size, depth, num_heads, mlp_ratio=4.0,
                 class_dropout_prob=0.1, num_classes=1000, learn_sigma=True):
        super().__init__()
        self.p, self.side = patch_size, input_size // patch_size
        self.out_channels = in_channels * (1 + learn_sigma)
        self.patchify = nn.Conv2d(in_channels, hidden_size, patch_size, patch_size)
        self.t, self.y = Timesteps(hidden_size), Labels(num_classes, hidden_size, class_dropout_prob)
        self.pos = nn.Parameter(grid_waves(self.side, hidden_size), requires_grad=False)
        self.blocks = nn.ModuleList(ConditionedBlock(hidden_size, num_heads, mlp_ratio) for _ in range(depth))
        self.final = nn.Linear(hidden_size, patch_size ** 2 * self.out_channels)

    def assemble(self, tokens):
        n, l, d = tokens.shape
        side = math.isqrt(l)
        assert side * side == l
        image = tokens.view(n, side, side, self.p, self.p, self.out_channels)
        return image.permute(0, 5, 1, 3, 2, 4).reshape(n, self.out_channels, side * self.p, side * self.p)

    def forward(self, x, t, y):
        tokens = self.patchify(x).flatten(2).transpose(1, 2) + self.pos
        c = self.t(t) + self.y(y)
        for block in self.blocks:
            tokens = block(tokens, c)
        return self.assemble(self.final(tokens))


def grid_waves(side, width):
    axis = torch.arange(side).float()
    rows, columns = torch.meshgrid(axis, axis, indexing="ij")
    rates = 10000 ** -torch.linspace(0, 1, width // 4)
    parts = [f(a.flatten()[:, None] * rates) for a in (rows, columns) for f in (torch.sin, torch.cos)]
    return torch.cat(parts, dim=1)[None]


def DiT_S_2(**kwargs):
    return DiT(input_size=32, patch_size=2, in_channels=4, depth=12, hidden_size=384, num_heads=6, **kwargs)


DiT_models = {'DiT-S/2': DiT_S_2}
