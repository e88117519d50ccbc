import torch
import torch.nn as nn


class Mixer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Linear(cfg["input_dim"], cfg["hidden_dim"])
        self.blocks = nn.ModuleList([nn.Linear(cfg["hidden_dim"], cfg["hidden_dim"]) for _ in range(cfg["num_layers"])])
        self.head = nn.Linear(cfg["hidden_dim"], cfg["num_classes"])

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return self.head(x)
