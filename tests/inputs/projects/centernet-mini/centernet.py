# -*- coding: utf-8 -*-
"""Objects as points, small version. hourglass backbone."""
import torch
from torch import nn
import torch.nn.functional as F


class convolution(nn.Module):
    def __init__(self, k, inp_dim, out_dim, stride=1, with_bn=True):
        super(convolution, self).__init__()
        pad = (k - 1) // 2
        self.conv = nn.Conv2d(inp_dim, out_dim, (k, k), padding=(pad, pad), stride=(stride, stride), bias=not with_bn)
        self.bn   = nn.BatchNorm2d(out_dim) if with_bn else nn.Sequential()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        conv = self.conv(x)
        bn   = self.bn(conv)
        relu = self.relu(bn)
        return relu


class residual(nn.Module):
    def __init__(self, inp_dim, out_dim, stride=1):
        super(residual, self).__init__()
        self.conv1 = convolution(3, inp_dim, out_dim, stride)
        self.conv2 = nn.Conv2d(out_dim, out_dim, (3, 3), padding=(1, 1), bias=False)
        self.bn2   = nn.BatchNorm2d(out_dim)
        self.skip  = nn.Sequential(
            nn.Conv2d(inp_dim, out_dim, (1, 1), stride=(stride, stride), bias=False),
            nn.BatchNorm2d(out_dim)
        ) if stride != 1 or inp_dim != out_dim else nn.Sequential()

    def forward(self, x):
        y = self.bn2(self.conv2(self.conv1(x)))
        skip = self.skip(x)
        return F.relu(y + skip)


class hourglass(nn.Module):
    def __init__(self, n, dims):
        super(hourglass, self).__init__()
        curr, nxt = dims[0], dims[1]
        self.n    = n
        self.up1  = residual(curr, curr)
        self.low1 = residual(curr, nxt, stride=2)
        self.low2 = hourglass(n - 1, dims[1:]) if n > 1 else residual(nxt, nxt)
        self.low3 = residual(nxt, curr)
        self.up2  = nn.Upsample(scale_factor=2)

    def forward(self, x):
        up1  = self.up1(x)
        low1 = self.low1(x)
        low2 = self.low2(low1)
        low3 = self.low3(low2)
        up2  = self.up2(low3)
        return up1 + up2


class CenterNet(nn.Module):
    def __init__(self, heads, n, dims, nstack=1):
        super(CenterNet, self).__init__()
        self.heads = heads
        self.pre = nn.Sequential(convolution(7, 3, dims[0] // 2, stride=2), residual(dims[0] // 2, dims[0], stride=2))
        self.kps = nn.ModuleList([hourglass(n, dims) for _ in range(nstack)])
        self.cnvs = nn.ModuleList([convolution(3, dims[0], dims[0]) for _ in range(nstack)])
        for head, classes in heads.items():
            fc = nn.Sequential(convolution(3, dims[0], 64, with_bn=False), nn.Conv2d(64, classes, 1))
            if 'hm' in head:
                fc[-1].bias.data.fill_(-2.19)
            self.__setattr__(head, fc)

    def forward(self, image):
        inter = self.pre(image)
        outs = []
        for kp, cnv in zip(self.kps, self.cnvs):
            inter = cnv(kp(inter))
            out = {}
            for head in self.heads:
                out[head] = self.__getattr__(head)(inter)
            outs.append(out)
        return outs


def get_hourglass(num_classes=80):
    heads = {'hm': num_classes, 'wh': 2, 'reg': 2}
    return CenterNet(heads, n=3, dims=[64, 96, 128, 160], nstack=2)


def _nms(heat, kernel=3):
    hmax = F.max_pool2d(heat, (kernel, kernel), stride=1, padding=(kernel - 1) // 2)
    keep = (hmax == heat).float()
    return heat * keep
