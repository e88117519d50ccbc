"""Losses for volumes whose functions say the shapes that they take."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def channel_rows(tensor):
    """Puts the channels first.

    The shapes become: (N, C, D, H, W) -> (C, N * D * H * W)
    """
    order = (1, 0, *range(2, tensor.dim()))
    return tensor.permute(order).contiguous().view(tensor.size(1), -1)


def overlap(scores, labels, smooth=1e-6):
    assert scores.size() == labels.size(), "scores and labels must have the same shape"
    p, t = channel_rows(scores), channel_rows(labels).float()
    common = (p * t).sum(-1)
    total = (p * p).sum(-1) + (t * t).sum(-1)
    return 2 * common / total.clamp(min=smooth)


class OverlapLoss(nn.Module):
    def __init__(self, smooth=1e-6):
        super().__init__()
        self.smooth, self.squash = smooth, nn.Sigmoid()

    def forward(self, scores, labels):
        scores = self.squash(scores)
        per_channel = overlap(scores, labels, self.smooth)
        return 1 - per_channel.mean()


class BalancedCrossEntropy(nn.Module):
    def __init__(self, ignored=-1):
        super().__init__()
        self.ignored = ignored

    def forward(self, scores, target):
        weight = self.class_weights(scores)
        return F.cross_entropy(scores, target, weight=weight, ignore_index=self.ignored)

    @staticmethod
    def class_weights(scores):
        rows = channel_rows(scores.softmax(1))
        weight = (1 - rows).sum(-1) / rows.sum(-1)
        return weight.detach()
