import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return self.net(x)


class MoE(nn.Module):
    def __init__(self, dim, num_experts, top_k):
        super().__init__()
        self.gate = nn.Linear(dim, num_experts)
        self.experts = nn.ModuleList([Expert(dim) for _ in range(num_experts)])
        self.top_k = top_k

    def forward(self, x):
        b, t, d = x.shape
        weights, chosen = F.softmax(self.gate(x), dim=-1).topk(self.top_k, dim=-1)
        stacked = torch.stack([expert(x) for expert in self.experts], dim=2)
        picked = stacked.gather(2, chosen.unsqueeze(-1).expand(b, t, self.top_k, d))
        return (picked * weights.unsqueeze(-1)).sum(dim=2)
