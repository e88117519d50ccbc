import torch
import torch.nn as nn
from einops import rearrange, repeat


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv, self.out = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = rearrange(self.qkv(x), 'b n (three h d) -> three b h n d', three=3, h=self.heads)
        attn = (q @ k.transpose(-1, -2) * self.scale).softmax(dim=-1)
        return self.out(rearrange(attn @ v, 'b h n d -> b n (h d)'))


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
        tokens = rearrange(video, 'b f c (h p1) (w p2) -> b f (h w) (p1 p2 c)', p1=p, p2=p)
        x = self.to_patch(tokens) + self.pos[:, :f]
        for time_attn, space_attn, ff in self.layers:
            t = rearrange(x, 'b f n d -> (b n) f d')
            x = x + rearrange(time_attn(t), '(b n) f d -> b f n d', b=b)
            s = rearrange(x, 'b f n d -> (b f) n d')
            x = x + rearrange(space_attn(s), '(b f) n d -> b f n d', b=b)
            x = x + ff(x)
        return self.head(x.mean(dim=(1, 2)))
