"""A multilayer perceptron for jet tagging: sixteen features in, five classes out."""

import torch
from torch import nn


class MLP(nn.Module):
    def __init__(self, in_features=16, hidden=(64, 32, 32), num_classes=5, dropout=0.1):
        super().__init__()
        widths = [in_features, *hidden]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(widths[-1], num_classes)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
            x = self.dropout(x)
        logits = self.head(x)
        return logits


if __name__ == "__main__":
    torch.manual_seed(0)
    model = MLP()
    jets = torch.randn(32, 16)
    labels = torch.randint(0, 5, (32,))

    logits = model(jets)
    loss = nn.functional.cross_entropy(logits, labels)
    print(f"loss before training: {loss.item():.3f}")
