import torch.nn as nn
import torch.nn.functional as F

from ..builder import NECKS


@NECKS.register_module()
class FPN(nn.Module):
    """Feature pyramid.

    Args:
        in_channels (list[int]): channels of each input level.
        out_channels (int): channels of every output level.
        num_outs (int): number of output levels.

    Example:
        >>> import torch
        >>> in_channels = [64, 128, 256]
        >>> scales = [64, 32, 16]
        >>> inputs = [torch.rand(1, c, s, s) for c, s in zip(in_channels, scales)]
        >>> self = FPN(in_channels, 96, len(in_channels)).eval()
        >>> outputs = self(inputs)
    """

    def __init__(self, in_channels, out_channels, num_outs, start_level=0, add_extra_convs=False):
        super(FPN, self).__init__()
        assert isinstance(in_channels, (list, tuple))
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.num_ins = len(in_channels)
        self.num_outs = num_outs
        self.start_level = start_level
        self.backbone_end_level = self.num_ins
        assert num_outs >= self.num_ins - start_level

        self.lateral_convs = nn.ModuleList()
        self.fpn_convs = nn.ModuleList()
        for i in range(self.start_level, self.backbone_end_level):
            self.lateral_convs.append(nn.Conv2d(in_channels[i], out_channels, 1))
            self.fpn_convs.append(nn.Conv2d(out_channels, out_channels, 3, padding=1))

    def forward(self, inputs):
        assert len(inputs) == len(self.in_channels)
        laterals = [conv(inputs[i + self.start_level]) for i, conv in enumerate(self.lateral_convs)]

        used_backbone_levels = len(laterals)
        for i in range(used_backbone_levels - 1, 0, -1):
            prev_shape = laterals[i - 1].shape[2:]
            laterals[i - 1] = laterals[i - 1] + F.interpolate(laterals[i], size=prev_shape, mode='nearest')

        outs = [self.fpn_convs[i](laterals[i]) for i in range(used_backbone_levels)]
        if self.num_outs > len(outs):
            for i in range(self.num_outs - used_backbone_levels):
                outs.append(F.max_pool2d(outs[-1], 1, stride=2))
        return tuple(outs)
