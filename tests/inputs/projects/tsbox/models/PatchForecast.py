import torch
from torch import nn


class RevIN(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.gain, self.shift = nn.Parameter(torch.ones(num_features)), nn.Parameter(torch.zeros(num_features))

    def forward(self, x, mode):
        if mode == 'norm':
            self.mean = x.mean(1, keepdim=True).detach()
            self.stdev = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + self.eps).detach()
            return (x - self.mean) / self.stdev * self.gain + self.shift
        elif mode == 'denorm':
            return (x - self.shift) / (self.gain + self.eps ** 2) * self.stdev + self.mean
        raise NotImplementedError


class Model(nn.Module):
    def __init__(self, configs):
        super().__init__()
        self.patch_len, self.stride = configs.patch_len, configs.stride
        n = (configs.seq_len - self.patch_len) // self.stride + 1
        self.revin = RevIN(configs.enc_in)
        self.embed = nn.Linear(self.patch_len, configs.d_model)
        self.pos = nn.Parameter(torch.zeros(n, configs.d_model))
        layer = nn.TransformerEncoderLayer(configs.d_model, configs.n_heads, configs.d_ff, configs.dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, configs.e_layers)
        self.head = nn.Sequential(nn.Flatten(-2), nn.Linear(n * configs.d_model, configs.pred_len))

    def forward(self, x_enc, x_mark_enc=None, x_dec=None, x_mark_dec=None):
        z = self.revin(x_enc, 'norm')
        z = z.transpose(1, 2)
        B, C, L = z.shape
        z = z.unfold(dimension=-1, size=self.patch_len, step=self.stride)
        z = self.embed(z) + self.pos
        z = z.reshape(B * C, z.shape[2], z.shape[3])
        z = self.encoder(z)
        z = z.reshape(B, C, z.shape[1], z.shape[2])
        y = self.head(z).transpose(1, 2)
        return self.revin(y, 'denorm')
