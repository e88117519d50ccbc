import torch
import torch.nn as nn
from layers.decomp import series_decomp


class Model(nn.Module):
    """ two straight lines: one through the season, one through the trend """

    def __init__(self, configs):
        super(Model, self).__init__()
        self.pred_len = configs.pred_len
        self.split = series_decomp(25)
        heads = configs.enc_in if configs.individual else 1
        make = lambda: nn.ModuleList([nn.Linear(configs.seq_len, configs.pred_len) for _ in range(heads)])
        self.season, self.trend = make(), make()

    def extend(self, lines, x):
        if len(lines) == 1:
            return lines[0](x)
        out = torch.zeros(x.size(0), x.size(1), self.pred_len).to(x.device)
        for channel, line in enumerate(lines):
            out[:, channel] = line(x[:, channel])
        return out

    def forward(self, x):
        # x: [Batch, length, Channel]
        season, trend = self.split(x)
        season = self.extend(self.season, season.transpose(1, 2))
        trend = self.extend(self.trend, trend.transpose(1, 2))
        return (season + trend).transpose(1, 2)
