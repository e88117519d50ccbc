"""Replacements for what models use most of OpenMMLab's mmcv and mmengine, where they are missing.

Base classes are plain modules; layers are built from their configurations (`dict(type="BN")`), and registries build
what was registered under a name. Sources: the pages of mmengine.registry and mmcv.cnn and the docstrings there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from mase_server.tracing.importing.vision import VISION

Config = Mapping[str, Any]
#: The activation of a layer that names none.
RELU: Config = {"type": "ReLU"}


class BaseModule(nn.Module):
    """An nn.Module that takes instructions to initialise its weights."""

    def __init__(self, init_cfg: Any = None) -> None:
        super().__init__()
        self.init_cfg = init_cfg

    def init_weights(self) -> None:
        """Do nothing: weights have no values here."""


class Sequential(BaseModule, nn.Sequential):
    """nn.Sequential with such instructions."""

    def __init__(self, *args: Any, init_cfg: Any = None) -> None:
        BaseModule.__init__(self, init_cfg)
        nn.Sequential.__init__(self, *args)


class ModuleList(BaseModule, nn.ModuleList):
    """nn.ModuleList with such instructions."""

    def __init__(self, modules: Any = None, init_cfg: Any = None) -> None:
        BaseModule.__init__(self, init_cfg)
        nn.ModuleList.__init__(self, modules)


class Registry:
    """Classes and functions by their names. A child finds what its parent has, too."""

    def __init__(
        self, name: str, build_func: Callable[..., Any] | None = None, parent: Any = None, scope: Any = None,
        locations: Any = (),
    ) -> None:  # fmt: skip
        self.name, self.parent = name, parent if isinstance(parent, Registry) else None
        inherited: Callable[..., Any] = build_from_cfg if self.parent is None else self.parent.build_func
        self.build_func: Callable[..., Any] = build_func or inherited
        self.module_dict: dict[str, Any] = {}

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        return len(self.module_dict)

    def get(self, key: str) -> Any:
        """The class or function of a name, also behind a scope as in `mmdet.ResNet`; None if there is none."""
        plain = key.rpartition(".")[2]
        found = self.module_dict.get(key, self.module_dict.get(plain))
        return self.parent.get(key) if found is None and self.parent is not None else found

    def register_module(self, name: Any = None, force: bool = False, module: Any = None) -> Any:
        """Register a class, or give the decorator that does."""
        if module is None:
            return lambda cls: self.register_module(name, force, cls)
        for each in [name] if isinstance(name, str) else name or [module.__name__]:
            self.module_dict[each] = module
        return module

    def build(self, cfg: Config, *args: Any, **kwargs: Any) -> Any:
        """Build the object that a configuration describes."""
        return self.build_func(cfg, *args, **{"registry": self, **kwargs})


def build_from_cfg(cfg: Config, registry: Registry, default_args: Config | None = None) -> Any:
    """Call what the `type` of a configuration names in a registry, with the other entries."""
    given = {**(default_args or {}), **cfg}
    kind = given.pop("type")
    found = registry.get(kind) if isinstance(kind, str) else kind
    if found is None:
        raise KeyError(f"{kind} is not in the {registry.name} registry")
    return found(**given)


MODELS = Registry("model")

#: What `type` says -> the layer, and for norms the word in its name.
_CONVOLUTIONS: dict[str, type[nn.Module]] = {
    "Conv": nn.Conv2d, "Conv1d": nn.Conv1d, "Conv2d": nn.Conv2d, "Conv3d": nn.Conv3d, "deconv": nn.ConvTranspose2d,
    "deconv3d": nn.ConvTranspose3d,
}  # fmt: skip
_NORMS: dict[str, tuple[type[nn.Module], str]] = {
    "BN": (nn.BatchNorm2d, "bn"), "BN1d": (nn.BatchNorm1d, "bn"), "BN2d": (nn.BatchNorm2d, "bn"),
    "BN3d": (nn.BatchNorm3d, "bn"), "SyncBN": (nn.BatchNorm2d, "bn"), "MMSyncBN": (nn.BatchNorm2d, "bn"),
    "GN": (nn.GroupNorm, "gn"), "LN": (nn.LayerNorm, "ln"), "IN": (nn.InstanceNorm2d, "in"),
    "IN1d": (nn.InstanceNorm1d, "in"), "IN2d": (nn.InstanceNorm2d, "in"), "IN3d": (nn.InstanceNorm3d, "in"),
}  # fmt: skip
_ACTIVATIONS: dict[str, type[nn.Module]] = {
    each.__name__: each
    for each in (nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.ReLU6, nn.ELU, nn.Sigmoid, nn.Tanh, nn.GELU, nn.SiLU)
} | {"Swish": nn.SiLU, "HSwish": nn.Hardswish, "HSigmoid": nn.Hardsigmoid, "Clamp": nn.Hardtanh}


def _find_layer(table: Mapping[str, Any], cfg: Config, kind: str) -> tuple[Any, dict[str, Any]]:
    given = dict(cfg)
    name = given.pop("type")
    found = table.get(name) or MODELS.get(name) if isinstance(name, str) else name
    if found is None:
        raise KeyError(f"MASE has no {kind} {name!r} without the package")
    return found, given


def build_conv_layer(cfg: Config | None, *args: Any, **kwargs: Any) -> Any:
    """A convolution by its configuration, by default `Conv2d`."""
    layer, given = _find_layer(_CONVOLUTIONS, cfg or {"type": "Conv2d"}, "convolution")
    return layer(*args, **kwargs, **given)


def build_norm_layer(cfg: Config, num_features: int, postfix: int | str = "") -> tuple[str, Any]:
    """A norm by its configuration, and its name, such as `bn1`."""
    (layer, word), given = _find_layer({**_NORMS}, cfg, "norm")
    trained = given.pop("requires_grad", True)
    given.setdefault("eps", 1e-5)
    made = layer(num_channels=num_features, **given) if layer is nn.GroupNorm else layer(num_features, **given)
    for parameter in made.parameters():
        parameter.requires_grad = trained
    return f"{word}{postfix}", made


def build_activation_layer(cfg: Config) -> Any:
    """An activation by its configuration."""
    layer, given = _find_layer(_ACTIVATIONS, cfg, "activation")
    return layer(**given)


class ConvModule(nn.Module):
    """A convolution, a norm and an activation, in the order that `order` says."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, bias: bool | str = "auto", conv_cfg: Config | None = None,
        norm_cfg: Config | None = None, act_cfg: Config | None = RELU, inplace: bool = True,
        with_spectral_norm: bool = False, padding_mode: str = "zeros", order: Sequence[str] = ("conv", "norm", "act"),
        efficient_conv_bn_eval: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.order = tuple(order)
        self.with_norm, self.with_activation = norm_cfg is not None, act_cfg is not None
        self.with_bias = not self.with_norm if bias == "auto" else bool(bias)
        self.conv = build_conv_layer(
            conv_cfg, in_channels, out_channels, kernel_size, stride=stride, padding=padding, dilation=dilation,
            groups=groups, bias=self.with_bias, padding_mode=padding_mode,
        )  # fmt: skip
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride = self.conv.kernel_size, self.conv.stride
        if with_spectral_norm:
            self.conv = nn.utils.spectral_norm(self.conv)
        self.norm_name = ""
        if norm_cfg is not None:
            after = self.order.index("norm") > self.order.index("conv")
            self.norm_name, norm = build_norm_layer(norm_cfg, out_channels if after else in_channels)
            self.add_module(self.norm_name, norm)
        if act_cfg is not None:
            takes = act_cfg["type"] not in ("Tanh", "PReLU", "Sigmoid", "HSigmoid", "Swish", "GELU")
            self.activate = build_activation_layer({**({"inplace": inplace} if takes else {}), **act_cfg})

    @property
    def norm(self) -> Any:
        """The norm; None if there is none."""
        return getattr(self, self.norm_name) if self.norm_name else None

    def forward(self, x: torch.Tensor, activate: bool = True, norm: bool = True) -> torch.Tensor:
        """Apply the layers; `activate` and `norm` may leave theirs out."""
        for layer in self.order:
            if layer == "conv":
                x = self.conv(x)
            elif layer == "norm" and norm and self.with_norm:
                x = self.norm(x)
            elif layer == "act" and activate and self.with_activation:
                x = self.activate(x)
        return x


