"""Vision Transformer (Dosovitskiy et al., 2020): an image is worth 16x16 words."""

import torch
from torch import nn


class PatchEmbedding(nn.Module):
    def __init__(self, image_size=224, patch_size=16, in_channels=3, dim=192):
        super().__init__()
        self.num_patches = (image_size // patch_size) ** 2
        self.proj = nn.Conv2d(in_channels, dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, images):
        patches = self.proj(images)
        return patches.flatten(2).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        batch, tokens, dim = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * self.scale).softmax(dim=-1)
        mixed = (weights @ v).transpose(1, 2).reshape(batch, tokens, dim)
        return self.out(mixed)


class EncoderBlock(nn.Module):
    def __init__(self, dim, heads, mlp_ratio=4):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, mlp_ratio * dim),
            nn.GELU(),
            nn.Linear(mlp_ratio * dim, dim),
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, image_size=224, patch_size=16, num_classes=1000, dim=192, depth=6, heads=3):
        super().__init__()
        self.patch_embedding = PatchEmbedding(image_size, patch_size, dim=dim)
        self.class_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(torch.zeros(1, 1 + self.patch_embedding.num_patches, dim))
        self.blocks = nn.Sequential(*[EncoderBlock(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, images):
        x = self.patch_embedding(images)
        class_token = self.class_token.expand(x.size(0), -1, -1)
        x = torch.cat([class_token, x], dim=1)
        x = x + self.positions
        x = self.blocks(x)
        summary = self.norm(x)[:, 0]
        return self.head(summary)


if __name__ == "__main__":
    model = ViT().eval()
    images = torch.rand(2, 3, 224, 224)
    with torch.inference_mode():
        probabilities = model(images).softmax(dim=-1)
    confidence, label = probabilities.max(dim=-1)
    print(f"classes {label.tolist()}, confidence {[round(c, 4) for c in confidence.tolist()]}")
