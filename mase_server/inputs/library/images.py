"""What the images of Hugging Face models look like: whole, in tiles, or as patches, as their other parameters tell."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping

from torch import nn

from mase_server.inputs.library.combined import flat, join
from mase_server.inputs.library.huggingface_config import CHANNELS, PATCH, Facts
from mase_server.inputs.searching.consumers import floats
from mase_server.inputs.spec import Dim, Spec, TensorSpec

_PATCH_LAYER = re.compile(r"patch")
#: Sides of an image in patches, where the model takes patches of images of any size.
GRID = 8
#: How many, where a symbol cannot say it.
BATCH = 2


def whole(fill: str, *dims: Dim, argument: int | None = None) -> TensorSpec:
    """Whole numbers made in this way."""
    return TensorSpec("i64", dims, fill, argument)


def pixel_values(facts: Facts) -> Spec:
    """Images; the other parameters tell in which of the library's forms."""
    channels = facts.number("vision", CHANNELS, 3)
    height, width = facts.sides()
    if any(hasattr(facts.config, name) for name in ("num_frames", "frames_per_clip")) or _only_clips(facts):
        return video(facts)
    for name, form in _FORMS.items():
        if name in facts.parameters:
            return form(facts, channels, height, width)
    if facts.get("vision", ("image_grid_pinpoints",)) and "image_sizes" in facts.parameters:
        return floats("B", _tiles(facts, height), channels, height, width)
    return floats("B", channels, height, width)


def _only_clips(facts: Facts) -> bool:
    """Does a text stand for clips, but never for images?"""
    words = [name for name in vars(facts.config) if "token_i" in name]
    return any("video" in name for name in words) and not any("image" in name for name in words)


def patches(facts: Facts) -> Spec:
    """Images cut into patches, those of all images in one row."""
    return flat(floats("B", GRID * GRID, patch_width(facts)))


def patch_width(facts: Facts) -> int:
    """Numbers in one patch of an image: as many as the first layer takes, or as the configuration says."""
    for name, layer in facts.model.named_modules():
        if _PATCH_LAYER.search(name) and isinstance(layer, nn.Linear):
            return layer.in_features
        if _PATCH_LAYER.search(name) and isinstance(layer, nn.Conv2d | nn.Conv3d):
            return layer.in_channels * math.prod(layer.kernel_size)
    frames = facts.number("vision", ("temporal_patch_size",), 1)
    return frames * facts.number("vision", CHANNELS, 3) * facts.number("vision", PATCH, 14) ** 2


def _padded_patches(facts: Facts, channels: int, height: int, width: int) -> Spec:
    return floats("B", GRID * GRID, patch_width(facts))


def _several(facts: Facts, channels: int, height: int, width: int) -> Spec:
    return floats("B", 1, channels, height, width)


def _pair(facts: Facts, channels: int, height: int, width: int) -> Spec:
    return floats("B", 2, channels, height, width)


def _tiled(facts: Facts, channels: int, height: int, width: int) -> Spec:
    return floats("B", 1, facts.number("vision", ("max_num_tiles",), 4), channels, height, width)


def _in_patches(facts: Facts, channels: int, height: int, width: int) -> Spec:
    side = facts.number("vision", PATCH, 14)
    for name, layer in facts.model.named_modules():
        if isinstance(layer, nn.Conv2d) and name.endswith("patch_embed.proj"):
            return flat(floats("B", GRID * GRID, channels, side, side))
        if isinstance(layer, nn.Conv2d) and name.endswith("patch_embedding") and "grid_thw" in facts.parameters:
            return floats(1, BATCH * GRID * GRID, channels, side, side)
    return patches(facts)


def _in_one_row(facts: Facts, channels: int, height: int, width: int) -> Spec:
    side = facts.number("vision", PATCH, 14)
    return floats(1, channels, side, BATCH * GRID * GRID * side)


def _half(facts: Facts, channels: int, height: int, width: int) -> Spec:
    return floats("B", channels, height // 2, width)


#: A parameter that tells the form of images -> that form.
_FORMS: Mapping[str, Callable[[Facts, int, int, int], Spec]] = {
    "spatial_shapes": _padded_patches,
    "pixel_position_ids": _padded_patches,
    "image_position_ids": _padded_patches,
    "aspect_ratio_ids": _tiled,
    "image_grid_thw": _in_patches,
    "grid_thw": _in_patches,
    "target_sizes": _in_one_row,
    "prompt_pixel_values": _half,
    "perceiver_embeddings": _several,
    "image_hidden_states": _several,
    "pixel_attention_mask": _several,
}


def _tiles(facts: Facts, side: int) -> int:
    """How many parts the library's own function cuts a square image into, the whole one included."""
    count = getattr(sys.modules[type(facts.model).__module__], "image_size_to_num_patches", None)
    points = facts.get("vision", ("image_grid_pinpoints",))
    return int(count([side, side], points, side)) if count is not None else 2


def grid(facts: Facts) -> Spec:
    """Frames, rows and columns of patches of each image."""
    return join(whole("ones", "B", 1), whole("full", "B", 2, argument=GRID))


def wants_sizes(facts: Facts) -> bool:
    """Are images told with their sizes? Those that are cut into tiles, and those of Pixtral's towers."""
    tiled = facts.get("vision", ("image_grid_pinpoints",)) is not None
    return tiled or any(type(part).__name__.startswith("Pixtral") for part in facts.model.modules())


def image_sizes(facts: Facts) -> Spec:
    """Height and width of each image."""
    return whole("full", "B", 2, argument=facts.sides()[0])


def video(facts: Facts) -> Spec:
    """Clips of images."""
    frames = facts.number("vision", ("num_frames", "frames_per_clip"), 8)
    return floats("B", frames, facts.number("vision", CHANNELS, 3), *facts.sides())
