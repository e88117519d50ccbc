"""Images for Hugging Face models: whole, in tiles, or as patches, as the models' other parameters require."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from mase_server.tracing.inputs.library.huggingface_config import CHANNELS, PATCH, Facts
from mase_server.tracing.inputs.searching.consumers import floats
from mase_server.tracing.inputs.spec import Dim, SequenceSpec, Spec, TensorSpec

_PATCH_LAYER = re.compile(r"patch")
#: Sides of an image in patches, if the model takes patches of images of any size.
GRID = 8
#: The number of images, if no symbol can give it.
BATCH = 2


def make_integer_spec(fill: str, *dims: Dim, argument: int | None = None) -> TensorSpec:
    """Integers made with this fill."""
    return TensorSpec("i64", dims, fill, argument)


def pixel_values(facts: Facts) -> Spec:
    """Images, in the form of the library that the other parameters indicate."""
    channels = facts.number("vision", CHANNELS, 3)
    height, width = facts.sides()
    if any(hasattr(facts.config, name) for name in ("num_frames", "frames_per_clip")) or _only_clips(facts):
        return make_video_spec(facts)
    for name, form in _FORMS.items():
        if name in facts.parameters:
            return form(facts, channels, height, width)
    if facts.get("vision", ("image_grid_pinpoints",)) and "image_sizes" in facts.parameters:
        return floats("B", _count_tiles(facts, height), channels, height, width)
    return floats("B", channels, height, width)


def _only_clips(facts: Facts) -> bool:
    """Can the text only contain placeholders for clips, not for images?"""
    words = [name for name in vars(facts.config) if "token_i" in name]
    return any("video" in name for name in words) and not any("image" in name for name in words)


def make_patches_spec(facts: Facts) -> Spec:
    """Images cut into patches, those of all images in one row."""
    return flatten_spec(floats("B", GRID * GRID, patch_width(facts)))


def patch_width(facts: Facts) -> int:
    """Numbers in one patch of an image: those that the first layer takes, or the configuration's."""
    for name, layer in facts.model.named_modules():
        if _PATCH_LAYER.search(name) and isinstance(layer, nn.Linear):
            return layer.in_features
        if _PATCH_LAYER.search(name) and isinstance(layer, nn.Conv2d | nn.Conv3d):
            return layer.in_channels * math.prod(layer.kernel_size)
    frames = facts.number("vision", ("temporal_patch_size",), 1)
    return frames * facts.number("vision", CHANNELS, 3) * facts.number("vision", PATCH, 14) ** 2


def _padded_patches(facts: Facts, channels: int, height: int, width: int) -> Spec:
    return floats("B", GRID * GRID, patch_width(facts))


def _make_image_series(facts: Facts, channels: int, height: int, width: int) -> Spec:
    return floats("B", 1, channels, height, width)


def _make_image_pair(facts: Facts, channels: int, height: int, width: int) -> Spec:
    return floats("B", 2, channels, height, width)


def _make_tiled_image(facts: Facts, channels: int, height: int, width: int) -> Spec:
    return floats("B", 1, facts.number("vision", ("max_num_tiles",), 4), channels, height, width)


def _in_patches(facts: Facts, channels: int, height: int, width: int) -> Spec:
    side = facts.number("vision", PATCH, 14)
    for name, layer in facts.model.named_modules():
        if isinstance(layer, nn.Conv2d) and name.endswith("patch_embed.proj"):
            return flatten_spec(floats("B", GRID * GRID, channels, side, side))
        if isinstance(layer, nn.Conv2d) and name.endswith("patch_embedding") and "grid_thw" in facts.parameters:
            return floats(1, BATCH * GRID * GRID, channels, side, side)
    return make_patches_spec(facts)


def _in_one_row(facts: Facts, channels: int, height: int, width: int) -> Spec:
    side = facts.number("vision", PATCH, 14)
    return floats(1, channels, side, BATCH * GRID * GRID * side)


def _make_half_image(facts: Facts, channels: int, height: int, width: int) -> Spec:
    return floats("B", channels, height // 2, width)


#: A parameter that indicates a form of images -> that form.
_FORMS: Mapping[str, Callable[[Facts, int, int, int], Spec]] = {
    "spatial_shapes": _padded_patches,
    "pixel_position_ids": _padded_patches,
    "image_position_ids": _padded_patches,
    "aspect_ratio_ids": _make_tiled_image,
    "image_grid_thw": _in_patches,
    "grid_thw": _in_patches,
    "target_sizes": _in_one_row,
    "prompt_pixel_values": _make_half_image,
    "perceiver_embeddings": _make_image_series,
    "image_hidden_states": _make_image_series,
    "pixel_attention_mask": _make_image_series,
}


def _count_tiles(facts: Facts, side: int) -> int:
    """The number of parts into which the library's own function cuts a square image, including the whole one."""
    count = getattr(sys.modules[type(facts.model).__module__], "image_size_to_num_patches", None)
    points = facts.get("vision", ("image_grid_pinpoints",))
    return int(count([side, side], points, side)) if count is not None else 2


def make_grid_spec(facts: Facts) -> Spec:
    """Frames, rows and columns of patches of each image."""
    return join_parts(make_integer_spec("ones", "B", 1), make_integer_spec("full", "B", 2, argument=GRID))


def wants_sizes(facts: Facts) -> bool:
    """Does the model take images with their sizes? Models that cut tiles do, and Pixtral's towers."""
    tiled = facts.get("vision", ("image_grid_pinpoints",)) is not None
    return tiled or any(type(part).__name__.startswith("Pixtral") for part in facts.model.modules())


def image_sizes(facts: Facts) -> Spec:
    """Height and width of each image."""
    return make_integer_spec("full", "B", 2, argument=facts.sides()[0])


def make_video_spec(facts: Facts) -> Spec:
    """Clips of images."""
    frames = facts.number("vision", ("num_frames", "frames_per_clip"), 8)
    return floats("B", frames, facts.number("vision", CHANNELS, 3), *facts.sides())


# Tensors that are made from several others, such as a row of text with an image's placeholders in it.


def _concatenate_parts(values: list[Any]) -> torch.Tensor:
    return torch.cat(values, -1)


def _flatten_batch(values: list[Any]) -> torch.Tensor:
    flattened: torch.Tensor = values[0].flatten(0, 1)
    return flattened


def as_array(values: list[Any]) -> Any:
    """A numpy array, for a forward that makes its tensors itself."""
    return values[0].numpy()


#: Words of the text form -> how the parts become one value.
COMBINATIONS: dict[str, Callable[[list[Any]], Any]] = {
    "join": _concatenate_parts,
    "flat": _flatten_batch,
    "array": as_array,
}


def join_parts(*parts: Spec) -> SequenceSpec:
    """Parts side by side in the last dimension."""
    return SequenceSpec(parts, build=_concatenate_parts)


def flatten_spec(whole: Spec) -> SequenceSpec:
    """A tensor whose first two dimensions are one."""
    return SequenceSpec((whole,), build=_flatten_batch)


def word_of(build: Callable[[list[Any]], Any] | None) -> str:
    """The word for a way to combine; empty for any other."""
    return next((word for word, each in COMBINATIONS.items() if each is build), "")
