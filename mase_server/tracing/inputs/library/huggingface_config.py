"""Reading the configurations of Hugging Face models: one size has many names, in nested parts too."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

#: Names of the nested configuration for the part that reads text, images or sound.
PARTS: Mapping[str, tuple[str, ...]] = {
    "text": ("text_config", "thinker_config", "llm_config", "language_config", "text_model_config", "decoder"),
    "vision": (
        "vision_config", "thinker_config", "image_config", "vision_encoder_config", "image_encoder_config",
        "vision_tower_config", "visual_config", "vlm_config", "backbone_config", "encoder", "text_config",
    ),
    "audio": ("audio_config", "thinker_config", "speech_config", "audio_encoder_config", "encoder_config", "encoder"),
    "qformer": ("qformer_config",),
}  # fmt: skip

VOCABULARY = ("vocab_size", "n_vocab", "n_tokens")
CHANNELS = ("num_channels", "in_channels", "in_chans", "num_input_channels", "n_channels", "image_channels")
SIDE = ("image_size", "img_size", "input_size", "image_resolution", "crop_size", "max_img_size")
PATCH = ("patch_size", "patch_sizes")
WIDTH = ("hidden_size", "d_model", "dim", "embed_dim", "n_embd", "hidden_dim")
MELS = ("num_mel_bins", "feature_size", "input_feat_per_channel", "n_mels", "feature_projection_input_dim")


@dataclass(frozen=True)
class Facts:
    """A model of the library, its configuration, and the names of its forward's parameters."""

    model: nn.Module
    config: Any
    parameters: Mapping[str, inspect.Parameter]

    @classmethod
    def of(cls, model: nn.Module) -> Facts | None:
        """The facts of a model; None for a model that is not the library's."""
        config = getattr(model, "config", None)
        if config is None or not any(kind.__module__.startswith("transformers.") for kind in type(model).__mro__):
            return None
        return cls(model, config, inspect.signature(model.forward).parameters)

    def configs(self, part: str) -> Iterator[Any]:
        """The configurations that may describe a part: its own first, then the whole one, then all others."""
        yield from _iterate_nested_configs(self.config, PARTS[part], 0)
        yield self.config
        yield from _all_nested(self.config, 0)

    def says(self, name: str) -> bool:
        """Does some configuration have this attribute?"""
        return self.get("text", (name,)) is not None

    def near(self, part: str, names: tuple[str, ...]) -> Any:
        """As `get`, but not from configurations of other parts."""
        for config in (*_iterate_nested_configs(self.config, PARTS[part], 0), self.config):
            for name in names:
                if getattr(config, name, None) is not None:
                    return getattr(config, name)
        return None

    def has_part(self, part: str) -> bool:
        """Is there a nested configuration of this part?"""
        return next(_iterate_nested_configs(self.config, PARTS[part][:-1], 0), None) is not None

    def get(self, part: str, names: tuple[str, ...], default: Any = None) -> Any:
        """The first of these attributes that some configuration of the part has."""
        for config in self.configs(part):
            for name in names:
                value = getattr(config, name, None)
                if value is not None:
                    return value
        return default

    def number(self, part: str, names: tuple[str, ...], default: int) -> int:
        """As `get`, for one number: the first if there are several."""
        value = self.get(part, names, default)
        while isinstance(value, list | tuple) and value:
            value = value[0]
        return int(value) if isinstance(value, int | float) else default

    def vocabulary(self, part: str = "text") -> int:
        """The number of tokens: that of the embedding, or of the configuration."""
        embedding = _ask_library(getattr(self.model, "get_input_embeddings", None)) if part == "text" else None
        if isinstance(embedding, nn.Embedding):
            return embedding.num_embeddings
        return self.number(part, VOCABULARY, 1000)

    def sides(self) -> tuple[int, int]:
        """Height and width of an image."""
        side = self.get("vision", SIDE) or self._from_codes()
        if isinstance(side, Mapping):
            return int(side.get("height", 224)), int(side.get("width", 224))
        if isinstance(side, list | tuple):
            return (int(side[0]), int(side[-1]))
        if ratios := self.get("vision", ("scaled_images_ratios",)):
            side = self.number("vision", PATCH, int(side)) / min(ratios)
        windows = self.number("vision", ("num_windows_side", "num_windows"), 1)
        step = windows * self.number("vision", PATCH, 1) if windows > 1 else 1
        whole = max(step, int(side) // step * step)
        return whole, whole

    def _from_codes(self) -> int:
        """The side of an image that an encoder turns into the configuration's number of rows of codes."""
        codes, multipliers = (getattr(self.config, name, None) for name in ("num_patches", "channel_multiplier"))
        return codes << (len(multipliers) - 1) if isinstance(codes, int) and multipliers else 224


def _iterate_nested_configs(config: Any, names: tuple[str, ...], depth: int) -> Iterator[Any]:
    for name in names:
        part = getattr(config, name, None)
        if part is not None and hasattr(part, "to_dict") and depth < 3:
            yield from _iterate_nested_configs(part, names, depth + 1)
            yield part


def _all_nested(config: Any, depth: int) -> Iterator[Any]:
    for part in vars(config).values() if depth < 3 else ():
        if hasattr(part, "to_dict"):
            yield part
            yield from _all_nested(part, depth + 1)


def _ask_library(ask: Callable[[], Any] | None) -> Any:
    """The library's answer; None if it does not know."""
    if ask is None:
        return None
    try:
        return ask()
    except (NotImplementedError, AttributeError):
        return None
