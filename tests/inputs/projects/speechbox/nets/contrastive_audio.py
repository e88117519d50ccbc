import torch
import torch.nn as nn
import torch.nn.functional as F


class WaveEncoder(nn.Module):
    """Raw waveform to features, quantised targets, contrastive loss."""

    def __init__(self, dim=64, codebook=32, groups=2, mask_prob=0.3):
        super().__init__()
        strides = [(10, 5), (8, 4), (4, 2), (4, 2)]
        convs, c = [], 1
        for k, s in strides:
            convs.append(nn.Sequential(nn.Conv1d(c, dim, k, stride=s, bias=False), nn.GroupNorm(1, dim), nn.GELU()))
            c = dim
        self.convs = nn.ModuleList(convs)
        self.mask_emb = nn.Parameter(torch.empty(dim).uniform_())
        layer = nn.TransformerEncoderLayer(dim, 4, dim * 2, activation="gelu", batch_first=True)
        self.context = nn.TransformerEncoder(layer, 2)
        self.groups = groups
        self.to_codes = nn.Linear(dim, groups * codebook)
        self.codebook = nn.Parameter(torch.randn(1, groups * codebook, dim // groups))
        self.mask_prob = mask_prob

    def quantise(self, z, tau=2.0):
        b, t, d = z.shape
        logits = self.to_codes(z).view(b * t * self.groups, -1)
        one_hot = F.gumbel_softmax(logits.float(), tau=tau, hard=True).type_as(logits) if self.training else \
            torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        picked = one_hot.view(b * t, -1).unsqueeze(-1) * self.codebook
        return picked.view(b * t, self.groups, -1, d // self.groups).sum(-2).view(b, t, -1)

    def forward(self, wav):
        if wav.dim() == 2:
            wav = wav.unsqueeze(1)
        z = wav
        for conv in self.convs:
            z = conv(z)
        z = z.transpose(1, 2)
        targets = self.quantise(z)
        mask = torch.rand(z.shape[:2], device=z.device) < self.mask_prob
        z = torch.where(mask.unsqueeze(-1), self.mask_emb, z)
        c = self.context(z)
        sim = F.cosine_similarity(c.unsqueeze(2), targets.unsqueeze(1), dim=-1) / 0.1
        labels = torch.arange(c.size(1), device=c.device).expand(c.size(0), -1)
        loss = F.cross_entropy(sim.flatten(0, 1), labels.flatten(), reduction='none')
        return c, loss.view_as(mask)
