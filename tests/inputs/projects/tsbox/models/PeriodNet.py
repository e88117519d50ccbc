import torch
import torch.nn as nn
import torch.fft


def find_periods(x, k):
    xf = torch.fft.rfft(x, dim=1)
    frequency_list = abs(xf).mean(0).mean(-1)
    frequency_list[0] = 0
    _, top_list = torch.topk(frequency_list, k)
    top_list = top_list.detach().cpu().numpy()
    period = x.shape[1] // top_list
    return period, abs(xf).mean(-1)[:, top_list]


class PeriodBlock(nn.Module):
    def __init__(self, configs):
        super().__init__()
        self.k = configs.top_k
        self.conv = nn.Sequential(nn.Conv2d(configs.d_model, configs.d_ff, 3, padding=1), nn.GELU(),
                                  nn.Conv2d(configs.d_ff, configs.d_model, 3, padding=1))

    def forward(self, x):
        B, T, N = x.size()
        periods, weight = find_periods(x, self.k)
        res = []
        for i in range(self.k):
            period = periods[i]
            if T % period != 0:
                length = (T // period + 1) * period
                padding = torch.zeros([B, length - T, N]).to(x.device)
                out = torch.cat([x, padding], dim=1)
            else:
                length, out = T, x
            out = out.reshape(B, length // period, period, N).permute(0, 3, 1, 2).contiguous()
            out = self.conv(out)
            out = out.permute(0, 2, 3, 1).reshape(B, -1, N)
            res.append(out[:, :T, :])
        res = torch.stack(res, dim=-1)
        weight = torch.softmax(weight, dim=1).unsqueeze(1).unsqueeze(1)
        return (res * weight).sum(-1) + x


class Model(nn.Module):
    def __init__(self, configs):
        super().__init__()
        self.inp = nn.Linear(configs.enc_in, configs.d_model)
        self.blocks = nn.ModuleList([PeriodBlock(configs) for _ in range(configs.e_layers)])
        self.extend = nn.Linear(configs.seq_len, configs.pred_len)
        self.out = nn.Linear(configs.d_model, configs.c_out)

    def forward(self, x_enc, x_mark_enc):
        h = self.inp(x_enc)
        for b in self.blocks:
            h = b(h)
        h = self.extend(h.transpose(1, 2)).transpose(1, 2)
        return self.out(h)
