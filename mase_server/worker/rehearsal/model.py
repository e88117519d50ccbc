"""A small model that a waiting trace child traces, so that it has done once what every trace does."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Attention and a small network, each with a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take and return a sequence, f32[B, T, width]."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before(x)).split(width, dim=2)
        q, k, v = (each.view(batch, length, self.heads, -1).transpose(1, 2) for each in (q, k, v))
        mask = torch.tril(torch.ones(length, length)).bool()
        scores = (q @ k.transpose(-2, -1) / width**0.5).masked_fill(~mask, float("-inf"))
        mixed = (functional.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        out: torch.Tensor = x + self.mlp(self.between(x))
        return out


class Rehearsal(nn.Module):
    """Convolutions, an embedding and a block: the operations that most models have."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2))
        self.embed = nn.Embedding(32, width)
        self.block, self.head = Block(width, 4), nn.Linear(width, 10)

    def forward(self, image: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Take f32[B, 3, H, W] and i64[B, T]; return f32[B, 10]."""
        seen = self.stem(image).flatten(2).transpose(1, 2)
        x = torch.cat([seen, self.embed(tokens)], dim=1)
        logits: torch.Tensor = self.head(self.block(x).mean(dim=1))
        return logits


class Searched(nn.Module):
    """Nobody calls it: its inputs are searched, and only an error tells the size of the picture."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 5), nn.Linear(4 * 12 * 12, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Take f32[B, 1, 28, 28]; return f32[B, 10]."""
        logits: torch.Tensor = self.head(functional.max_pool2d(self.conv(image), 2).flatten(1))
        return logits


if __name__ == "__main__":
    model = Rehearsal()
    logits = model(torch.randn(2, 3, 8, 8), torch.randint(0, 32, (2, 6)))
    loss = functional.cross_entropy(logits, torch.tensor([1, 2]))
