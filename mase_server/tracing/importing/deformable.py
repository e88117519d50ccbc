"""Deformable convolutions, where the extension with their kernels is missing: of mmcv, of torchvision, or a copied one.

Each place of the kernel reads the input where an offset moves it to, between pixels and zero outside, and a mask weighs
what it read. Sources: "Deformable ConvNets v2: More Deformable, Better Results" (section 3.2), the pages of
torchvision.ops.deform_conv2d and mmcv.ops.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules.utils import _pair

from mase_server.ops.types import Kwargs


def convolve(
    input: torch.Tensor, offset: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, mask: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """As `torchvision.ops.deform_conv2d`: offset is [B, 2 * groups * kh * kw, H, W], y before x; mask is half of it."""
    (high, wide), count = weight.shape[-2:], weight.shape[-2] * weight.shape[-1]
    (step_y, step_x), (pad_y, pad_x), (far_y, far_x) = _pair(stride), _pair(padding), _pair(dilation)
    batch, channels, rows, columns = input.shape
    out_rows, out_columns = offset.shape[-2:]
    groups = offset.shape[1] // (2 * count)
    moved = offset.reshape(batch, groups, high, wide, 2, out_rows, out_columns)
    starts: Kwargs = {"device": input.device, "dtype": input.dtype}
    tops = torch.arange(out_rows, **starts) * step_y - pad_y
    lefts = torch.arange(out_columns, **starts) * step_x - pad_x
    y = moved[..., 0, :, :] + tops[:, None] + (torch.arange(high, **starts) * far_y)[:, None, None, None]
    x = moved[..., 1, :, :] + lefts + (torch.arange(wide, **starts) * far_x)[:, None, None]
    grid = torch.stack([(2 * x + 1) / columns - 1, (2 * y + 1) / rows - 1], -1)
    grid = grid.reshape(batch * groups, count * out_rows, out_columns, 2)
    parts = input.reshape(batch * groups, channels // groups, rows, columns)
    read = F.grid_sample(parts, grid, align_corners=False)
    read = read.reshape(batch, groups, channels // groups, count, out_rows, out_columns)
    if mask is not None:
        read = read * mask.reshape(batch, groups, 1, count, out_rows, out_columns)
    apart = channels // weight.shape[1]
    read = read.reshape(batch, apart, weight.shape[1] * count, out_rows * out_columns)
    out = weight.reshape(apart, -1, weight.shape[1] * count) @ read
    out = out.reshape(batch, weight.shape[0], out_rows, out_columns)
    return out if bias is None else out + bias[:, None, None]


def convolve_masked(
    input: torch.Tensor, offset: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor,
    bias: torch.Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, *others: Any,
) -> torch.Tensor:  # fmt: skip
    """As `mmcv.ops.modulated_deform_conv2d`. others: groups, whose numbers the shapes tell, and the kernel's step."""
    return convolve(
        input, offset, weight, bias if isinstance(bias, torch.Tensor) else None, stride, padding, dilation, mask
    )


def convolve_moved(
    input: torch.Tensor, offset: torch.Tensor, weight: torch.Tensor, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, *others: Any,
) -> torch.Tensor:  # fmt: skip
    """As `mmcv.ops.deform_conv2d`, which has no bias."""
    return convolve(input, offset, weight, None, stride, padding, dilation)


class MaskedConvolution:
    """The function of an extension, called by its `apply`."""

    apply = staticmethod(convolve_masked)


class MovedConvolution:
    """The same without a mask."""

    apply = staticmethod(convolve_moved)


