import torch
import torch.nn as nn
import torch.nn.functional as F


class TNet(nn.Module):
    def __init__(self, k=3):
        super().__init__()
        self.k = k
        self.conv = nn.Conv1d(k, 32, 1)
        self.bn = nn.BatchNorm1d(32)
        self.fc = nn.Linear(32, k * k)

    def forward(self, x):
        x = F.relu(self.bn(self.conv(x)))
        x = torch.max(x, 2)[0]
        matrix = self.fc(x).view(-1, self.k, self.k)
        return matrix + torch.eye(self.k, device=x.device)


class PointNet(nn.Module):
    def __init__(self, num_classes=8):
        super().__init__()
        self.tnet = TNet(3)
        self.conv1 = nn.Conv1d(3, 32, 1)
        self.conv2 = nn.Conv1d(32, 64, 1)
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, num_classes)

    def forward(self, points):
        transform = self.tnet(points)
        points = torch.bmm(transform, points)
        x = F.relu(self.conv1(points))
        x = F.relu(self.conv2(x))
        x = x.max(dim=2).values
        return self.fc2(F.relu(self.fc1(x)))


if __name__ == "__main__":
    print(PointNet()(torch.randn(4, 3, 128)).shape)
