"""A diffusion vocoder: waves and mel spectrograms without channels, a step, and lengths that have to agree."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Steps(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        angles = torch.arange(count).unsqueeze(1) * 10.0 ** (torch.arange(32).unsqueeze(0) / 8)
        self.register_buffer("table", torch.cat([angles.sin(), angles.cos()], dim=1), persistent=False)
        self.project = nn.Linear(64, width)

    def forward(self, diffusion_step):
        x = self.table[diffusion_step]
        return F.silu(self.project(x))


class Upsampler(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.ConvTranspose2d(1, 1, [3, 32], stride=[1, 16], padding=[1, 8])
        self.second = nn.ConvTranspose2d(1, 1, [3, 32], stride=[1, 16], padding=[1, 8])

    def forward(self, x):
        x = torch.unsqueeze(x, 1)
        x = F.leaky_relu(self.first(x), 0.4)
        x = F.leaky_relu(self.second(x), 0.4)
        return torch.squeeze(x, 1)


class Vocoder(nn.Module):
    def __init__(self, mels=80, width=24, layers=3, steps=50, conditional=True):
        super().__init__()
        self.entry = nn.Conv1d(1, width, 1)
        self.steps = Steps(steps, width)
        self.upsampler = Upsampler() if conditional else None
        self.conditions = nn.ModuleList([nn.Conv1d(mels, width, 1) for _ in range(layers)])
        self.layers = nn.ModuleList(
            [nn.Conv1d(width, width, 3, padding=2**i, dilation=2**i) for i in range(layers)]
        )
        self.exit = nn.Conv1d(width, 1, 1)

    def forward(self, audio, diffusion_step, spectrogram=None):
        assert (spectrogram is None) == (self.upsampler is None)
        x = F.relu(self.entry(audio.unsqueeze(1)))
        step = self.steps(diffusion_step).unsqueeze(-1)
        mel = self.upsampler(spectrogram)
        assert mel.size(-1) == x.size(-1)
        for layer, condition in zip(self.layers, self.conditions):
            x = x + torch.tanh(layer(x + step) + condition(mel))
        return self.exit(x)
