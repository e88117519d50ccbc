import torch
import torch.nn as nn


def farthest_point_sample(xyz, npoint):
    B, N, _ = xyz.shape
    centroids = torch.zeros(B, npoint, dtype=torch.long)
    distance = torch.ones(B, N) * 1e10
    farthest = torch.randint(0, N, (B,), dtype=torch.long)
    rows = torch.arange(B, dtype=torch.long)
    for i in range(npoint):
        centroids[:, i] = farthest
        centre = xyz[rows, farthest, :].view(B, 1, 3)
        dist = torch.sum((xyz - centre) ** 2, -1)
        mask = dist < distance
        distance[mask] = dist[mask]
        farthest = torch.max(distance, -1)[1]
    return centroids


def index_points(points, idx):
    rows = torch.arange(points.shape[0]).view(-1, *[1] * (idx.dim() - 1))
    return points[rows, idx]


class SetAbstraction(nn.Module):
    def __init__(self, npoint, nsample, in_channel, mlp):
        super().__init__()
        self.npoint, self.nsample = npoint, nsample
        self.convs = nn.ModuleList()
        last = in_channel + 3
        for out in mlp:
            self.convs.append(nn.Sequential(nn.Conv2d(last, out, 1), nn.BatchNorm2d(out), nn.ReLU()))
            last = out

    def forward(self, xyz, feats):
        new_xyz = index_points(xyz, farthest_point_sample(xyz, self.npoint))
        group = torch.cdist(new_xyz, xyz).argsort(dim=-1)[:, :, : self.nsample]
        local = index_points(xyz, group) - new_xyz.unsqueeze(2)
        if feats is not None:
            local = torch.cat([local, index_points(feats, group)], dim=-1)
        local = local.permute(0, 3, 2, 1)
        for conv in self.convs:
            local = conv(local)
        return new_xyz, local.max(2)[0].transpose(1, 2)


class PointNet2(nn.Module):
    def __init__(self, num_class, normal_channel):
        super().__init__()
        extra = 3 if normal_channel else 0
        self.normal_channel = normal_channel
        self.sa1 = SetAbstraction(64, 16, extra, [32, 64])
        self.sa2 = SetAbstraction(16, 8, 64, [64, 128])
        self.cls = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.4), nn.Linear(64, num_class))

    def forward(self, xyz):
        feats = None
        if self.normal_channel:
            feats = xyz[:, :, 3:]
            xyz = xyz[:, :, :3]
        xyz, feats = self.sa1(xyz, feats)
        xyz, feats = self.sa2(xyz, feats)
        return self.cls(feats.max(1)[0])
