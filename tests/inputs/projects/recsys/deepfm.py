import numpy as np
import torch
import torch.nn as nn


class FeaturesLinear(torch.nn.Module):
    def __init__(self, field_dims, output_dim=1):
        super().__init__()
        self.fc = torch.nn.Embedding(sum(field_dims), output_dim)
        self.bias = torch.nn.Parameter(torch.zeros((output_dim,)))
        self.offsets = np.array((0, *np.cumsum(field_dims)[:-1]), dtype=np.int64)

    def forward(self, x):
        x = x + x.new_tensor(self.offsets).unsqueeze(0)
        return torch.sum(self.fc(x), dim=1) + self.bias


class DeepFM(nn.Module):
    """x: long tensor (batch, num_fields)"""

    def __init__(self, field_dims, embed_dim, mlp_dims, dropout):
        super().__init__()
        self.linear = FeaturesLinear(field_dims)
        self.embedding = nn.Embedding(sum(field_dims), embed_dim)
        self.offsets = np.array((0, *np.cumsum(field_dims)[:-1]), dtype=np.int64)
        self.embed_output_dim = len(field_dims) * embed_dim
        layers, last = [], self.embed_output_dim
        for d in mlp_dims:
            layers += [nn.Linear(last, d), nn.BatchNorm1d(d), nn.ReLU(), nn.Dropout(p=dropout)]
            last = d
        self.mlp = nn.Sequential(*layers, nn.Linear(last, 1))

    def forward(self, x):
        embed_x = self.embedding(x + x.new_tensor(self.offsets).unsqueeze(0))
        square_of_sum = embed_x.sum(dim=1) ** 2
        sum_of_square = (embed_x ** 2).sum(dim=1)
        fm = 0.5 * (square_of_sum - sum_of_square).sum(dim=1, keepdim=True)
        y = self.linear(x) + fm + self.mlp(embed_x.view(-1, self.embed_output_dim))
        return torch.sigmoid(y.squeeze(1))
