"""A residual network for small grey images: a stem, a plain block, one that halves the image, a linear head."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, before, after, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1)
        self.shortcut = nn.Conv2d(before, after, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        out = self.conv2(F.relu(self.conv1(x)))
        return F.relu(out + self.shortcut(x))


class SmallResNet(nn.Module):
    def __init__(self, width=8, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.block1 = Block(width, width)
        self.block2 = Block(width, 2 * width, stride=2)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, images):
        x = F.relu(self.stem(images))
        x = self.block2(self.block1(x))
        return self.head(x.mean(dim=(2, 3)))


if __name__ == "__main__":
    print(SmallResNet()(torch.rand(2, 1, 16, 16)).shape)
