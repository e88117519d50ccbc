import torch
import torch.nn as nn

from .registry import register_model
from ..layers import DropPath, LayerNorm2d, trunc_normal_

__all__ = ['ConvNeXt', 'convnext_atto']


class Mixer(nn.Module):
    """wide depthwise filter, then a small MLP on every pixel (channels last)"""

    def __init__(self, chs, drop=0., init_scale=1e-6):
        super().__init__()
        self.spatial = nn.Conv2d(chs, chs, 7, padding=3, groups=chs)
        self.norm = nn.LayerNorm(chs, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(chs, 4 * chs), nn.GELU(), nn.Linear(4 * chs, chs))
        self.scale = nn.Parameter(torch.full((chs,), init_scale)) if init_scale > 0 else None
        self.drop = DropPath(drop) if drop > 0. else nn.Identity()

    def forward(self, x):
        y = self.spatial(x).movedim(1, -1)
        y = self.mlp(self.norm(y))
        if self.scale is not None:
            y = y * self.scale
        return x + self.drop(y.movedim(-1, 1))


class ConvNeXt(nn.Module):
    def __init__(self, in_chans, num_classes, depths, dims, drop_path_rate=0.):
        super().__init__()
        rates = torch.linspace(0, drop_path_rate, sum(depths)).tolist()
        self.stages = nn.ModuleList()
        last = in_chans
        for i, (depth, dim) in enumerate(zip(depths, dims)):
            if i == 0:
                shrink = nn.Sequential(nn.Conv2d(last, dim, 4, stride=4), LayerNorm2d(dim))
            else:
                shrink = nn.Sequential(LayerNorm2d(last), nn.Conv2d(last, dim, 2, stride=2))
            self.stages.append(nn.Sequential(shrink, *[Mixer(dim, rates.pop(0)) for _ in range(depth)]))
            last = dim
        self.norm = nn.LayerNorm(last, eps=1e-6)
        self.head = nn.Linear(last, num_classes)
        for m in self.modules():
            if isinstance(m, (nn.Conv2d, nn.Linear)):
                trunc_normal_(m.weight, std=.02)
                nn.init.zeros_(m.bias)

    def forward_features(self, x):
        for stage in self.stages:
            x = stage(x)
        pooled = x.mean([-2, -1])
        return self.norm(pooled)

    def forward(self, x):
        features = self.forward_features(x)
        return self.head(features)


@register_model
def convnext_atto(pretrained=False, in_chans=3, num_classes=1000, **kwargs):
    return ConvNeXt(in_chans, num_classes, depths=[2, 2, 6, 2], dims=[40, 80, 160, 320], drop_path_rate=0.1, **kwargs)
