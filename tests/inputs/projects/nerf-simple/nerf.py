import torch
import torch.nn as nn
import torch.nn.functional as F


class FourierFeatures(nn.Module):
    def __init__(self, n_freqs, log=True):
        super().__init__()
        bands = 2. ** torch.linspace(0., n_freqs - 1, n_freqs) if log else torch.linspace(1., 2. ** (n_freqs - 1), n_freqs)
        self.register_buffer('bands', bands)

    def forward(self, x):
        y = x[..., None, :] * self.bands[:, None]
        return torch.cat([x, torch.sin(y).flatten(-2), torch.cos(y).flatten(-2)], dim=-1)


class RadianceField(nn.Module):
    def __init__(self, D, W, skips, L_xyz=10, L_dir=4):
        super().__init__()
        self.skips = skips
        self.enc_xyz, self.enc_dir = FourierFeatures(L_xyz), FourierFeatures(L_dir)
        cx, cd = 3 + 6 * L_xyz, 3 + 6 * L_dir
        self.pts = nn.ModuleList([nn.Linear(cx, W)] + [nn.Linear(W + cx if i in skips else W, W) for i in range(D - 1)])
        self.sigma, self.feature = nn.Linear(W, 1), nn.Linear(W, W)
        self.view, self.rgb = nn.Linear(W + cd, W // 2), nn.Linear(W // 2, 3)

    def forward(self, pts, dirs):
        x = self.enc_xyz(pts)
        h = x
        for i, layer in enumerate(self.pts):
            h = F.relu(layer(h))
            if i in self.skips:
                h = torch.cat([x, h], -1)
        sigma = self.sigma(h)
        d = self.enc_dir(dirs)
        h = F.relu(self.view(torch.cat([self.feature(h), d], -1)))
        return torch.cat([torch.sigmoid(self.rgb(h)), sigma], -1)


def volume_render(raw, z_vals):
    delta = torch.cat([z_vals[..., 1:] - z_vals[..., :-1], torch.full_like(z_vals[..., :1], 1e10)], -1)
    alpha = 1. - torch.exp(-F.relu(raw[..., 3]) * delta)
    trans = torch.cumprod(torch.cat([torch.ones_like(alpha[..., :1]), 1. - alpha + 1e-10], -1), -1)[..., :-1]
    weights = alpha * trans
    return (weights[..., None] * raw[..., :3]).sum(-2)


class Renderer(nn.Module):
    def __init__(self, coarse, near=2., far=6., n_samples=32):
        super().__init__()
        self.coarse = coarse
        self.near, self.far, self.n_samples = near, far, n_samples

    def forward(self, rays_o, rays_d):
        t = torch.linspace(0., 1., steps=self.n_samples, device=rays_o.device)
        z = self.near * (1. - t) + self.far * t
        z = z.expand([rays_o.shape[0], self.n_samples])
        pts = rays_o[:, None, :] + rays_d[:, None, :] * z[..., None]
        dirs = (rays_d / rays_d.norm(dim=-1, keepdim=True))[:, None].expand(pts.shape)
        raw = self.coarse(pts, dirs)
        return volume_render(raw, z)
