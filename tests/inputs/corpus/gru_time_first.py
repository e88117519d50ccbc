import torch.nn as nn


class Forecaster(nn.Module):
    """Sequences are (time, batch, features)."""

    def __init__(self, n_features=7, hidden=24, horizon=3):
        super().__init__()
        self.gru = nn.GRU(n_features, hidden, num_layers=2)
        self.head = nn.Linear(hidden, horizon)

    def forward(self, series):
        out, last = self.gru(series)
        return self.head(out[-1])
