import math
import random

import torch
from torch import nn
from torch.nn import functional as F


class ScaledLinear(nn.Module):
    """weights of unit variance, scaled when they are used"""

    def __init__(self, cin, cout, bias=0.0, slow=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cout, cin) / slow)
        self.bias = nn.Parameter(torch.full((cout,), float(bias)))
        self.gain, self.slow = slow / math.sqrt(cin), slow

    def forward(self, x):
        return F.linear(x, self.weight * self.gain, self.bias * self.slow)


class StyledConv(nn.Module):
    """every image of the batch has a filter of its own: one convolution with as many groups as images"""

    def __init__(self, cin, cout, style_dim, kernel=3, up=False, normalise=True):
        super().__init__()
        self.filter = nn.Parameter(torch.randn(cout, cin, kernel, kernel) / math.sqrt(cin * kernel ** 2))
        self.style = ScaledLinear(style_dim, cin, bias=1)
        self.strength = nn.Parameter(torch.zeros(()))
        self.up, self.normalise = up, normalise

    def forward(self, x, w):
        if self.up:
            x = F.interpolate(x, scale_factor=2, mode='bilinear', align_corners=False)
        n, c, height, width = x.shape
        filters = self.filter[None] * self.style(w)[:, None, :, None, None]
        if self.normalise:
            filters = filters * filters.square().sum((2, 3, 4), keepdim=True).add(1e-8).rsqrt()
        y = F.conv2d(x.reshape(1, n * c, height, width), filters.flatten(0, 1), padding='same', groups=n)
        y = y.view(n, -1, height, width)
        noise = x.new_empty(n, 1, height, width).normal_()
        return F.leaky_relu(y + self.strength * noise, 0.2)


class Generator(nn.Module):
    def __init__(self, size, style_dim, n_mlp, channel_multiplier=2):
        super().__init__()
        self.mapping = nn.ModuleList([ScaledLinear(style_dim, style_dim, slow=0.01) for _ in range(n_mlp)])
        levels = int(math.log2(size)) - 1
        width = lambda level: min(64, channel_multiplier * 2 ** (9 - level))
        self.start = nn.Parameter(torch.randn(1, width(0), 4, 4))
        self.convs, self.colours = nn.ModuleList(), nn.ModuleList()
        for level in range(levels):
            self.convs.append(StyledConv(width(max(level - 1, 0)), width(level), style_dim, up=level > 0))
            self.colours.append(StyledConv(width(level), 3, style_dim, kernel=1, normalise=False))

    def latents(self, z):
        w = z * z.square().mean(dim=1, keepdim=True).add(1e-8).rsqrt()
        for layer in self.mapping:
            w = F.leaky_relu(layer(w), 0.2)
        return w

    def forward(self, styles, inject_index=None):
        ws = [self.latents(z) for z in styles]
        n_levels = len(self.convs)
        if len(ws) == 1:
            w = ws[0][:, None].expand(-1, n_levels, -1)
        else:
            # the coarse levels follow one style, the fine levels another
            cut = inject_index or random.randint(1, n_levels - 1)
            coarse, fine = ws[0][:, None].repeat(1, cut, 1), ws[1][:, None].repeat(1, n_levels - cut, 1)
            w = torch.cat([coarse, fine], dim=1)
        x = self.start.expand(w.shape[0], -1, -1, -1)
        image = None
        for level, (conv, colour) in enumerate(zip(self.convs, self.colours)):
            x = conv(x, w[:, level])
            rgb = colour(x, w[:, level])
            image = rgb if image is None else rgb + F.interpolate(image, scale_factor=2)
        return image, w
