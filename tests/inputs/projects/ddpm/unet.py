import math

import torch
from torch import nn
import torch.nn.functional as F
from einops import rearrange


def default(val, d):
    return val if val is not None else (d() if callable(d) else d)


class TimeWaves(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.half = dim // 2

    def forward(self, time):
        rate = torch.exp(torch.arange(self.half, device=time.device) * (-math.log(10000) / (self.half - 1)))
        phase = time[:, None] * rate[None]
        return torch.stack((phase.sin(), phase.cos()), dim=-1).flatten(1)


class TimedConv(nn.Module):
    """conv, norm, and a shift and a scale that time says"""

    def __init__(self, dim, dim_out, time_dim, groups):
        super().__init__()
        self.conv = nn.Conv2d(dim, dim_out, 3, padding=1)
        self.norm = nn.GroupNorm(groups, dim_out)
        self.from_time = nn.Linear(time_dim, 2 * dim_out) if time_dim is not None else None

    def forward(self, x, t=None):
        x = self.norm(self.conv(x))
        if self.from_time is not None and t is not None:
            scale, shift = self.from_time(F.silu(t)).unsqueeze(-1).unsqueeze(-1).tensor_split(2, dim=1)
            x = x * (1 + scale) + shift
        return F.silu(x)


class ResBlock(nn.Module):
    def __init__(self, dim, dim_out, *, time_dim, groups=4):
        super().__init__()
        self.first = TimedConv(dim, dim_out, time_dim, groups)
        self.second = TimedConv(dim_out, dim_out, None, groups)
        self.skip = nn.Conv2d(dim, dim_out, 1) if dim != dim_out else nn.Identity()

    def forward(self, x, t):
        return self.skip(x) + self.second(self.first(x, t))


class PixelAttention(nn.Module):
    """attention whose cost is linear in the pixels"""

    def __init__(self, dim, heads=4, dim_head=32):
        super().__init__()
        self.heads, self.scale = heads, dim_head ** -0.5
        self.norm = nn.GroupNorm(1, dim)
        self.qkv = nn.Conv2d(dim, 3 * heads * dim_head, 1, bias=False)
        self.out = nn.Conv2d(heads * dim_head, dim, 1)

    def forward(self, x):
        b, _, h, w = x.shape
        qkv = self.qkv(self.norm(x)).reshape(b, 3, self.heads, -1, h * w)
        q, k, v = qkv.unbind(dim=1)
        q, k = q.softmax(dim=2) * self.scale, k.softmax(dim=3)
        summary = k @ v.transpose(2, 3)
        y = summary.transpose(2, 3) @ q
        return x + self.out(y.reshape(b, -1, h, w))


class Unet(nn.Module):
    def __init__(self, dim, init_dim=None, out_dim=None, dim_mults=(1, 2, 4), channels=3, self_condition=False):
        super().__init__()
        self.channels, self.self_condition = channels, self_condition
        first = default(init_dim, dim)
        self.stem = nn.Conv2d(channels * (1 + self_condition), first, 5, padding=2)
        time_dim = 4 * dim
        self.time = nn.Sequential(TimeWaves(dim), nn.Linear(dim, time_dim), nn.GELU(), nn.Linear(time_dim, time_dim))
        dims = [first] + [dim * m for m in dim_mults]
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for i, (a, b) in enumerate(zip(dims, dims[1:])):
            last = i == len(dim_mults) - 1
            self.down.append(nn.ModuleDict({
                'block': ResBlock(a, a, time_dim=time_dim), 'attend': PixelAttention(a),
                'shrink': nn.Conv2d(a, b, 3, padding=1) if last else nn.Conv2d(a, b, 4, stride=2, padding=1)}))
            self.up.insert(0, nn.ModuleDict({
                'grow': nn.Conv2d(b, a, 3, padding=1) if last else nn.ConvTranspose2d(b, a, 4, stride=2, padding=1),
                'block': ResBlock(2 * a, a, time_dim=time_dim), 'attend': PixelAttention(a)}))
        self.middle = ResBlock(dims[-1], dims[-1], time_dim=time_dim)
        self.final = nn.Conv2d(2 * first, default(out_dim, channels), 1)

    def forward(self, x, time, x_self_cond=None):
        if self.self_condition:
            x = torch.cat((default(x_self_cond, lambda: torch.zeros_like(x)), x), dim=1)
        x = self.stem(x)
        start = x.clone()
        t = self.time(time)
        skips = []
        for level in self.down:
            x = level['attend'](level['block'](x, t))
            skips.append(x)
            x = level['shrink'](x)
        x = self.middle(x, t)
        for level in self.up:
            x = level['grow'](x)
            x = level['block'](torch.cat((x, skips.pop()), dim=1), t)
            x = level['attend'](x)
        return self.final(torch.cat((x, start), dim=1))
