import torch
import torch.nn as nn
import torch.nn.functional as F


class TextCNN(nn.Module):
    def __init__(self, vocab_size=800, embed_dim=40, num_filters=12, num_classes=4):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.convs = nn.ModuleList([nn.Conv1d(embed_dim, num_filters, k, padding=k // 2) for k in (3, 5, 7)])
        self.batch_norm = nn.BatchNorm1d(num_filters * 3)
        self.fc = nn.Linear(num_filters * 3, num_classes)

    def forward(self, text):
        embedded = self.embedding(text).transpose(1, 2)
        feature_maps = [F.relu(conv(embedded)) for conv in self.convs]
        pooled = [F.adaptive_max_pool1d(maps, 1).squeeze(2) for maps in feature_maps]
        features = self.batch_norm(torch.cat(pooled, dim=1))
        return self.fc(features)
