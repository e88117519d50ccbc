import torch
import torch.nn as nn


class GCNLayer(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.linear = nn.Linear(cin, cout, bias=False)

    def forward(self, x, edge_index):
        source, target = edge_index
        h = self.linear(x)
        return torch.zeros_like(h).index_add(0, target, h[source])


class GCN(nn.Module):
    def __init__(self, in_features=12, hidden=16, classes=4):
        super().__init__()
        self.conv1, self.conv2 = GCNLayer(in_features, hidden), GCNLayer(hidden, classes)

    def forward(self, x, edge_index):
        return self.conv2(torch.relu(self.conv1(x, edge_index)), edge_index)


if __name__ == "__main__":
    x = torch.randn(9, 12)
    edge_index = torch.randint(0, 9, (2, 30))
    print(GCN()(x, edge_index).shape)
