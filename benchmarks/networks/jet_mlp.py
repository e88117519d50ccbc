"""The jet-tagging MLP (Duarte et al., 2018): 16 features of a jet, five classes."""

import torch
from torch import nn


class JetMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(16, 64)
        self.fc2 = nn.Linear(64, 32)
        self.fc3 = nn.Linear(32, 32)
        self.fc4 = nn.Linear(32, 5)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        x = torch.relu(self.fc3(x))
        return self.fc4(x)


if __name__ == "__main__":
    print(JetMLP()(torch.randn(4, 16)).softmax(dim=-1))
