import torch
import torch.nn as nn
import torch.nn.functional as F

# 三维医学图像分割  输入: (N, 1, D, H, W)


def act(use_elu, n):
    return nn.ELU(inplace=True) if use_elu else nn.PReLU(n)


class Convs(nn.Module):
    """若干个 5x5x5 卷积, 残差相加"""

    def __init__(self, n, times, use_elu):
        super(Convs, self).__init__()
        self.convs = nn.Sequential()
        for i in range(times):
            self.convs.add_module('conv%d' % i, nn.Conv3d(n, n, 5, padding=2))
            self.convs.add_module('bn%d' % i, nn.BatchNorm3d(n))
            self.convs.add_module('act%d' % i, act(use_elu, n))

    def forward(self, x):
        return x + self.convs(x)


class Down(nn.Module):
    def __init__(self, n, times, use_elu, drop=False):
        super(Down, self).__init__()
        self.conv = nn.Conv3d(n, 2 * n, 2, stride=2)
        self.act = act(use_elu, 2 * n)
        self.drop = nn.Dropout3d() if drop else (lambda x: x)
        self.convs = Convs(2 * n, times, use_elu)

    def forward(self, x):
        x = self.act(self.conv(x))
        return self.convs(self.drop(x))


class Up(nn.Module):
    def __init__(self, nin, nskip, times, use_elu):
        super(Up, self).__init__()
        self.conv = nn.ConvTranspose3d(nin, nskip, 2, stride=2)
        self.act = act(use_elu, nskip)
        self.convs = Convs(2 * nskip, times, use_elu)

    def forward(self, x, skip):
        x = self.act(self.conv(x))
        both = torch.cat((x, skip), 1)
        return self.convs(both)


class VNet(nn.Module):
    def __init__(self, elu=True, nll=False):
        super(VNet, self).__init__()
        self.first = nn.Conv3d(1, 8, 5, padding=2)
        self.down1, self.down2 = Down(8, 1, elu), Down(16, 2, elu, drop=True)
        self.up2, self.up1 = Up(32, 16, 2, elu), Up(32, 8, 1, elu)
        self.last = nn.Conv3d(16, 2, 1)
        self.nll = nll

    def forward(self, x):
        # 把输入复制 8 份再相加
        a = self.first(x) + x.repeat(1, 8, 1, 1, 1)
        b = self.down1(a)
        c = self.down2(b)
        y = self.up2(c, b)
        y = self.up1(y, a)
        y = self.last(y)
        # 每个体素一行
        y = y.permute(0, 2, 3, 4, 1).contiguous()
        y = y.view(y.numel() // 2, 2)
        return F.log_softmax(y, dim=1) if self.nll else F.softmax(y, dim=1)
