"""Every model type that transformers knows: its class, its default configuration cut to two layers, built on meta."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import CONFIG_MAPPING, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig
from transformers.models.auto import modeling_auto

from mase_server.tracing.shadow import MetaMode, Shadows

MOST_LAYERS = 2
#: Attributes of configurations that count layers.
_DEPTHS = re.compile(
    r"^(num_|n_|max_)?((hidden|encoder|decoder|text|vision|audio|transformer|perception|bottleneck|self_attention|depth|"
    r"backbone|conformer|qformer|resampler|attention|prediction|mask_decoder|perceiver|memory_attention)_)*"
    r"(layers?|depth|depths|blocks)$|^(num_|n_)(enc|dec|encoder|decoder)_(layers?|blocks)$"
)
#: Lists of what each layer is like; they are as long as there are layers.
_LISTS = re.compile(r"types?$|pattern|layers?$|idx|indexes|indices|interval|rope")

#: Tokens that stand for something else than text.
_PLACES = re.compile(r"^(image|video|audio|vision)_token_(id|index)$")


class NotBuilt(Exception):
    """A type whose model cannot be built here; the text says why."""


@dataclass(frozen=True, slots=True)
class Built:
    """A model on meta, the values that its constructor left, and whether its depth was cut."""

    model: nn.Module
    shadows: Shadows
    cut: bool
    auto: bool


def model_types() -> list[str]:
    """All of CONFIG_MAPPING, in order of name."""
    return sorted(CONFIG_MAPPING.keys())


def build(name: str) -> Built:
    """The type's model from its default configuration, on meta, in eval mode; raises NotBuilt with the reason."""
    reasons = []
    for cut in (True, False):
        try:
            config = CONFIG_MAPPING[name]()
            kind, auto = model_class(config)
            if cut:
                shorten(config)
            put_inside(config)
            return _constructed(kind, config, cut, auto)
        except NotBuilt:
            raise
        except Exception as error:  # noqa: BLE001 - the library's own code; its error is the reason
            reasons.append(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    raise NotBuilt(reasons[-1])


def _constructed(kind: type[PreTrainedModel], config: Any, cut: bool, auto: bool) -> Built:
    shadows = Shadows()
    with MetaMode(shadows):
        model = kind(config)
    return Built(model.eval(), shadows, cut, auto)


def model_class(config: PreTrainedConfig) -> tuple[type[PreTrainedModel], bool]:
    """The type's base model, else its first head, else what its own file defines for it; is it one of Auto's?"""
    for mapping in _mappings():
        with contextlib.suppress(KeyError):
            found = mapping[type(config)]
            return (found[0] if isinstance(found, tuple | list) else found), True
    own = list(_own_classes(type(config)))
    if not own:
        raise NotBuilt("no model class: only a part of another type's model")
    return own[0], False


def _mappings() -> Iterator[Any]:
    yield modeling_auto.MODEL_MAPPING
    for name, value in vars(modeling_auto).items():
        if name.startswith("MODEL_") and name.endswith("_MAPPING") and name != "MODEL_MAPPING":
            yield value


def _own_classes(kind: type) -> Iterator[type[PreTrainedModel]]:
    """Model classes of the configuration's own folder that are made from just this configuration."""
    home = kind.__module__.replace(".configuration_", ".modeling_")
    try:
        module = importlib.import_module(home)
    except ModuleNotFoundError as error:
        raise NotBuilt(f"{type(error).__name__}: {error}") from None
    for value in vars(module).values():
        if not (inspect.isclass(value) and issubclass(value, PreTrainedModel) and value.__module__ == home):
            continue
        if value.config_class is kind and "forward" in vars(value):
            yield value


def shorten(config: PreTrainedConfig) -> None:
    """Cut every count of layers to two, in nested configurations too, and the lists of layers with them."""
    counts = set()
    for key, value in list(vars(config).items()):
        if _is_config(value):
            shorten(value)
        elif type(value) is int and value > MOST_LAYERS and _DEPTHS.match(key):
            with contextlib.suppress(NotImplementedError):
                setattr(config, key, MOST_LAYERS)
                counts.add(value)
        elif isinstance(value, list | tuple) and _DEPTHS.match(key) and all(type(item) is int for item in value):
            setattr(config, key, type(value)(min(item, MOST_LAYERS) for item in value))
    for key, value in list(vars(config).items()):
        if isinstance(value, list | tuple) and len(value) in counts and _LISTS.search(key):
            setattr(config, key, value[:MOST_LAYERS])


def put_inside(config: PreTrainedConfig) -> None:
    """Give tokens that stand for images or sound, but lie beyond the vocabulary, numbers at its end."""
    text = getattr(config, "text_config", None) or config
    size = getattr(text, "vocab_size", None)
    names = [key for key in vars(config) if _PLACES.match(key)]
    for index, key in enumerate(names if isinstance(size, int) else ()):
        value = getattr(config, key)
        if type(value) is int and value >= size:
            setattr(config, key, size - 1 - index)


def _is_config(value: Any) -> bool:
    return isinstance(value, PreTrainedConfig)
