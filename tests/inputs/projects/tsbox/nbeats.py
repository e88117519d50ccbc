import torch as t
from torch import nn


class Block(nn.Module):
    def __init__(self, backcast, forecast, width, theta, kind):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(backcast, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.theta = nn.Linear(width, theta)
        self.kind, self.backcast, self.forecast = kind, backcast, forecast
        if kind == 'trend':
            p = theta // 2
            self.register_buffer('basis_b', t.stack([(t.arange(backcast) / backcast) ** i for i in range(p)]))
            self.register_buffer('basis_f', t.stack([(t.arange(forecast) / forecast) ** i for i in range(p)]))
        else:
            assert theta == backcast + forecast

    def forward(self, x):
        th = self.theta(self.fc(x))
        if self.kind == 'trend':
            half = th.shape[1] // 2
            return th[:, :half] @ self.basis_b, th[:, half:] @ self.basis_f
        return th[:, :self.backcast], th[:, -self.forecast:]


class NBeats(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x, input_mask):
        residuals = x.flip(dims=(1,))
        input_mask = input_mask.flip(dims=(1,))
        forecast = x[:, -1:]
        for block in self.blocks:
            backcast, block_forecast = block(residuals)
            residuals = (residuals - backcast) * input_mask
            forecast = forecast + block_forecast
        return forecast


def interpretable(input_size=48, output_size=12, width=64):
    return NBeats([Block(input_size, output_size, width, 6, 'trend') for _ in range(2)] +
                  [Block(input_size, output_size, width, input_size + output_size, 'generic') for _ in range(2)])
