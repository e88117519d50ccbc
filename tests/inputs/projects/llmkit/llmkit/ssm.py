"""Selective state spaces, one plain loop over time instead of the CUDA scan."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from .config import SSMConfig

try:
    from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
except ModuleNotFoundError:
    selective_scan_fn = None


class SelectiveBlock(nn.Module):
    def __init__(self, cfg: SSMConfig):
        super().__init__()
        self.cfg = cfg
        self.in_proj = nn.Linear(cfg.d_model, cfg.d_inner * 2, bias=False)
        self.conv1d = nn.Conv1d(cfg.d_inner, cfg.d_inner, cfg.d_conv, groups=cfg.d_inner, padding=cfg.d_conv - 1)
        self.x_proj = nn.Linear(cfg.d_inner, cfg.dt_rank + cfg.d_state * 2, bias=False)
        self.dt_proj = nn.Linear(cfg.dt_rank, cfg.d_inner)
        A = torch.arange(1, cfg.d_state + 1).float().repeat(cfg.d_inner, 1)
        self.A_log = nn.Parameter(torch.log(A))
        self.D = nn.Parameter(torch.ones(cfg.d_inner))
        self.out_proj = nn.Linear(cfg.d_inner, cfg.d_model, bias=False)

    def forward(self, x):
        (b, l, d) = x.shape
        x, res = self.in_proj(x).split([self.cfg.d_inner, self.cfg.d_inner], dim=-1)
        x = self.conv1d(x.transpose(1, 2))[:, :, :l].transpose(1, 2)
        x = F.silu(x)
        y = self.scan(x)
        y = y * F.silu(res)
        return self.out_proj(y)

    def scan(self, u):
        A = -torch.exp(self.A_log.float())
        delta, B, C = self.x_proj(u).split([self.cfg.dt_rank, self.cfg.d_state, self.cfg.d_state], dim=-1)
        delta = F.softplus(self.dt_proj(delta))
        decay = torch.exp(torch.einsum("bld,dn->bldn", delta, A))
        drive = torch.einsum("bld,bln,bld->bldn", delta, B, u)
        state = u.new_zeros(u.shape[0], u.shape[2], self.cfg.d_state)
        ys = []
        for t in range(u.shape[1]):
            state = decay[:, t] * state + drive[:, t]
            ys.append(torch.einsum("bdn,bn->bd", state, C[:, t]))
        return torch.stack(ys, dim=1) + u * self.D


class SSM(nn.Module):
    def __init__(self, config: SSMConfig):
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.layers = nn.ModuleList([SelectiveBlock(config) for _ in range(config.n_layer)])
        self.norms = nn.ModuleList([nn.LayerNorm(config.d_model) for _ in range(config.n_layer)])
        self.norm_f = nn.LayerNorm(config.d_model)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.lm_head.weight = self.embedding.weight

    def forward(self, input_ids):
        x = self.embedding(input_ids)
        for norm, layer in zip(self.norms, self.layers):
            x = layer(norm(x)) + x
        return self.lm_head(self.norm_f(x))

    @staticmethod
    def from_pretrained(name):
        from transformers.utils.hub import cached_file
        raise NotImplementedError(cached_file)
