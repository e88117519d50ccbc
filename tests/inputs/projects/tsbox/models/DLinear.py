import torch
import torch.nn as nn
from layers.decomp import series_decomp


class Model(nn.Module):
    """ Decomposition-Linear """

    def __init__(self, configs):
        super(Model, self).__init__()
        self.seq_len = configs.seq_len
        self.pred_len = configs.pred_len
        self.decompsition = series_decomp(25)
        self.individual = configs.individual
        self.channels = configs.enc_in
        if self.individual:
            self.Linear_Seasonal = nn.ModuleList([nn.Linear(self.seq_len, self.pred_len) for _ in range(self.channels)])
            self.Linear_Trend = nn.ModuleList([nn.Linear(self.seq_len, self.pred_len) for _ in range(self.channels)])
        else:
            self.Linear_Seasonal = nn.Linear(self.seq_len, self.pred_len)
            self.Linear_Trend = nn.Linear(self.seq_len, self.pred_len)

    def per_channel(self, layers, x):
        out = torch.zeros([x.size(0), x.size(1), self.pred_len], dtype=x.dtype).to(x.device)
        for i in range(self.channels):
            out[:, i, :] = layers[i](x[:, i, :])
        return out

    def forward(self, x):
        # x: [Batch, Input length, Channel]
        seasonal, trend = self.decompsition(x)
        seasonal, trend = seasonal.permute(0, 2, 1), trend.permute(0, 2, 1)
        if self.individual:
            y = self.per_channel(self.Linear_Seasonal, seasonal) + self.per_channel(self.Linear_Trend, trend)
        else:
            y = self.Linear_Seasonal(seasonal) + self.Linear_Trend(trend)
        return y.permute(0, 2, 1)
