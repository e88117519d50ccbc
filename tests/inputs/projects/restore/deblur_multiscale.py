import torch
import torch.nn as nn
import torch.nn.functional as F


class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = nn.Conv2d(c, c, 5, padding=2), nn.Conv2d(c, c, 5, padding=2)

    def forward(self, x):
        return x + self.b(F.relu(self.a(x)))


class ConvLSTMCell(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gates = nn.Conv2d(2 * c, 4 * c, 3, padding=1)

    def forward(self, x, state):
        h, c = state
        i, f, o, g = torch.chunk(self.gates(torch.cat([x, h], 1)), 4, dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return h, (h, c)


class ScaleRecurrentDeblur(nn.Module):
    def __init__(self, n_scales=3, base=16):
        super().__init__()
        self.n_scales, self.base = n_scales, base
        self.inp = nn.Sequential(nn.Conv2d(6, base, 5, padding=2), ResBlock(base))
        self.down = nn.Sequential(nn.Conv2d(base, 2 * base, 5, 2, 2), ResBlock(2 * base))
        self.cell = ConvLSTMCell(2 * base)
        self.up = nn.Sequential(ResBlock(2 * base), nn.ConvTranspose2d(2 * base, base, 4, 2, 1))
        self.out = nn.Conv2d(base, 3, 5, padding=2)

    def forward(self, blurred):
        outputs, state, sharp = [], None, None
        for level in reversed(range(self.n_scales)):
            size = tuple(s >> level for s in blurred.shape[-2:])
            b = F.interpolate(blurred, size=size, mode='bilinear', align_corners=False)
            sharp = b if sharp is None else F.interpolate(sharp, size=size, mode='bilinear', align_corners=False)
            e = self.inp(torch.cat([b, sharp], 1))
            d = self.down(e)
            if state is None:
                state = (torch.zeros_like(d), torch.zeros_like(d))
            else:
                state = tuple(F.interpolate(s, size=d.shape[-2:]) for s in state)
            d, state = self.cell(d, state)
            sharp = self.out(self.up(d) + e)
            outputs.append(sharp)
        return outputs
