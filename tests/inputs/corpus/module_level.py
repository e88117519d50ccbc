import torch.nn as nn

classifier = nn.Sequential(
    nn.Flatten(), nn.Linear(28 * 28, 64), nn.ReLU(), nn.Linear(64, 10)
)