class DeformConv2d(nn.Module):
    """A convolution whose caller gives the offsets. others: step of the kernel, and whether there is a bias."""

    has_mask, has_bias = False, False

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, deform_groups: int = 1, *others: Any, bias: bool | None = None,
        deformable_groups: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = _pair(kernel_size), _pair(stride)
        self.padding, self.dilation = _pair(padding), _pair(dilation)
        self.deform_groups = self.deformable_groups = deform_groups if deformable_groups is None else deformable_groups
        self.im2col_step = next((each for each in others if type(each) is int), options.get("im2col_step", 64))
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels // groups, *self.kernel_size))
        nn.init.kaiming_uniform_(self.weight, nonlinearity="relu")
        wanted = next((each for each in others if isinstance(each, bool)), self.has_bias) if bias is None else bias
        self.bias = nn.Parameter(torch.zeros(out_channels)) if wanted else None

    def forward(self, x: torch.Tensor, offset: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """The convolution where the offsets move it to."""
        return convolve(x, offset, self.weight, self.bias, self.stride, self.padding, self.dilation, mask)


class ModulatedDeformConv2d(DeformConv2d):
    """The same with a mask."""

    has_mask, has_bias = True, True


class DeformConv2dPack(DeformConv2d):
    """A convolution that computes its offsets, and its mask if it has one, from its input."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        count = self.deform_groups * (3 if self.has_mask else 2) * self.kernel_size[0] * self.kernel_size[1]
        self.conv_offset = nn.Conv2d(
            self.in_channels, count, self.kernel_size, self.stride, self.padding, self.dilation
        )
        for each in self.conv_offset.parameters():
            nn.init.zeros_(each)

    def forward(self, x: torch.Tensor, *others: Any) -> torch.Tensor:
        """The convolution where its own offsets move it to."""
        out = self.conv_offset(x)
        if not self.has_mask:
            return super().forward(x, out)
        one, other, mask = out.chunk(3, dim=1)
        return super().forward(x, torch.cat([one, other], 1), mask.sigmoid())


class ModulatedDeformConv2dPack(DeformConv2dPack):
    """The same with a mask."""

    has_mask, has_bias = True, True


#: Names of mmcv and of the extensions that programs bring along.
_NAMES: Mapping[str, Any] = {
    **dict.fromkeys(("DeformConv2d", "DeformConv"), DeformConv2d),
    **dict.fromkeys(("ModulatedDeformConv2d", "ModulatedDeformConv"), ModulatedDeformConv2d),
    **dict.fromkeys(("DeformConv2dPack", "DeformConvPack"), DeformConv2dPack),
    **dict.fromkeys(("ModulatedDeformConv2dPack", "ModulatedDeformConvPack"), ModulatedDeformConv2dPack),
    **dict.fromkeys(("modulated_deform_conv2d", "modulated_deform_conv"), convolve_masked),
    **dict.fromkeys(("deform_conv2d", "deform_conv"), convolve_moved),
    **dict.fromkeys(("ModulatedDeformConv2dFunction", "ModulatedDeformConvFunction"), MaskedConvolution),
    **dict.fromkeys(("DeformConv2dFunction", "DeformConvFunction"), MovedConvolution),
}
#: Modules with such an extension, wherever a program keeps it.
_EXTENSION = re.compile(r"(^|[._])(dcn|(modulated_)?deform(able)?_?conv\w*)([._]|$)|^mmcv\.ops(\.|$)")
#: The names of one whose name elsewhere means another network, of features that are crossed.
_DCN_V2: Mapping[str, Any] = {
    "DCN": ModulatedDeformConv2dPack, "DCNv2": ModulatedDeformConv2d, "dcn_v2_conv": convolve_masked,
}  # fmt: skip


def is_deformable(module: str) -> bool:
    """Is a missing module called as an extension with deformable convolutions is?"""
    return module.rpartition(".")[2] == "dcn_v2" or bool(_EXTENSION.search(module))


def find_deformable(module: str, name: str) -> Any:
    """The replacement for something of a missing module; None if there is none."""
    if module == "torchvision" or module.startswith("torchvision."):
        return convolve if name == "deform_conv2d" else None
    if module.rpartition(".")[2] == "dcn_v2":
        return _DCN_V2.get(name)
    return _NAMES.get(name) if _EXTENSION.search(module) else None
