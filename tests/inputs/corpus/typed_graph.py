"""A layer of a graph network that takes some of its inputs by name."""

import torch
from torch import nn


class TypedMessages(nn.Module):
    def __init__(self, node_dim=12, edge_dim=6):
        super().__init__()
        self.nodes, self.edges = nn.Linear(node_dim, 20), nn.Linear(edge_dim, 20)

    def forward(self, x, edge_attr, edge_index, **kwargs):
        kept = kwargs["edge_labels"] == 1
        source, target = edge_index[:, kept]
        sent = self.nodes(x)[source] * self.edges(edge_attr)[kept]
        out = torch.zeros(x.shape[0], 20).index_add(0, target, sent)
        return out * kwargs.get("gain", 1.0)
