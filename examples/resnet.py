"""ResNet-18 (He et al., 2015), written out by hand."""

import torch
import torch.nn as nn


def conv3x3(in_channels, out_channels, stride=1):
    return nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, in_channels, out_channels, stride=1):
        super().__init__()
        self.conv1 = conv3x3(in_channels, out_channels, stride)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = conv3x3(out_channels, out_channels)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, layers=(2, 2, 2, 2), num_classes=1000):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        self.layer1 = self._stage(64, 64, layers[0])
        self.layer2 = self._stage(64, 128, layers[1], stride=2)
        self.layer3 = self._stage(128, 256, layers[2], stride=2)
        self.layer4 = self._stage(256, 512, layers[3], stride=2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, num_classes)

    def _stage(self, in_channels, out_channels, blocks, stride=1):
        first = BasicBlock(in_channels, out_channels, stride)
        rest = [BasicBlock(out_channels, out_channels) for _ in range(blocks - 1)]
        return nn.Sequential(first, *rest)

    def forward(self, x):
        x = self.stem(x)
        x = self.layer1(x)
        x = self.layer2(x)
        x = self.layer3(x)
        x = self.layer4(x)
        x = self.pool(x)
        x = torch.flatten(x, 1)
        return self.fc(x)


def resnet18(num_classes=1000):
    return ResNet((2, 2, 2, 2), num_classes)


if __name__ == "__main__":
    model = resnet18().eval()
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        scores = model(images)
    print("top class of each image:", scores.argmax(dim=1).tolist())
