from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor, nn


class Tower(nn.Module):
    def __init__(self, cardinalities: Dict[str, int], n_dense: int, dim: int):
        super().__init__()
        self.tables = nn.ModuleDict({name: nn.Embedding(n, dim) for name, n in cardinalities.items()})
        self.dense = nn.Linear(n_dense, dim)
        self.mix = nn.Sequential(nn.LayerNorm(dim * (len(cardinalities) + 1)), nn.Linear(dim * (len(cardinalities) + 1), dim))

    def forward(self, sparse: Dict[str, Tensor], dense: Tensor) -> Tensor:
        parts = [table(sparse[name]) for name, table in self.tables.items()]
        parts.append(torch.relu(self.dense(dense)))
        return nn.functional.normalize(self.mix(torch.cat(parts, dim=-1)), dim=-1)


class TwoTower(nn.Module):
    def __init__(self, dim: int = 32, temperature: float = 0.07):
        super().__init__()
        self.user = Tower({"user_id": 1000, "country": 60}, n_dense=5, dim=dim)
        self.item = Tower({"item_id": 5000, "category": 40}, n_dense=8, dim=dim)
        self.temperature = temperature

    def forward(self, user_sparse: Dict[str, Tensor], user_dense: Tensor, item_sparse: Dict[str, Tensor],
                item_dense: Tensor) -> Tensor:
        u = self.user(user_sparse, user_dense)
        v = self.item(item_sparse, item_dense)
        logits = u @ v.t() / self.temperature
        labels = torch.arange(logits.size(0), device=logits.device)
        return nn.functional.cross_entropy(logits, labels)
