import torch
import torch.nn as nn

from .registry import register_model

__all__ = ['ShuffleNet', 'shufflenet_x0_5']


def channel_shuffle(x, groups: int):
    b, c, h, w = x.size()
    x = x.view(b, groups, c // groups, h, w)
    x = torch.transpose(x, 1, 2).contiguous()
    return x.view(b, -1, h, w)


def dw(i, o, k, s, p):
    return nn.Conv2d(i, o, k, s, p, bias=False, groups=i)


class Unit(nn.Module):
    def __init__(self, inp, oup, stride):
        super().__init__()
        self.stride = stride
        half = oup // 2
        assert self.stride != 1 or inp == half << 1
        if stride > 1:
            self.branch1 = nn.Sequential(
                dw(inp, inp, 3, stride, 1), nn.BatchNorm2d(inp),
                nn.Conv2d(inp, half, 1, 1, 0, bias=False), nn.BatchNorm2d(half), nn.ReLU(inplace=True))
        else:
            self.branch1 = nn.Sequential()
        self.branch2 = nn.Sequential(
            nn.Conv2d(inp if stride > 1 else half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(inplace=True),
            dw(half, half, 3, stride, 1), nn.BatchNorm2d(half),
            nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(inplace=True))

    def forward(self, x):
        if self.stride == 1:
            x1, x2 = x.chunk(2, dim=1)
            out = torch.cat((x1, self.branch2(x2)), dim=1)
        else:
            out = torch.cat((self.branch1(x), self.branch2(x)), dim=1)
        out = channel_shuffle(out, 2)
        return out


class ShuffleNet(nn.Module):
    def __init__(self, stages_repeats, stages_out_channels, num_classes):
        super().__init__()
        if len(stages_repeats) != 3:
            raise ValueError('expected stages_repeats as list of 3 positive ints')
        if len(stages_out_channels) != 5:
            raise ValueError('expected stages_out_channels as list of 5 positive ints')
        c = stages_out_channels[0]
        self.conv1 = nn.Sequential(nn.Conv2d(3, c, 3, 2, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU(inplace=True))
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for name, n, oc in zip(['stage2', 'stage3', 'stage4'], stages_repeats, stages_out_channels[1:]):
            seq = [Unit(c, oc, 2)] + [Unit(oc, oc, 1) for _ in range(n - 1)]
            setattr(self, name, nn.Sequential(*seq))
            c = oc
        self.conv5 = nn.Sequential(
            nn.Conv2d(c, stages_out_channels[-1], 1, bias=False), nn.BatchNorm2d(stages_out_channels[-1]), nn.ReLU())
        self.fc = nn.Linear(stages_out_channels[-1], num_classes)

    def forward(self, x):
        x = self.conv1(x)
        x = self.maxpool(x)
        x = self.stage2(x)
        x = self.stage3(x)
        x = self.stage4(x)
        x = self.conv5(x)
        x = x.mean([2, 3])  # globalpool
        return self.fc(x)


@register_model
def shufflenet_x0_5(pretrained=False, num_classes=1000):
    return ShuffleNet([4, 8, 4], [24, 48, 96, 192, 1024], num_classes)
