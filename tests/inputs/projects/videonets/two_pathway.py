import torch
import torch.nn as nn
import torch.nn.functional as F


def conv3(cin, cout, k, s=(1, 1, 1)):
    pad = tuple(i // 2 for i in k)
    return nn.Sequential(nn.Conv3d(cin, cout, k, s, pad, bias=False), nn.BatchNorm3d(cout), nn.ReLU(inplace=True))


class Pathway(nn.Module):
    def __init__(self, widths, t_kernel, lateral=None):
        super().__init__()
        self.stem = conv3(3, widths[0], (t_kernel, 7, 7), (1, 2, 2))
        extra = lateral or [0] * len(widths)
        self.stages = nn.ModuleList(
            conv3(a + e, b, (t_kernel, 3, 3), (1, 2, 2)) for a, b, e in zip(widths[:-1], widths[1:], extra))


class SlowFast(nn.Module):
    def __init__(self, num_classes, alpha=4, beta_inv=4, width=32):
        super().__init__()
        slow_w = [width, 2 * width, 4 * width]
        fast_w = [w // beta_inv for w in slow_w]
        self.alpha = alpha
        self.slow = Pathway(slow_w, 1, [2 * f for f in fast_w])
        self.fast = Pathway(fast_w, 5)
        self.lateral = nn.ModuleList(
            nn.Conv3d(f, 2 * f, (5, 1, 1), stride=(alpha, 1, 1), padding=(2, 0, 0), bias=False) for f in fast_w[:-1])
        self.head = nn.Linear(slow_w[-1] + fast_w[-1], num_classes)

    def forward(self, clip):
        slow = self.slow.stem(clip[:, :, ::self.alpha])
        fast = self.fast.stem(clip)
        for s_stage, f_stage, lat in zip(self.slow.stages, self.fast.stages, self.lateral):
            slow = torch.cat([slow, lat(fast)], dim=1)
            slow, fast = s_stage(slow), f_stage(fast)
        pooled = torch.cat([F.adaptive_avg_pool3d(p, 1).flatten(1) for p in (slow, fast)], dim=1)
        return self.head(pooled)
