"""A small recogniser of spoken words: 25 frames of ten cepstral coefficients, a GRU, twelve words."""

import torch
from torch import nn


class KeywordGRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(10, 32, batch_first=True)
        self.words = nn.Linear(32, 12)

    def forward(self, x):
        frames, _ = self.gru(x)
        return self.words(frames[:, -1])


if __name__ == "__main__":
    print(KeywordGRU()(torch.randn(4, 25, 10)).softmax(dim=-1))
