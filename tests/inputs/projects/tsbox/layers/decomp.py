import torch
import torch.nn as nn


class moving_avg(nn.Module):
    """smooths a series, the ends are repeated"""

    def __init__(self, kernel_size, stride):
        super(moving_avg, self).__init__()
        self.kernel_size = kernel_size
        self.avg = nn.AvgPool1d(kernel_size=kernel_size, stride=stride, padding=0)

    def forward(self, x):
        left = x[:, :1].expand(-1, (self.kernel_size - 1) // 2, -1)
        right = x[:, -1:].expand(-1, self.kernel_size // 2, -1)
        x = torch.cat([left, x, right], dim=1)
        return self.avg(x.permute(0, 2, 1)).permute(0, 2, 1)


class series_decomp(nn.Module):
    def __init__(self, kernel_size):
        super(series_decomp, self).__init__()
        self.moving_avg = moving_avg(kernel_size, stride=1)

    def forward(self, x):
        moving_mean = self.moving_avg(x)
        res = x - moving_mean
        return res, moving_mean
