"""Topic classification with torch's own nn.TransformerEncoder and a padding mask."""

import math

import torch
from torch import nn


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=512):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        frequency = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        table = torch.zeros(max_len, d_model)
        table[:, 0::2] = torch.sin(position * frequency)
        table[:, 1::2] = torch.cos(position * frequency)
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[: x.size(1)]


class TopicClassifier(nn.Module):
    def __init__(self, vocab_size=8000, d_model=128, nhead=4, num_layers=3, num_topics=20, pad_id=0):
        super().__init__()
        self.pad_id = pad_id
        self.scale = math.sqrt(d_model)
        self.embed = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)
        self.position = PositionalEncoding(d_model)
        layer = nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward=4 * d_model, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers)
        self.head = nn.Linear(d_model, num_topics)

    def forward(self, ids):
        padding = ids == self.pad_id
        x = self.position(self.embed(ids) * self.scale)
        x = self.encoder(x, src_key_padding_mask=padding)

        keep = (~padding).unsqueeze(-1).to(x.dtype)
        pooled = (x * keep).sum(dim=1) / keep.sum(dim=1).clamp(min=1)
        return self.head(pooled)


if __name__ == "__main__":
    torch.manual_seed(0)
    ids = torch.randint(1, 8000, (3, 48))
    ids[1, 30:] = 0
    ids[2, 12:] = 0

    model = TopicClassifier()
    topics = model(ids)
    print("topics:", topics.argmax(dim=-1).tolist())
