from typing import List, Tuple

import torch
from torch import Tensor, nn


def scatter_mean(src: Tensor, index: Tensor, dim_size: int) -> Tensor:
    out = src.new_zeros(dim_size, src.size(-1))
    count = src.new_zeros(dim_size, 1)
    out.index_add_(0, index, src)
    count.index_add_(0, index, torch.ones_like(src[:, :1]))
    return out / count.clamp(min=1)


class SAGEConv(nn.Module):
    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.lin_self = nn.Linear(in_channels, out_channels)
        self.lin_neigh = nn.Linear(in_channels, out_channels, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        row, col = edge_index
        neigh = scatter_mean(x[row], col, x.size(0))
        return self.lin_self(x) + self.lin_neigh(neigh)


class GraphSAGE(nn.Module):
    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int, dropout: float):
        super().__init__()
        dims = [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]
        self.convs = nn.ModuleList(SAGEConv(a, b) for a, b in zip(dims, dims[1:]))
        self.bns = nn.ModuleList(nn.BatchNorm1d(d) for d in dims[1:-1])
        self.dropout = dropout

    def reset_parameters(self):
        for bn in self.bns:
            bn.reset_parameters()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv, bn in zip(self.convs[:-1], self.bns):
            x = conv(x, edge_index)
            x = bn(x).relu()
            x = nn.functional.dropout(x, p=self.dropout, training=self.training)
        return self.convs[-1](x, edge_index).log_softmax(dim=-1)
