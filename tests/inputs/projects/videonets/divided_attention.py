import torch
import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv, self.out = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attn = (q @ k.transpose(-1, -2) * self.scale).softmax(dim=-1)
        return self.out((attn @ v).transpose(1, 2).reshape(b, n, -1))


class VideoTransformer(nn.Module):
    def __init__(self, *, dim, num_frames, num_classes, image_size=64, patch_size=16, channels=3, depth=2, heads=4):
        super().__init__()
        n = (image_size // patch_size) ** 2
        self.patch_size = patch_size
        self.to_patch = nn.Linear(channels * patch_size ** 2, dim)
        self.pos = nn.Parameter(torch.randn(1, num_frames, n, dim))
        self.layers = nn.ModuleList(nn.ModuleList([Attention(dim, heads), Attention(dim, heads), nn.Linear(dim, dim)]) for _ in range(depth))
        self.head = nn.Linear(dim, num_classes)

    def forward(self, video):
        b, f, _, h, w = video.shape
        p = self.patch_size
        tokens = video.unfold(3, p, p).unfold(4, p, p)  # b f c h w p p
        tokens = tokens.permute(0, 1, 3, 4, 5, 6, 2).reshape(b, f, (h // p) * (w // p), -1)
        x = self.to_patch(tokens) + self.pos[:, :f]
        for time_attn, space_attn, ff in self.layers:
            t = x.transpose(1, 2).flatten(0, 1)
            x = x + time_attn(t).unflatten(0, (b, -1)).transpose(1, 2)
            s = x.flatten(0, 1)
            x = x + space_attn(s).unflatten(0, (b, f))
            x = x + ff(x)
        return self.head(x.mean(dim=(1, 2)))