class DepthwiseSeparableConvModule(nn.Module):
    """A convolution of each channel apart, then one of 1 by 1."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, norm_cfg: Config | None = None, act_cfg: Config | None = RELU,
        dw_norm_cfg: Any = "default", dw_act_cfg: Any = "default", pw_norm_cfg: Any = "default",
        pw_act_cfg: Any = "default", **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__()

        def choose(given: Any, usual: Config | None) -> Config | None:
            return usual if given == "default" else given

        self.depthwise_conv = ConvModule(
            in_channels, in_channels, kernel_size, stride, padding, dilation, in_channels,
            norm_cfg=choose(dw_norm_cfg, norm_cfg), act_cfg=choose(dw_act_cfg, act_cfg), **kwargs,
        )  # fmt: skip
        self.pointwise_conv = ConvModule(
            in_channels, out_channels, 1,
            norm_cfg=choose(pw_norm_cfg, norm_cfg), act_cfg=choose(pw_act_cfg, act_cfg), **kwargs,
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply both."""
        out: torch.Tensor = self.pointwise_conv(self.depthwise_conv(x))
        return out


class Scale(nn.Module):
    """A factor that is learned."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale, dtype=torch.float))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        return x * self.scale


def _leave_weights(module: Any, *args: Any, **kwargs: Any) -> None:
    """Initialise nothing: weights have no values here."""


def _give_decorator(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """The decorator of a method that casts its inputs where training in 16 bits is on; it is not here."""
    return lambda method: method


_INITIALISERS = (
    "constant_init", "xavier_init", "normal_init", "trunc_normal_init", "uniform_init", "kaiming_init",
    "caffe2_xavier_init",
)  # fmt: skip
OPENMMLAB: dict[str, Any] = {
    each.__name__: each
    for each in (
        BaseModule, Sequential, ModuleList, Registry, build_from_cfg, build_conv_layer, build_norm_layer,
        build_activation_layer, ConvModule, DepthwiseSeparableConvModule, Scale,
    )
} | {
    "MODELS": MODELS, **{name: VISION["timm"][name] for name in ("DropPath", "to_2tuple", "trunc_normal_")},
    **dict.fromkeys(_INITIALISERS, _leave_weights),
    **dict.fromkeys(("auto_fp16", "force_fp32"), _give_decorator),
}  # fmt: skip
