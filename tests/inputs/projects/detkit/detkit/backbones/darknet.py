import torch.nn as nn

from ..builder import BACKBONES


class ConvModule(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, act=True):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(out_channels)
        self.activate = nn.LeakyReLU(0.1, inplace=True) if act else None

    def forward(self, x):
        x = self.bn(self.conv(x))
        if self.activate is not None:
            x = self.activate(x)
        return x


class ResBlock(nn.Module):
    """1x1 then 3x3 with a skip around both."""

    def __init__(self, in_channels):
        super().__init__()
        assert in_channels % 2 == 0
        half = in_channels // 2
        self.conv1 = ConvModule(in_channels, half, 1)
        self.conv2 = ConvModule(half, in_channels, 3, padding=1)

    def forward(self, x):
        residual = x
        out = self.conv1(x)
        out = self.conv2(out)
        out = out + residual
        return out


@BACKBONES.register_module()
class Darknet(nn.Module):
    arch_settings = {
        21: ((1, 1, 2, 2, 1), ((32, 64), (64, 128), (128, 256), (256, 512), (512, 1024))),
        53: ((1, 2, 8, 8, 4), ((32, 64), (64, 128), (128, 256), (256, 512), (512, 1024))),
    }

    def __init__(self, depth, out_indices=(3, 4, 5), frozen_stages=-1, norm_eval=True):
        super().__init__()
        if depth not in self.arch_settings:
            raise KeyError(f'invalid depth {depth} for darknet')
        self.depth = depth
        self.out_indices = out_indices
        self.frozen_stages = frozen_stages
        self.layers, self.channels = self.arch_settings[depth]
        self.conv1 = ConvModule(3, 32, 3, padding=1)
        self.cr_blocks = ['conv1']
        for i, n_layers in enumerate(self.layers):
            layer_name = f'conv_res_block{i + 1}'
            in_c, out_c = self.channels[i]
            self.add_module(layer_name, self.make_conv_res_block(in_c, out_c, n_layers))
            self.cr_blocks.append(layer_name)
        self.norm_eval = norm_eval

    def forward(self, x):
        outs = []
        for i, layer_name in enumerate(self.cr_blocks):
            cr_block = getattr(self, layer_name)
            x = cr_block(x)
            if i in self.out_indices:
                outs.append(x)
        return tuple(outs)

    @staticmethod
    def make_conv_res_block(in_channels, out_channels, res_repeat):
        model = nn.Sequential()
        model.add_module('conv', ConvModule(in_channels, out_channels, 3, stride=2, padding=1))
        for idx in range(res_repeat):
            model.add_module('res{}'.format(idx), ResBlock(out_channels))
        return model
