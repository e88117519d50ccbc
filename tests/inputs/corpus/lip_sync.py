"""Windows of sound and of video; the comment is about clips, whose frames are joined to the batch."""

import torch
from torch import nn


def down(channels, width, stride):
    return nn.Sequential(nn.Conv2d(channels, width, 3, stride=stride, padding=1), nn.ReLU())


class LipSync(nn.Module):
    def __init__(self):
        super().__init__()
        self.sound = nn.Sequential(down(1, 8, (5, 2)), down(8, 16, (4, 2)), nn.Conv2d(16, 16, 4))
        self.face = nn.ModuleList([down(6, 16, 4), down(16, 16, 4), nn.Sequential(nn.Conv2d(16, 16, 6))])
        self.last = nn.Conv2d(32, 3, 1)

    def forward(self, sound, face):
        # sound = (B, T, 1, 80, 16)
        if face.dim() > 4:
            sound, face = sound.flatten(0, 1), face.flatten(0, 1)
        for layer in self.face:
            face = layer(face)
        return self.last(torch.cat([self.sound(sound), face], dim=1))
