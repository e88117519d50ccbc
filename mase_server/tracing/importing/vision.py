"""Replacements for parts of torchvision and timm, where they are missing: networks and layers of fixed structure.

Of torchvision, ResNets, VGGs and AlexNet have the layers, names and attributes that programs use of them, and random
weights; some layers and operations are here too. Of timm, the vision transformer's layers and some helpers are.
Sources: the papers of the networks and the pages of torchvision.models and torchvision.ops, timm.layers and
timm.models.vision_transformer.
"""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import nn

from mase_server.tracing.importing.datasets import DATASETS, TRANSFORMS

# torchvision: networks.


class _Residual(nn.Module):
    """A block of a ResNet: what came in is added to what its layers make of it."""

    expansion = 1
    relu: nn.Module
    downsample: nn.Module | None

    def _close(self, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.relu(out + (x if self.downsample is None else self.downsample(x)))
        return result


class BasicBlock(_Residual):
    """Two convolutions of 3 by 3."""

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: nn.Module | None = None, groups: int = 1,
        base_width: int = 64, dilation: int = 1, norm_layer: Callable[[int], nn.Module] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if groups != 1 or base_width != 64:
            raise ValueError("BasicBlock only supports groups=1 and base_width=64")
        if dilation > 1:
            raise NotImplementedError("Dilation > 1 not supported in BasicBlock")
        norm = norm_layer or nn.BatchNorm2d
        self.conv1, self.bn1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False), norm(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False), norm(planes)
        self.downsample, self.stride = downsample, stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both convolutions, added to the input."""
        return self._close(x, self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))


class Bottleneck(_Residual):
    """A convolution of 3 by 3 between two of 1 by 1; the stride is in the middle one."""

    expansion = 4

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: nn.Module | None = None, groups: int = 1,
        base_width: int = 64, dilation: int = 1, norm_layer: Callable[[int], nn.Module] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        norm, width, wide = norm_layer or nn.BatchNorm2d, int(planes * (base_width / 64)) * groups, planes * 4
        self.conv1, self.bn1 = nn.Conv2d(inplanes, width, 1, bias=False), norm(width)
        middle = nn.Conv2d(width, width, 3, stride, dilation, dilation, groups, bias=False)
        self.conv2, self.bn2 = middle, norm(width)
        self.conv3, self.bn3 = nn.Conv2d(width, wide, 1, bias=False), norm(wide)
        self.relu, self.downsample, self.stride = nn.ReLU(inplace=True), downsample, stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The three convolutions, added to the input."""
        out = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        return self._close(x, self.bn3(self.conv3(out)))


class ResNet(nn.Module):
    """A stem, four stages of blocks, a pool and a classifier."""

    def __init__(
        self, block: Any, layers: Sequence[int], num_classes: int = 1000, zero_init_residual: bool = False,
        groups: int = 1, width_per_group: int = 64, replace_stride_with_dilation: Sequence[bool] | None = None,
        norm_layer: Callable[[int], nn.Module] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._norm_layer = norm_layer or nn.BatchNorm2d
        self.inplanes, self.dilation, self.groups, self.base_width = 64, 1, groups, width_per_group
        dilated = replace_stride_with_dilation or (False, False, False)
        if len(dilated) != 3:
            raise ValueError(
                f"replace_stride_with_dilation should be None or a 3-element tuple, got {replace_stride_with_dilation}"
            )
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), self._norm_layer(64)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], 2, dilated[0])
        self.layer3 = self._make_layer(block, 256, layers[2], 2, dilated[1])
        self.layer4 = self._make_layer(block, 512, layers[3], 2, dilated[2])
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(512 * block.expansion, num_classes)

    def _make_layer(self, block: Any, planes: int, blocks: int, stride: int = 1, dilate: bool = False) -> nn.Sequential:
        """A stage: its first block may change the size and the channels, the others keep them."""
        first, wide = self.dilation, planes * block.expansion
        if dilate:
            self.dilation, stride = self.dilation * stride, 1
        shortcut = None
        if stride != 1 or self.inplanes != wide:
            shortcut = nn.Sequential(nn.Conv2d(self.inplanes, wide, 1, stride, bias=False), self._norm_layer(wide))
        fixed = (self.groups, self.base_width)
        made = [block(self.inplanes, planes, stride, shortcut, *fixed, first, self._norm_layer)]
        self.inplanes = wide
        made += [block(wide, planes, 1, None, *fixed, self.dilation, self._norm_layer) for _ in range(1, blocks)]
        return nn.Sequential(*made)

    def _forward_impl(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        result: torch.Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return result

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Classify images."""
        return self._forward_impl(x)


class _Classified(nn.Module):
    """Features, a pool to a fixed size, and a classifier."""

    features: nn.Module
    avgpool: nn.Module
    classifier: nn.Module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Classify images."""
        result: torch.Tensor = self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))
        return result


