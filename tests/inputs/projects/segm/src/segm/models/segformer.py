from typing import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class OverlapPatchEmbed(nn.Module):
    def __init__(self, in_chans: int, embed_dim: int, patch_size: int, stride: int):
        super().__init__()
        self.proj = nn.Conv2d(in_chans, embed_dim, patch_size, stride, patch_size // 2)
        self.norm = nn.LayerNorm(embed_dim)

    def forward(self, x: Tensor):
        x = self.proj(x)
        _, _, H, W = x.shape
        x = x.flatten(2).transpose(1, 2)
        return self.norm(x), H, W


class EfficientAttention(nn.Module):
    def __init__(self, dim: int, num_heads: int, sr_ratio: int):
        super().__init__()
        self.num_heads, self.sr_ratio = num_heads, sr_ratio
        self.scale = (dim // num_heads) ** -0.5
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, dim * 2)
        self.proj = nn.Linear(dim, dim)
        if sr_ratio > 1:
            self.sr = nn.Conv2d(dim, dim, sr_ratio, sr_ratio)
            self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor, H: int, W: int) -> Tensor:
        B, N, C = x.shape
        q = self.q(x).reshape(B, N, self.num_heads, C // self.num_heads).permute(0, 2, 1, 3)
        if self.sr_ratio > 1:
            x_ = x.permute(0, 2, 1).reshape(B, C, H, W)
            x_ = self.sr(x_).reshape(B, C, -1).permute(0, 2, 1)
            x = self.norm(x_)
        k, v = self.kv(x).reshape(B, -1, 2, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        attn = (q @ k.transpose(-2, -1)) * self.scale
        attn = attn.softmax(dim=-1)
        x = (attn @ v).transpose(1, 2).reshape(B, N, C)
        return self.proj(x)


class MixFFN(nn.Module):
    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.dwconv = nn.Conv2d(hidden, hidden, 3, 1, 1, groups=hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor, H: int, W: int) -> Tensor:
        x = self.fc1(x)
        B, N, C = x.shape
        x = self.dwconv(x.transpose(1, 2).view(B, C, H, W)).flatten(2).transpose(1, 2)
        return self.fc2(F.gelu(x))


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, sr: int):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn, self.mlp = EfficientAttention(dim, heads, sr), MixFFN(dim, dim * 4)

    def forward(self, x: Tensor, H: int, W: int) -> Tensor:
        x = x + self.attn(self.n1(x), H, W)
        return x + self.mlp(self.n2(x), H, W)


class SegFormerLite(nn.Module):
    def __init__(self, embed_dims: Sequence[int], num_heads: Sequence[int], depths: Sequence[int],
                 sr_ratios: Sequence[int], num_classes: int, decoder_dim: int = 64):
        super().__init__()
        chans = [3, *embed_dims[:-1]]
        self.patch_embeds = nn.ModuleList(
            OverlapPatchEmbed(c, d, 7 if i == 0 else 3, 4 if i == 0 else 2) for i, (c, d) in enumerate(zip(chans, embed_dims)))
        self.stages = nn.ModuleList(
            nn.ModuleList(Block(d, h, s) for _ in range(n)) for d, h, n, s in zip(embed_dims, num_heads, depths, sr_ratios))
        self.norms = nn.ModuleList(nn.LayerNorm(d) for d in embed_dims)
        self.linear = nn.ModuleList(nn.Linear(d, decoder_dim) for d in embed_dims)
        self.fuse = nn.Conv2d(decoder_dim * len(embed_dims), decoder_dim, 1, bias=False)
        self.pred = nn.Conv2d(decoder_dim, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        feats = []
        for embed, blocks, norm in zip(self.patch_embeds, self.stages, self.norms):
            x, H, W = embed(x)
            for blk in blocks:
                x = blk(x, H, W)
            x = norm(x).reshape(x.shape[0], H, W, -1).permute(0, 3, 1, 2).contiguous()
            feats.append(x)
        size = feats[0].shape[2:]
        ups = []
        for f, lin in zip(feats, self.linear):
            y = lin(f.flatten(2).transpose(1, 2)).permute(0, 2, 1).reshape(f.shape[0], -1, *f.shape[2:])
            ups.append(F.interpolate(y, size=size, mode="bilinear", align_corners=False))
        return self.pred(self.fuse(torch.cat(ups[::-1], dim=1)))
