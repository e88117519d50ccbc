"""Boxes whose last columns are read, and a network for game frames of one usual size."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ShiftBoxes(nn.Module):
    def forward(self, anchors, regression):
        y = (anchors[..., 0] + anchors[..., 2]) / 2
        x = (anchors[..., 1] + anchors[..., 3]) / 2
        h, w = anchors[..., 2] - anchors[..., 0], anchors[..., 3] - anchors[..., 1]
        w, h = regression[..., 3].exp() * w, regression[..., 2].exp() * h
        y, x = regression[..., 0] * h + y, regression[..., 1] * w + x
        return torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], dim=2)


class FrameNet(nn.Module):
    def __init__(self, history, action_space):
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv2d(history, 32, 8, stride=4), nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
            nn.Conv2d(64, 64, 3), nn.ReLU(),
        )
        self.value, self.advantage = nn.Linear(3136, 1), nn.Linear(3136, action_space)

    def forward(self, x):
        x = self.convs(x)
        x = x.view(-1, 3136)
        value, advantage = self.value(x), self.advantage(x)
        return F.softmax(value + advantage - advantage.mean(1, keepdim=True), dim=1)
