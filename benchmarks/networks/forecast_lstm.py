"""A forecast of a series of measurements: 24 steps of four sensors, two layers of LSTM, the next value of each."""

import torch
from torch import nn


class ForecastLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 24, num_layers=2, batch_first=True)
        self.next = nn.Linear(24, 4)

    def forward(self, x):
        _, (hidden, _) = self.lstm(x)
        return self.next(hidden[-1])


if __name__ == "__main__":
    print(ForecastLSTM()(torch.randn(4, 24, 4)))
