import torch.nn as nn

import common


def make_model(args, parent=False):
    return ChannelSR(args)


class CALayer(nn.Module):
    def __init__(self, channel, reduction=16):
        super(CALayer, self).__init__()
        self.avg_pool = nn.AdaptiveAvgPool2d(1)
        self.conv_du = nn.Sequential(nn.Conv2d(channel, channel // reduction, 1), nn.ReLU(inplace=True),
                                     nn.Conv2d(channel // reduction, channel, 1), nn.Sigmoid())

    def forward(self, x):
        y = self.avg_pool(x)
        y = self.conv_du(y)
        return x * y


class Group(nn.Module):
    def __init__(self, conv, n_feat, reduction, n_blocks):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(conv(n_feat, n_feat, 3), nn.ReLU(True), conv(n_feat, n_feat, 3), CALayer(n_feat, reduction)) for _ in range(n_blocks))
        self.tail = conv(n_feat, n_feat, 3)

    def forward(self, x):
        res = x
        for b in self.blocks:
            res = res + b(res)
        res = self.tail(res)
        res += x
        return res


class ChannelSR(nn.Module):
    def __init__(self, args, conv=common.default_conv):
        super().__init__()
        scale = args.scale[0]
        mean = (0.4488, 0.4371, 0.4040)
        self.sub_mean = common.MeanShift(args.rgb_range, mean)
        self.head = conv(args.n_colors, args.n_feats, 3)
        self.body = nn.Sequential(*[Group(conv, args.n_feats, args.reduction, args.n_resblocks) for _ in range(args.n_resgroups)])
        self.tail = nn.Sequential(common.Upsampler(conv, scale, args.n_feats), conv(args.n_feats, args.n_colors, 3))
        self.add_mean = common.MeanShift(args.rgb_range, mean, 1)

    def forward(self, x):
        x = self.sub_mean(x)
        x = self.head(x)
        res = self.body(x)
        x = self.tail(res + x)
        x = self.add_mean(x)
        return x
