"""Two encoders, one space: images by patches, captions by tokens."""
import math
from typing import Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        assert width % heads == 0, f"width {width} must be divisible by heads {heads}"
        self.heads = heads
        self.in_proj = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor, causal: bool) -> Tensor:
        b, n, w = x.shape
        q, k, v = self.in_proj(x).view(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.out_proj(y.transpose(1, 2).reshape(b, n, w))


class Tower(nn.Module):
    """A stack of pre-norm blocks; `causal` for text."""

    def __init__(self, width: int, layers: int, heads: int, causal: bool):
        super().__init__()
        self.causal = causal
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * layers)])
        self.attns = nn.ModuleList([SelfAttention(width, heads) for _ in range(layers)])
        self.mlps = nn.ModuleList([nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
                                   for _ in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        norms = iter(self.norms)
        for attn, mlp in zip(self.attns, self.mlps):
            x = x + attn(next(norms)(x), self.causal)
            x = x + mlp(next(norms)(x))
        return x


class ImageEncoder(nn.Module):
    def __init__(self, resolution: int, patch: int, width: int, layers: int, out: int):
        super().__init__()
        grid = resolution // patch
        self.patches = nn.Conv2d(3, width, patch, stride=patch, bias=False)
        self.summary = nn.Parameter(torch.randn(1, 1, width) * width ** -0.5)
        self.where = nn.Parameter(torch.randn(1, grid * grid + 1, width) * width ** -0.5)
        self.tower = Tower(width, layers, width // 64, causal=False)
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, out, bias=False)

    def forward(self, pixels: Tensor) -> Tensor:
        tokens = self.patches(pixels).flatten(2).mT
        summary = self.summary.expand(tokens.shape[0], -1, -1)
        tokens = torch.cat([summary, tokens], dim=1) + self.where
        tokens = self.tower(tokens)
        return self.project(self.norm(tokens[:, 0]))


class TextEncoder(nn.Module):
    def __init__(self, vocab: int, context: int, width: int, heads: int, layers: int, out: int):
        super().__init__()
        self.words = nn.Embedding(vocab, width)
        self.where = nn.Parameter(torch.empty(context, width).normal_(std=0.01))
        self.tower = Tower(width, layers, heads, causal=True)
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, out, bias=False)

    def forward(self, text: Tensor) -> Tensor:
        x = self.words(text) + self.where
        x = self.norm(self.tower(x))
        end = text.argmax(dim=-1)  # the end token has the largest number
        picked = x[torch.arange(x.shape[0]), end]
        return self.project(picked)


class CLIP(nn.Module):
    def __init__(self, embed_dim: int, image_resolution: int, vision_layers: int, vision_width: int,
                 vision_patch_size: int, context_length: int, vocab_size: int, transformer_width: int,
                 transformer_heads: int, transformer_layers: int):
        super().__init__()
        self.image = ImageEncoder(image_resolution, vision_patch_size, vision_width, vision_layers, embed_dim)
        self.text = TextEncoder(vocab_size, context_length, transformer_width, transformer_heads, transformer_layers,
                                embed_dim)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, images: Tensor, texts: Tensor) -> Tuple[Tensor, Tensor]:
        i = F.normalize(self.image(images), dim=-1)
        t = F.normalize(self.text(texts), dim=-1)
        per_image = self.log_temperature.exp() * i @ t.mT
        return per_image, per_image.mT
