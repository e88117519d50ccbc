import torch
import torch.nn as nn
import torch.nn.functional as F


class PrototypeHead(nn.Module):
    def __init__(self, in_dim, out_dim, nlayers=3, hidden_dim=512, bottleneck_dim=64, use_bn=False):
        super().__init__()
        dims = [in_dim] + [hidden_dim] * (max(nlayers, 1) - 1) + [bottleneck_dim]
        layers = []
        for a, b in zip(dims[:-1], dims[1:]):
            layers.append(nn.Linear(a, b))
            if b == hidden_dim and use_bn:
                layers.append(nn.BatchNorm1d(b))
            if b != bottleneck_dim:
                layers.append(nn.GELU())
        self.mlp = nn.Sequential(*layers)
        self.prototypes = nn.utils.weight_norm(nn.Linear(bottleneck_dim, out_dim, bias=False))
        self.prototypes.weight_g.data.fill_(1)
        self.prototypes.weight_g.requires_grad = False

    def forward(self, x):
        z = F.normalize(self.mlp(x), dim=-1)
        return self.prototypes(z)


class Crops(nn.Module):
    """Crops of one size go through the backbone at once, then all through the head."""

    def __init__(self, backbone, head):
        super(Crops, self).__init__()
        backbone.fc = nn.Identity()
        self.backbone, self.head = backbone, head

    def forward(self, crops):
        if not isinstance(crops, list):
            crops = [crops]
        by_size = {}
        for crop in crops:
            by_size.setdefault(crop.shape[-1], []).append(crop)
        features = [self.backbone(torch.cat(same)) for same in by_size.values()]
        return self.head(torch.cat(features))
