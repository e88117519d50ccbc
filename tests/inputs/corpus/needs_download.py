import urllib.request

import torch.nn as nn


class Student(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes))

    def forward(self, x):
        return self.net(x)


if __name__ == "__main__":
    weights = urllib.request.urlopen("http://example.invalid/weights.pt").read()
    model = Student()
    open("weights.pt", "wb").write(weights)
