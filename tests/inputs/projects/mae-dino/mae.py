"""Masked autoencoder without any model library."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from util.pos_embed import get_2d_sincos_pos_embed


class Layer(nn.Module):
    def __init__(self, dim, heads, mlp_ratio):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.fc1, self.fc2 = nn.Linear(dim, int(dim * mlp_ratio)), nn.Linear(int(dim * mlp_ratio), dim)

    def forward(self, x):
        y = self.norm1(x)
        y, _ = self.attn(y, y, y, need_weights=False)
        x = x + y
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


def fixed_positions(dim, side):
    return nn.Parameter(torch.from_numpy(get_2d_sincos_pos_embed(dim, side)).float()[None], requires_grad=False)


class MAE(nn.Module):
    def __init__(self, img_size, patch_size, embed_dim, depth, num_heads, decoder_embed_dim, decoder_depth,
                 decoder_num_heads, mlp_ratio=4., norm_pix_loss=False):
        super().__init__()
        self.patch_size, self.norm_pix_loss = patch_size, norm_pix_loss
        side = img_size // patch_size
        self.embed = nn.Linear(3 * patch_size ** 2, embed_dim)
        self.pos = fixed_positions(embed_dim, side)
        self.encoder = nn.ModuleList([Layer(embed_dim, num_heads, mlp_ratio) for _ in range(depth)])
        self.norm = nn.LayerNorm(embed_dim)
        self.bridge = nn.Linear(embed_dim, decoder_embed_dim)
        self.mask_token = nn.Parameter(torch.zeros(decoder_embed_dim))
        self.decoder_pos = fixed_positions(decoder_embed_dim, side)
        self.decoder = nn.ModuleList([Layer(decoder_embed_dim, decoder_num_heads, mlp_ratio) for _ in range(decoder_depth)])
        self.to_pixels = nn.Linear(decoder_embed_dim, 3 * patch_size ** 2)

    def patches(self, imgs):
        assert imgs.shape[-1] == imgs.shape[-2] and imgs.shape[-1] % self.patch_size == 0
        return F.unfold(imgs, self.patch_size, stride=self.patch_size).transpose(1, 2)

    def split(self, n, l, mask_ratio):
        """who stays, who goes: a random order, cut"""
        order = torch.rand(n, l).argsort(dim=1)
        keep = int(l * (1 - mask_ratio))
        return order[:, :keep], order[:, keep:]

    def encode(self, patches, stays):
        x = self.embed(patches) + self.pos
        x = torch.take_along_dim(x, stays[:, :, None], dim=1)
        for layer in self.encoder:
            x = layer(x)
        return self.norm(x)

    def decode(self, latent, stays, goes):
        n, l = latent.shape[0], stays.shape[1] + goes.shape[1]
        visible = self.bridge(latent)
        full = self.mask_token.expand(n, l, -1).scatter(1, stays[:, :, None].expand_as(visible), visible)
        full = full + self.decoder_pos
        for layer in self.decoder:
            full = layer(full)
        return self.to_pixels(full)

    def forward(self, imgs, mask_ratio=0.75):
        target = self.patches(imgs)
        n, l, _ = target.shape
        stays, goes = self.split(n, l, mask_ratio)
        latent = self.encode(target, stays)
        pred = self.decode(latent, stays, goes)
        if self.norm_pix_loss:
            target = (target - target.mean(-1, keepdim=True)) / (target.var(-1, keepdim=True) + 1e-6).sqrt()
        error = (pred - target).square().mean(dim=-1)
        loss = error.gather(1, goes).mean()
        return loss, pred
