import torch
import torch.nn.functional as F
from torch import nn

from segm.models.blocks import SeparableConv2d


class ASPPPooling(nn.Sequential):
    def __init__(self, in_channels, out_channels):
        super().__init__(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(in_channels, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels),
            nn.ReLU())

    def forward(self, x):
        size = x.shape[-2:]
        for mod in self:
            x = mod(x)
        return F.interpolate(x, size=size, mode="bilinear", align_corners=False)


class ASPP(nn.Module):
    def __init__(self, in_channels, atrous_rates, out_channels=256):
        super().__init__()
        modules = [nn.Sequential(nn.Conv2d(in_channels, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels), nn.ReLU())]
        for rate in atrous_rates:
            modules.append(SeparableConv2d(in_channels, out_channels, 3, padding=rate, dilation=rate))
        modules.append(ASPPPooling(in_channels, out_channels))
        self.convs = nn.ModuleList(modules)
        self.project = nn.Sequential(
            nn.Conv2d(len(self.convs) * out_channels, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels),
            nn.ReLU(), nn.Dropout(0.5))

    def forward(self, x):
        _res = []
        for conv in self.convs:
            _res.append(conv(x))
        res = torch.cat(_res, dim=1)
        return self.project(res)


class DeepLabV3Plus(nn.Module):
    def __init__(self, num_classes, output_stride, encoder_channels, decoder_channels=64):
        super().__init__()
        if output_stride not in (8, 16):
            raise ValueError(f"Output stride should be 8 or 16, got {output_stride}.")
        c1, c2, c3, c4 = encoder_channels
        self.stem = nn.Sequential(nn.Conv2d(3, c1, 3, 2, 1), nn.BatchNorm2d(c1), nn.ReLU(inplace=True))
        self.low = nn.Sequential(nn.Conv2d(c1, c2, 3, 2, 1), nn.BatchNorm2d(c2), nn.ReLU(inplace=True))
        self.mid = nn.Sequential(nn.Conv2d(c2, c3, 3, 2, 1), nn.BatchNorm2d(c3), nn.ReLU(inplace=True))
        last_stride = 2 if output_stride == 16 else 1
        self.high = nn.Sequential(nn.Conv2d(c3, c4, 3, last_stride, 1), nn.BatchNorm2d(c4), nn.ReLU(inplace=True))
        self.aspp = ASPP(c4, [6, 12, 18] if output_stride == 16 else [12, 24, 36], decoder_channels)
        self.low_proj = nn.Sequential(nn.Conv2d(c2, 48, 1, bias=False), nn.BatchNorm2d(48), nn.ReLU(inplace=True))
        self.classifier = nn.Sequential(SeparableConv2d(48 + decoder_channels, decoder_channels, 3, padding=1),
                                        nn.Conv2d(decoder_channels, num_classes, 1))

    def forward(self, x):
        input_shape = x.shape[-2:]
        low = self.low(self.stem(x))
        high = self.high(self.mid(low))
        aspp = self.aspp(high)
        aspp = F.interpolate(aspp, size=low.shape[-2:], mode="bilinear", align_corners=False)
        fused = torch.cat([self.low_proj(low), aspp], dim=1)
        out = self.classifier(fused)
        return {"out": F.interpolate(out, size=input_shape, mode="bilinear", align_corners=False)}
