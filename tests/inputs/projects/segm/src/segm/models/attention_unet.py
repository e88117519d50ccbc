import torch
from torch import nn

from segm.models.blocks import DoubleConv, Up


class AttentionGate(nn.Module):
    def __init__(self, F_g, F_l, F_int):
        super().__init__()
        self.W_g = nn.Sequential(nn.Conv2d(F_g, F_int, 1), nn.BatchNorm2d(F_int))
        self.W_x = nn.Sequential(nn.Conv2d(F_l, F_int, 1), nn.BatchNorm2d(F_int))
        self.psi = nn.Sequential(nn.Conv2d(F_int, 1, 1), nn.BatchNorm2d(1), nn.Sigmoid())

    def forward(self, g, x):
        g1 = self.W_g(g)
        x1 = self.W_x(x)
        psi = torch.relu(g1 + x1)
        psi = self.psi(psi)
        return x * psi


class AttentionUNet(nn.Module):
    """https://arxiv.org/abs/1804.03999, with fewer channels"""

    def __init__(self, n_channels, n_classes, base_c, bilinear=True):
        super().__init__()
        self.n_channels = n_channels
        self.n_classes = n_classes
        c = [base_c * 2 ** i for i in range(5)]
        self.inc = DoubleConv(n_channels, c[0])
        self.downs = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), DoubleConv(a, b)) for a, b in zip(c[:-1], c[1:]))
        self.ups = nn.ModuleList(Up(a, b, bilinear) for a, b in zip(c[:0:-1], c[-2::-1]))
        self.gates = nn.ModuleList(AttentionGate(b, b, b // 2) for b in c[-2::-1])
        self.fuse = nn.ModuleList(DoubleConv(2 * b, b) for b in c[-2::-1])
        self.outc = nn.Conv2d(c[0], n_classes, kernel_size=1)

    def forward(self, x):
        skips = [self.inc(x)]
        for down in self.downs:
            skips.append(down(skips[-1]))
        y = skips.pop()
        for up, gate, fuse in zip(self.ups, self.gates, self.fuse):
            skip = skips.pop()
            y = up(y)
            skip = gate(y, skip)
            y = fuse(torch.cat([skip, y], dim=1))
        logits = self.outc(y)
        return logits
