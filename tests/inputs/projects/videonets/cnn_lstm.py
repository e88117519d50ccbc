import torch
import torch.nn as nn
import torchvision.models as models


class CNNLSTM(nn.Module):
    def __init__(self, num_classes=2, hidden=64):
        super(CNNLSTM, self).__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.lstm = nn.LSTM(input_size=32 * 16, hidden_size=hidden, num_layers=3)
        self.fc1 = nn.Linear(hidden, 32)
        self.fc2 = nn.Linear(32, num_classes)

    def forward(self, x_3d):
        hidden = None
        for t in range(x_3d.size(1)):
            x = self.cnn(x_3d[:, t, :, :, :])
            out, hidden = self.lstm(x.unsqueeze(0), hidden)
        x = torch.relu(self.fc1(out[-1, :, :]))
        x = self.fc2(x)
        return x


def pretrained_backbone():
    return models.resnet18(weights=models.ResNet18_Weights.DEFAULT)