class VGG(_Classified):
    """Any features that end in 512 channels, and three layers."""

    def __init__(
        self, features: nn.Module, num_classes: int = 1000, init_weights: bool = True, dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.features, self.avgpool = features, nn.AdaptiveAvgPool2d((7, 7))
        hidden = [nn.Linear(512 * 7 * 7, 4096), nn.ReLU(True), nn.Dropout(dropout)]
        hidden += [nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(dropout)]
        self.classifier = nn.Sequential(*hidden, nn.Linear(4096, num_classes))


class AlexNet(_Classified):
    """Five convolutions and three layers."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        pooled: list[nn.Module] = [nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(True), nn.MaxPool2d(3, 2)]
        pooled += [nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(True), nn.MaxPool2d(3, 2)]
        for seen, made in ((192, 384), (384, 256), (256, 256)):
            pooled += [nn.Conv2d(seen, made, 3, padding=1), nn.ReLU(True)]
        self.features, self.avgpool = nn.Sequential(*pooled, nn.MaxPool2d(3, 2)), nn.AdaptiveAvgPool2d((6, 6))
        hidden = [nn.Dropout(dropout), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(True)]
        hidden += [nn.Dropout(dropout), nn.Linear(4096, 4096), nn.ReLU(True)]
        self.classifier = nn.Sequential(*hidden, nn.Linear(4096, num_classes))


def make_layers(cfg: Sequence[int | str], batch_norm: bool = False) -> nn.Sequential:
    """The features of a VGG: a number makes a convolution with so many channels, "M" a pool."""
    layers: list[nn.Module] = []
    seen = 3
    for each in cfg:
        if isinstance(each, str):
            layers.append(nn.MaxPool2d(2, 2))
            continue
        norm = [nn.BatchNorm2d(each)] if batch_norm else []
        layers += [nn.Conv2d(seen, each, 3, padding=1), *norm, nn.ReLU(inplace=True)]
        seen = each
    return nn.Sequential(*layers)


def _list_vgg(counts: Sequence[int]) -> list[int | str]:
    """The features of a VGG with so many convolutions before each pool."""
    layers: list[int | str] = []
    for channels, count in zip((64, 128, 256, 512, 512), counts, strict=True):
        layers += [*[channels] * count, "M"]
    return layers


def _build_resnet(block: type, layers: Sequence[int], **fixed: Any) -> Callable[..., ResNet]:
    def build(pretrained: Any = False, progress: bool = True, *, weights: Any = None, **options: Any) -> ResNet:
        """A ResNet with random weights. pretrained, weights, progress: of the download that is left out."""
        return ResNet(block, layers, **{**fixed, **options})

    return build


def _build_vgg(counts: Sequence[int], batch_norm: bool) -> Callable[..., VGG]:
    def build(pretrained: Any = False, progress: bool = True, *, weights: Any = None, **options: Any) -> VGG:
        """A VGG with random weights. pretrained, weights, progress: of the download that is left out."""
        return VGG(make_layers(_list_vgg(counts), batch_norm), **options)

    return build


def _build_alexnet(pretrained: Any = False, progress: bool = True, *, weights: Any = None, **options: Any) -> AlexNet:
    return AlexNet(**options)


class IntermediateLayerGetter(nn.ModuleDict):
    """The first layers of a network, up to the last one whose result is wanted, and these results by new names."""

    def __init__(self, model: nn.Module, return_layers: Mapping[str, str]) -> None:
        names = [name for name, _ in model.named_children()]
        if not {*return_layers} <= {*names}:
            raise ValueError("return_layers are not present in model")
        last = max(map(names.index, map(str, return_layers)), default=-1)
        super().__init__(dict(list(model.named_children())[: last + 1]))
        self.return_layers = {str(name): str(called) for name, called in return_layers.items()}

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """The wanted results, in the order of the layers."""
        results = OrderedDict[str, torch.Tensor]()
        for name, layer in self.items():
            x = layer(x)
            if name in self.return_layers:
                results[self.return_layers[name]] = x
        return results


# torchvision: layers and operations.


def box_area(boxes: torch.Tensor) -> torch.Tensor:
    """The area of boxes with two corners, (x1, y1, x2, y2)."""
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def box_iou(boxes1: torch.Tensor, boxes2: torch.Tensor) -> torch.Tensor:
    """The shared area of each pair of boxes, over the area of both."""
    low, high = torch.max(boxes1[:, None, :2], boxes2[:, :2]), torch.min(boxes1[:, None, 2:], boxes2[:, 2:])
    shared = (high - low).clamp(min=0).prod(dim=2)
    return shared / (box_area(boxes1)[:, None] + box_area(boxes2) - shared)


class FrozenBatchNorm2d(nn.Module):
    """A batch norm whose numbers are fixed."""

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((num_features,), value))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise each channel of maps."""
        numbers = {name: value[:, None, None] for name, value in self.named_buffers()}
        scale = numbers["weight"] * (numbers["running_var"] + self.eps).rsqrt()
        return x * scale + (numbers["bias"] - numbers["running_mean"] * scale)


def _draw_kept(x: torch.Tensor, rows: int, share: float) -> torch.Tensor:
    """A 1 for each row that is kept, and a 0 for each other one."""
    return x.new_empty((rows,) + (1,) * (x.dim() - 1)).bernoulli_(share)


class StochasticDepth(nn.Module):
    """Drops a residual branch while training: of each row, or of the whole batch."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        if mode not in ("batch", "row"):
            raise ValueError(f"mode has to be either 'batch' or 'row', but got {mode}")
        self.p, self.mode = p, mode

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Multiply by 0, or by 1 over the share that is kept."""
        if not self.training or not self.p:
            return input
        kept = _draw_kept(input, input.shape[0] if self.mode == "row" else 1, 1 - self.p)
        return input * (kept / (1 - self.p) if self.p < 1 else kept)


class Normalize(nn.Module):
    """Subtracts a mean from each channel, and divides by a deviation."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        """Normalise images, with or without a batch."""
        mean, std = (torch.as_tensor(each, dtype=tensor.dtype).reshape(-1, 1, 1) for each in (self.mean, self.std))
        return tensor.sub_(mean).div_(std) if self.inplace else (tensor - mean) / std


class Compose:
    """One transform after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        """Transform an image."""
        return functools.reduce(lambda value, each: each(value), self.transforms, img)


# timm.


class DropPath(nn.Module):
    """Drops whole samples of a residual branch while training."""

    def __init__(self, drop_prob: float = 0.0, scale_by_keep: bool = True) -> None:
        super().__init__()
        self.drop_prob, self.scale_by_keep = drop_prob, scale_by_keep

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply each sample by 0, or by 1 over the share that is kept."""
        if not self.drop_prob or not self.training:
            return x
        kept = 1 - self.drop_prob
        mask = _draw_kept(x, x.shape[0], kept)
        return x * (mask.div_(kept) if kept > 0 and self.scale_by_keep else mask)


def as_tuple(count: int) -> Callable[[Any], Any]:
    """A function that makes a tuple of so many elements."""

    def convert(value: Any) -> Any:
        """The value itself if it is a sequence, else a tuple that repeats it."""
        whole = isinstance(value, Iterable) and not isinstance(value, str)
        return tuple(cast("Iterable[Any]", value)) if whole else (value,) * count

    return convert


class PatchEmbed(nn.Module):
    """An image as a row of patches, each a vector. options: of the checks that this one leaves out."""

    def __init__(
        self,
        img_size: Any = 224,
        patch_size: Any = 16,
        in_chans: int = 3,
        embed_dim: int = 768,
        norm_layer: Callable[..., nn.Module] | None = None,
        flatten: bool = True,
        bias: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        self.patch_size, self.flatten = as_tuple(2)(patch_size), flatten
        self.img_size = self.grid_size = self.num_patches = None
        if img_size is not None:
            self.img_size = as_tuple(2)(img_size)
            self.grid_size = tuple(side // part for side, part in zip(self.img_size, self.patch_size, strict=True))
            self.num_patches = math.prod(self.grid_size)
        self.proj = nn.Conv2d(in_chans, embed_dim, self.patch_size, self.patch_size, bias=bias)
        self.norm = norm_layer(embed_dim) if norm_layer else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Refuse images of another size, as timm does."""
        for name, side, own in zip(("height", "width"), x.shape[-2:], self.img_size or (), strict=False):
            assert side == own, f"Input {name} ({side}) doesn't match model ({own})."
        x = self.proj(x)
        result: torch.Tensor = self.norm(x.flatten(2).transpose(1, 2) if self.flatten else x)
        return result


class Mlp(nn.Module):
    """Two layers with an activation between them."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int | None = None,
        out_features: int | None = None,
        act_layer: Callable[..., nn.Module] = nn.GELU,
        norm_layer: Callable[..., nn.Module] | None = None,
        bias: Any = True,
        drop: Any = 0.0,
        use_conv: bool = False,
    ) -> None:
        super().__init__()
        hidden, (first, last), drops = hidden_features or in_features, as_tuple(2)(bias), as_tuple(2)(drop)
        layer: Callable[..., nn.Module] = functools.partial(nn.Conv2d, kernel_size=1) if use_conv else nn.Linear
        self.fc1, self.act, self.drop1 = layer(in_features, hidden, bias=first), act_layer(), nn.Dropout(drops[0])
        self.norm = norm_layer(hidden) if norm_layer else nn.Identity()
        self.fc2, self.drop2 = layer(hidden, out_features or in_features, bias=last), nn.Dropout(drops[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both layers."""
        result: torch.Tensor = self.drop2(self.fc2(self.norm(self.drop1(self.act(self.fc1(x))))))
        return result


class LayerNorm2d(nn.LayerNorm):
    """A norm of the channels of maps. options: of nn.LayerNorm."""

    def __init__(self, num_channels: int, eps: float = 1e-6, affine: bool = True, **options: Any) -> None:
        super().__init__(num_channels, eps=eps, elementwise_affine=affine, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise with the channels last."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Attention(nn.Module):
    """Self-attention with several heads; before release 0.9 a scale could be given."""

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        qkv_bias: bool = False,
        qk_norm: bool = False,
        qk_scale: float | None = None,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        norm_layer: Callable[..., nn.Module] = nn.LayerNorm,
    ) -> None:
        super().__init__()
        assert dim % num_heads == 0, "dim should be divisible by num_heads"
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.scale = qk_scale or self.head_dim**-0.5
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.q_norm, self.k_norm = (norm_layer(self.head_dim) if qk_norm else nn.Identity() for _ in range(2))
        self.attn_drop, self.proj, self.proj_drop = nn.Dropout(attn_drop), nn.Linear(dim, dim), nn.Dropout(proj_drop)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Mix the tokens of each sample."""
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, tokens, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        weights = (self.q_norm(q) * self.scale) @ self.k_norm(k).transpose(-2, -1)
        mixed = self.attn_drop(weights.softmax(dim=-1)) @ v
        result: torch.Tensor = self.proj_drop(self.proj(mixed.transpose(1, 2).reshape(batch, tokens, width)))
        return result


class Block(nn.Module):
    """A layer of a vision transformer. options: of the attention; `drop` is the older name of `proj_drop`."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = False,
        *,
        drop: float = 0.0,
        drop_path: float = 0.0,
        act_layer: Callable[..., nn.Module] = nn.GELU,
        norm_layer: Callable[..., nn.Module] = nn.LayerNorm,
        **options: Any,
    ) -> None:
        super().__init__()
        self.norm1, self.norm2 = norm_layer(dim), norm_layer(dim)
        self.attn = Attention(dim, num_heads, qkv_bias=qkv_bias, norm_layer=norm_layer, **options)
        drop = options.get("proj_drop", drop)
        self.attn.proj_drop = nn.Dropout(drop)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), act_layer=act_layer, drop=drop)
        self.drop_path1, self.drop_path2 = DropPath(drop_path), DropPath(drop_path)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention, then the layers, each added to what came in."""
        x = x + self.drop_path1(self.attn(self.norm1(x)))
        result: torch.Tensor = x + self.drop_path2(self.mlp(self.norm2(x)))
        return result


# The names under which the packages have them.

_RESNETS = {
    "resnet18": (BasicBlock, (2, 2, 2, 2), {}),
    "resnet34": (BasicBlock, (3, 4, 6, 3), {}),
    "resnet50": (Bottleneck, (3, 4, 6, 3), {}),
    "resnet101": (Bottleneck, (3, 4, 23, 3), {}),
    "resnet152": (Bottleneck, (3, 8, 36, 3), {}),
    "resnext50_32x4d": (Bottleneck, (3, 4, 6, 3), {"groups": 32, "width_per_group": 4}),
    "resnext101_32x8d": (Bottleneck, (3, 4, 23, 3), {"groups": 32, "width_per_group": 8}),
    "wide_resnet50_2": (Bottleneck, (3, 4, 6, 3), {"width_per_group": 128}),
    "wide_resnet101_2": (Bottleneck, (3, 4, 23, 3), {"width_per_group": 128}),
}
_VGGS = {"vgg11": (1, 1, 2, 2, 2), "vgg13": (2, 2, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
_NETWORKS = (
    {each.__name__: each for each in (BasicBlock, Bottleneck, ResNet, VGG, AlexNet, make_layers)}
    | {name: _build_resnet(block, layers, **fixed) for name, (block, layers, fixed) in _RESNETS.items()}
    | {name: _build_vgg(counts, batch_norm=False) for name, counts in _VGGS.items()}
    | {f"{name}_bn": _build_vgg(counts, batch_norm=True) for name, counts in _VGGS.items()}
    | {"alexnet": _build_alexnet}
)
_OPERATIONS = {each.__name__: each for each in (FrozenBatchNorm2d, StochasticDepth, box_area, box_iou)}
_TIMM = {
    "DropPath": DropPath,
    "trunc_normal_": nn.init.trunc_normal_,
    "to_2tuple": as_tuple(2),
    "to_3tuple": as_tuple(3),
    "IMAGENET_DEFAULT_MEAN": (0.485, 0.456, 0.406),
    "IMAGENET_DEFAULT_STD": (0.229, 0.224, 0.225),
}
_LAYERS = {"PatchEmbed": PatchEmbed, "Mlp": Mlp, "LayerNorm2d": LayerNorm2d}
_TRANSFORMS = {"Normalize": Normalize, "Compose": Compose} | TRANSFORMS


#: Packages and modules -> their names -> the replacement.
class WeightAddresses(dict[str, str]):
    """`model_urls`, which torchvision no longer has: a text for each network, for which nothing is downloaded."""

    def __missing__(self, network: str) -> str:
        return f"https://example.org/{network}.pth"


_ADDRESSES = {"model_urls": WeightAddresses()}
#: Modules of torchvision that had addresses, beside those whose networks are here.
_MODELS = (
    "densenet", "inception", "googlenet", "mobilenet", "mobilenetv2", "squeezenet", "segmentation.segmentation",
    "detection.faster_rcnn",
)  # fmt: skip
VISION: dict[str, Mapping[str, Any]] = {
    # Release 0.N + 15 is the one for torch 2.N.
    "torchvision": {"__version__": f"0.{int(torch.__version__.split('.')[1]) + 15}.0", "_is_tracing": lambda: False},
    **{f"torchvision.models.{part}": _ADDRESSES for part in _MODELS},
    **{f"torchvision.models{part}": _NETWORKS | _ADDRESSES for part in ("", ".resnet", ".vgg", ".alexnet")},
    "torchvision.models._utils": {"IntermediateLayerGetter": IntermediateLayerGetter},
    **{f"torchvision.ops{part}": _OPERATIONS for part in ("", ".boxes", ".misc", ".stochastic_depth")},
    **{f"torchvision.datasets{part}": DATASETS for part in ("", ".mnist", ".cifar", ".svhn", ".stl10", ".usps")},
    **{f"torchvision.transforms{part}": _TRANSFORMS for part in ("", ".transforms", ".v2")},
    "timm": _TIMM,
    **dict.fromkeys(("timm.layers", "timm.models.layers"), _TIMM | _LAYERS),
    "timm.models.vision_transformer": _TIMM | _LAYERS | {"Attention": Attention, "Block": Block},
}
