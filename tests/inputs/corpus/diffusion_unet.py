import math

import torch
import torch.nn as nn


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(-math.log(10000) * torch.arange(half) / half)
        args = t[:, None].float() * freqs[None]
        return self.mlp(torch.cat([args.sin(), args.cos()], dim=-1))


class Denoiser(nn.Module):
    def __init__(self, channels=3, dim=16):
        super().__init__()
        self.time = TimeEmbedding(dim)
        self.inp = nn.Conv2d(channels, dim, 3, padding=1)
        self.norm = nn.GroupNorm(4, dim)
        self.out = nn.Conv2d(dim, channels, 3, padding=1)

    def forward(self, x, t):
        h = self.inp(x) + self.time(t)[:, :, None, None]
        return self.out(torch.nn.functional.silu(self.norm(h)))
