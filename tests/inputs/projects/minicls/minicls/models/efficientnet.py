import math
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from .registry import register_model

__all__ = ["EfficientNet", "efficientnet_lite0"]


@dataclass
class StageCfg:
    kernel: int
    stride: int
    expand: int
    cin: int
    cout: int
    repeats: int
    se_ratio: float = 0.25


B0 = [
    StageCfg(3, 1, 1, 32, 16, 1),
    StageCfg(3, 2, 6, 16, 24, 2),
    StageCfg(5, 2, 6, 24, 40, 2),
    StageCfg(3, 2, 6, 40, 80, 3),
]


class SqueezeExcite(nn.Module):
    def __init__(self, chs, rd):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(chs, rd, 1), nn.Conv2d(rd, chs, 1)

    def forward(self, x):
        scale = x.mean((2, 3), keepdim=True)
        scale = nn.functional.silu(self.reduce(scale))
        return x * self.expand(scale).sigmoid()


class MBConv(nn.Module):
    def __init__(self, cfg: StageCfg, norm=partial(nn.BatchNorm2d, eps=1e-3)):
        super().__init__()
        mid = cfg.cin * cfg.expand
        self.has_skip = cfg.stride == 1 and cfg.cin == cfg.cout
        self.expand = nn.Sequential(nn.Conv2d(cfg.cin, mid, 1, bias=False), norm(mid), nn.SiLU()) if cfg.expand > 1 \
            else nn.Identity()
        self.dw = nn.Sequential(
            nn.Conv2d(mid, mid, cfg.kernel, cfg.stride, cfg.kernel // 2, groups=mid, bias=False), norm(mid), nn.SiLU())
        self.se = SqueezeExcite(mid, max(1, int(cfg.cin * cfg.se_ratio)))
        self.project = nn.Sequential(nn.Conv2d(mid, cfg.cout, 1, bias=False), norm(cfg.cout))

    def forward(self, x):
        h = self.expand(x)
        h = self.dw(h)
        h = self.se(h)
        h = self.project(h)
        return x + h if self.has_skip else h


class EfficientNet(nn.Module):
    def __init__(self, stages, width, depth, num_classes, head_channels=320):
        super().__init__()
        rnd = lambda c: int(math.ceil(c * width / 8) * 8)
        self.stem = nn.Sequential(nn.Conv2d(3, rnd(stages[0].cin), 3, 2, 1, bias=False), nn.BatchNorm2d(rnd(stages[0].cin)), nn.SiLU())
        blocks = []
        for s in stages:
            s = replace(s, cin=rnd(s.cin), cout=rnd(s.cout), repeats=int(math.ceil(s.repeats * depth)))
            for i in range(s.repeats):
                blocks.append(MBConv(s if i == 0 else replace(s, cin=s.cout, stride=1)))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(nn.Conv2d(rnd(stages[-1].cout), head_channels, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(head_channels, num_classes)

    def forward(self, x):
        x = self.stem(x)
        for blk in self.blocks:
            x = blk(x)
        x = self.head(x)
        return self.classifier(x)


@register_model
def efficientnet_lite0(pretrained=False, **kw):
    return EfficientNet(B0, width=1.0, depth=1.0, **kw)
