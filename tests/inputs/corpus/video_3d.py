import torch.nn as nn


class C3D(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv3d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(8, 16, 3, padding=1), nn.AdaptiveAvgPool3d(1)
        )
        self.fc = nn.Linear(16, num_classes)

    def forward(self, clip):
        return self.fc(self.features(clip).flatten(1))
