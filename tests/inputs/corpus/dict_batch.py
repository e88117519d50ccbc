import torch
import torch.nn as nn


class ClickModel(nn.Module):
    """A recommender that takes its batch as a dict."""

    def __init__(self, num_users=300, num_items=500, dim=16):
        super().__init__()
        self.users, self.items = nn.Embedding(num_users, dim), nn.Embedding(num_items, dim)
        self.dense = nn.Linear(13, dim)
        self.mlp = nn.Sequential(nn.Linear(3 * dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, batch):
        user = self.users(batch["user_id"])
        item = self.items(batch["item_id"])
        dense = self.dense(batch["dense"])
        return self.mlp(torch.cat([user, item, dense], dim=-1)).squeeze(-1)
