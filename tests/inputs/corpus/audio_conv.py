import torch.nn as nn


class M5(nn.Module):
    def __init__(self, n_input=1, n_output=35, stride=16, n_channel=8):
        super().__init__()
        self.conv1 = nn.Conv1d(n_input, n_channel, kernel_size=80, stride=stride)
        self.bn1 = nn.BatchNorm1d(n_channel)
        self.pool1 = nn.MaxPool1d(4)
        self.conv2 = nn.Conv1d(n_channel, n_channel, kernel_size=3)
        self.fc1 = nn.Linear(n_channel, n_output)

    def forward(self, x):
        x = self.pool1(self.bn1(self.conv1(x)).relu())
        x = self.conv2(x).relu()
        return self.fc1(x.mean(dim=-1))
