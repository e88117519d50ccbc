"""Graph property prediction: GIN with edge features and sum pooling (no torch_geometric needed)"""
import torch
import torch.nn as nn
from dataclasses import dataclass


@dataclass
class Batch:
    atom: torch.Tensor
    bond: torch.Tensor
    edge_index: torch.Tensor
    batch: torch.Tensor
    num_graphs: int


class GINLayer(nn.Module):
    def __init__(self, dim, n_bonds):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.bond = nn.Embedding(n_bonds, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.BatchNorm1d(2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, h, edge_index, bond):
        src, dst = edge_index[0], edge_index[1]
        msg = torch.relu(h[src] + self.bond(bond))
        agg = torch.zeros_like(h).index_add(0, dst, msg)
        return self.mlp((1 + self.eps) * h + agg)


class GIN(nn.Module):
    def __init__(self, n_atoms=119, n_bonds=5, dim=64, depth=3, tasks=1):
        super().__init__()
        self.atom = nn.Embedding(n_atoms, dim)
        self.layers = nn.ModuleList([GINLayer(dim, n_bonds) for _ in range(depth)])
        self.out = nn.Linear(dim, tasks)

    def forward(self, data):
        h = self.atom(data.atom)
        for layer in self.layers:
            h = h + layer(h, data.edge_index, data.bond)
        pooled = h.new_zeros(data.num_graphs, h.size(1)).index_add(0, data.batch, h)
        return self.out(pooled)


if __name__ == '__main__':
    n, e = 24, 50
    data = Batch(torch.randint(0, 119, (n,)), torch.randint(0, 5, (e,)), torch.randint(0, n, (2, e)),
                 torch.arange(n) // 8, 3)
    model = GIN()
    pred = model(data)
    print(pred.shape)
