"""Layers that can be taken together or left out without changing what a trained model gives."""

from __future__ import annotations

from mase_server.passes.fusion.conv_bn_fusion import conv_bn_fusion_transform_pass
from mase_server.passes.fusion.norm_fusion import norm_fusion_transform_pass
from mase_server.passes.fusion.norm_to_conv import norm_to_conv_transform_pass
from mase_server.passes.fusion.remove_dropout import remove_dropout_transform_pass
from mase_server.passes.fusion.remove_loss import remove_loss_transform_pass

__all__ = [
    "conv_bn_fusion_transform_pass",
    "norm_fusion_transform_pass",
    "norm_to_conv_transform_pass",
    "remove_dropout_transform_pass",
    "remove_loss_transform_pass",
]
