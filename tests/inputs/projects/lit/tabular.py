"""Own small trainer: no lightning needed."""
from abc import ABC, abstractmethod

import torch
from torch import nn


class BaseTask(nn.Module, ABC):
    lr = 1e-3

    @abstractmethod
    def loss(self, batch): ...

    def training_step(self, batch, idx):
        return self.loss(batch)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class FeatureTokenizer(nn.Module):
    def __init__(self, n_num: int, cats: list[int], dim: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(n_num, dim)), nn.Parameter(torch.randn(n_num, dim))
        self.cats = nn.ModuleList([nn.Embedding(c, dim) for c in cats])

    def forward(self, x_num, x_cat):
        tokens = [x_num[..., None] * self.weight + self.bias]
        tokens += [emb(x_cat[:, i])[:, None] for i, emb in enumerate(self.cats)]
        return torch.cat(tokens, 1)


class FTTransformer(BaseTask):
    def __init__(self, n_num: int, cats: list[int], dim: int = 64, out: int = 1):
        super().__init__()
        self.tokenizer = FeatureTokenizer(n_num, cats, dim)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(dim, 8, 2 * dim, batch_first=True), 2)
        self.head = nn.Linear(dim, out)

    def forward(self, x_num, x_cat):
        x = self.tokenizer(x_num, x_cat)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1)
        return self.head(self.body(x)[:, 0])

    def loss(self, batch):
        return nn.functional.mse_loss(self(batch["num"], batch["cat"]), batch["y"])
