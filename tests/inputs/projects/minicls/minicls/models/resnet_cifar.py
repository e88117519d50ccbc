'''
Residual networks for small images (6n+2 layers).
'''
import torch
import torch.nn as nn
import torch.nn.functional as F

from .registry import register_model

__all__ = ['CifarResNet', 'resnet20', 'resnet56']


class Shortcut(nn.Module):
    """no weights: every second pixel, new channels are zero"""

    def __init__(self, fewer, more):
        super(Shortcut, self).__init__()
        self.pad = more - fewer

    def forward(self, x):
        x = x[:, :, ::2, ::2]
        left = self.pad // 2
        return F.pad(x, (0, 0, 0, 0, left, self.pad - left))


class PlainBlock(nn.Module):
    def __init__(self, fewer, more):
        super(PlainBlock, self).__init__()
        stride = 1 if fewer == more else 2
        self.conv_a = nn.Conv2d(fewer, more, 3, stride=stride, padding=1, bias=False)
        self.conv_b = nn.Conv2d(more, more, 3, padding=1, bias=False)
        self.bn_a, self.bn_b = nn.BatchNorm2d(more), nn.BatchNorm2d(more)
        self.shortcut = nn.Identity() if fewer == more else Shortcut(fewer, more)

    def forward(self, x):
        out = F.relu(self.bn_a(self.conv_a(x)))
        out = self.bn_b(self.conv_b(out))
        out += self.shortcut(x)
        return F.relu(out)


class CifarResNet(nn.Module):
    def __init__(self, n, num_classes):
        super(CifarResNet, self).__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        widths = [16] * (n + 1) + [32] * n + [64] * n
        self.blocks = nn.Sequential(*[PlainBlock(a, b) for a, b in zip(widths, widths[1:])])
        self.linear = nn.Linear(64, num_classes)
        for m in self.modules():
            if isinstance(m, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(m.weight)

    def forward(self, x):
        out = self.blocks(self.stem(x))
        out = F.avg_pool2d(out, out.size()[3])
        out = out.view(out.size(0), -1)
        return self.linear(out)


@register_model
def resnet20(pretrained=False, **kwargs):
    return CifarResNet(3, **kwargs)


@register_model
def resnet56(pretrained=False, **kwargs):
    model = CifarResNet(9, **kwargs)
    if pretrained:
        model.load_state_dict(torch.hub.load_state_dict_from_url("https://example.invalid/resnet56.pth"))
    return model
