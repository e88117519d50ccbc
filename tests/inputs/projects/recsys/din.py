import torch
import torch.nn as nn


class Dice(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.bn = nn.BatchNorm1d(dim)
        self.alpha = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        p = torch.sigmoid(self.bn(x))
        return p * x + (1 - p) * self.alpha * x


class InterestAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(4 * dim, 36), nn.PReLU(), nn.Linear(36, 1))

    def forward(self, target, history, mask):
        target = target.unsqueeze(1).expand_as(history)
        feats = torch.cat([target, history, target - history, target * history], -1)
        weight = self.score(feats).squeeze(-1)
        weight = weight * mask
        return (weight.unsqueeze(-1) * history).sum(1)


class DIN(nn.Module):
    def __init__(self, n_items, n_cats, dim):
        super().__init__()
        self.item, self.cat = nn.Embedding(n_items, dim), nn.Embedding(n_cats, dim)
        self.attn = InterestAttention(2 * dim)
        self.fc = nn.Sequential(nn.Linear(4 * dim, 80), Dice(80), nn.Linear(80, 1))

    def forward(self, hist_items, hist_cats, target_item, target_cat):
        hist = torch.cat([self.item(hist_items), self.cat(hist_cats)], dim=-1)
        tgt = torch.cat([self.item(target_item), self.cat(target_cat)], dim=-1)
        mask = (hist_items > 0).float()
        interest = self.attn(tgt, hist, mask)
        return self.fc(torch.cat([interest, tgt], dim=-1)).squeeze(-1)
