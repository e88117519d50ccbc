"""What the inputs of Hugging Face models look like, by the name of the parameter."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping

from mase_server.inputs.combined import flat, join
from mase_server.inputs.consumers import floats, indices
from mase_server.inputs.huggingface_config import CHANNELS, MELS, PATCH, WIDTH, Facts
from mase_server.inputs.spec import Dim, Spec, TensorSpec

Maker = Callable[[Facts], Spec]

#: Sides of an image in patches, where the model takes patches of images of any size.
GRID = 8
SAMPLES = 16000
FRAMES = 100


def whole(fill: str, *dims: Dim, argument: int | None = None) -> TensorSpec:
    """Whole numbers made in this way."""
    return TensorSpec("i64", dims, fill, argument)


def pixel_values(facts: Facts) -> Spec:
    """Images; the other parameters tell in which of the library's forms."""
    channels = facts.number("vision", CHANNELS, 3)
    height, width = facts.sides()
    for name, form in _FORMS.items():
        if name in facts.parameters:
            return form(facts, channels, height, width)
    if facts.get("vision", ("image_grid_pinpoints",)) and "image_sizes" in facts.parameters:
        return floats("B", _tiles(facts, height), channels, height, width)
    return floats("B", channels, height, width)


def patches(facts: Facts) -> Spec:
    """Images cut into patches, those of all images in one row."""
    return flat(floats("B", GRID * GRID, _patch(facts) * facts.number("vision", ("temporal_patch_size",), 1)))


def _patch(facts: Facts) -> int:
    """Numbers in one patch of an image."""
    return facts.number("vision", CHANNELS, 3) * facts.number("vision", PATCH, 14) ** 2


def _padded_patches(facts: Facts, channels: int, height: int, width: int) -> Spec:
    return floats("B", GRID * GRID, _patch(facts))


def _several(facts: Facts, channels: int, height: int, width: int) -> Spec:
    return floats("B", 1, channels, height, width)


def _pair(facts: Facts, channels: int, height: int, width: int) -> Spec:
    return floats("B", 2, channels, height, width)


def _tiled(facts: Facts, channels: int, height: int, width: int) -> Spec:
    return floats("B", 1, facts.number("vision", ("max_num_tiles",), 4), channels, height, width)


def _in_patches(facts: Facts, channels: int, height: int, width: int) -> Spec:
    layer = next((each for name, each in facts.model.named_modules() if name.endswith("patch_embed.proj")), None)
    if type(layer).__name__ == "Conv2d":
        side = facts.number("vision", PATCH, 14)
        return flat(floats("B", GRID * GRID, channels, side, side))
    return patches(facts)


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
    "prompt_pixel_values": _half,
    "perceiver_embeddings": _several,
    "image_hidden_states": _several,
}


def _tiles(facts: Facts, side: int) -> int:
    """How many parts the library's own function cuts a square image into, the whole one included."""
    count = getattr(sys.modules[type(facts.model).__module__], "image_size_to_num_patches", None)
    points = facts.get("vision", ("image_grid_pinpoints",))
    return int(count([side, side], points, side)) if count is not None else 2


def grid(facts: Facts) -> Spec:
    """Frames, rows and columns of patches of each image."""
    return join(whole("ones", "B", 1), whole("full", "B", 2, argument=GRID))


def image_sizes(facts: Facts) -> Spec:
    """Height and width of each image."""
    return whole("full", "B", 2, argument=facts.sides()[0])


def video(facts: Facts) -> Spec:
    """Clips of images."""
    frames = facts.number("vision", ("num_frames", "frames_per_clip"), 8)
    return floats("B", frames, facts.number("vision", CHANNELS, 3), *facts.sides())


def input_ids(facts: Facts) -> Spec:
    """Tokens; of models that read several codebooks at once, one of each."""
    return indices(facts.vocabulary(), "B", "T")


def decoder_ids(facts: Facts) -> Spec:
    """Tokens of the decoder."""
    return indices(facts.vocabulary(), "B", "S")


def samples(facts: Facts) -> Spec:
    """Sound: spectrograms for those who want them, else samples, with channels for codecs."""
    if hasattr(facts.config, "num_mel_bins") and hasattr(facts.config, "max_length"):
        return floats("B", facts.config.max_length, facts.config.num_mel_bins)
    hop = facts.number("audio", ("hop_length", "downsample_factor"), 1)
    count = math.ceil(SAMPLES / hop) * hop
    if _is_codec(facts):
        return floats("B", facts.number("audio", ("audio_channels", "num_channels"), 1), count)
    return floats("B", count)


def _is_codec(facts: Facts) -> bool:
    return any(hasattr(facts.config, name) for name in ("audio_channels", "codebook_size", "upsampling_ratios"))


def features(facts: Facts) -> Spec:
    """Spectrograms: bins first in the manner of Whisper, whose tables say how long they are; else frames first."""
    bins = facts.number("audio", MELS, 80)
    frames = facts.number("audio", ("max_source_positions",), 0)
    if frames and not hasattr(facts.config, "input_feat_per_channel"):
        return floats("B", bins, 2 * frames)
    return floats("B", FRAMES, bins)


def hidden(facts: Facts) -> Spec:
    """Hidden states of a part; of a tower that also takes a grid, patches."""
    if "grid_thw" in facts.parameters:
        return patches(facts)
    return floats("B", "T", facts.number("text", WIDTH, 768))


def series(facts: Facts) -> Spec:
    """Time series, with channels where the configuration counts them."""
    length = facts.number("text", ("context_length",), 64)
    channels = facts.number("text", ("num_input_channels",), 0)
    return floats("B", length, channels) if channels else floats("B", length)


def _text(*dims: Dim, fill: str = "ones") -> Maker:
    return lambda facts: whole(fill, *dims)


def _wide(names: tuple[str, ...], default: int, *dims: Dim) -> Maker:
    return lambda facts: floats(*dims, facts.number("text", names, default))


#: Parameter -> what it looks like.
FAMILIES: Mapping[str, Maker] = {
    "input_ids": input_ids,
    "decoder_input_ids": decoder_ids,
    "pixel_values": pixel_values,
    "images": pixel_values,
    "image": pixel_values,
    "pixel_values_videos": video,
    "input_values": samples,
    "input_features": features,
    "audio_mel": lambda facts: floats("B", FRAMES, facts.number("audio", ("input_feat_size",), 128)),
    "audio_mel_mask": lambda facts: TensorSpec("bool", ("B", FRAMES), "zeros"),
    "input_features_mask": lambda facts: whole("ones", "B", FRAMES),
    "hidden_states": hidden,
    "inputs_embeds": hidden,
    "query_embeds": hidden,
    "context": hidden,
    "grid_thw": grid,
    "image_grid_thw": grid,
    "merge_sizes": lambda facts: whole("ones", "B"),
    "image_sizes": image_sizes,
    "spatial_shapes": lambda facts: whole("full", "B", 2, argument=GRID),
    "pixel_attention_mask": lambda facts: whole("ones", "B", GRID * GRID),
    "pixel_position_ids": lambda facts: whole("below", "B", GRID * GRID, 2, argument=GRID),
    "image_position_ids": lambda facts: whole("below", "B", GRID * GRID, 2, argument=GRID),
    "aspect_ratio_ids": _text("B", 1),
    "aspect_ratio_mask": lambda facts: whole("ones", "B", 1, facts.number("vision", ("max_num_tiles",), 4)),
    "bbox": lambda facts: whole("arange", "B", "T", 4),
    "attention_mask": _text("B", "T"),
    "qformer_input_ids": lambda facts: indices(facts.vocabulary("qformer"), "B", "T"),
    "visual_feats": _wide(("visual_feat_dim",), 2048, "B", 36),
    "visual_pos": lambda facts: TensorSpec("f32", ("B", 36, 4), "uniform"),
    "states": _wide(("state_dim",), 17, "B", "T"),
    "actions": _wide(("act_dim",), 4, "B", "T"),
    "rewards": lambda facts: floats("B", "T", 1),
    "returns_to_go": lambda facts: floats("B", "T", 1),
    "timesteps": lambda facts: indices(facts.number("text", ("max_ep_len",), 100), "B", "T"),
    "inputs": lambda facts: floats("B", "T", facts.number("text", WIDTH, 768)),
    "flattened_patches": lambda facts: join(TensorSpec("f32", ("B", "T", 2), "ones"), floats("B", "T", _patch(facts))),
    "past_values": series,
    "past_values_padding": lambda facts: whole("zeros", "B", facts.number("text", ("context_length",), 64)),
    "freq": lambda facts: whole("zeros", "B", 1),
    "spectrogram": _wide(("model_in_dim", "num_mel_bins"), 80, "B", FRAMES),
    "mel_spectrogram": lambda facts: floats("B", facts.number("audio", ("mel_dim",), 80), FRAMES),
    "latents": lambda facts: floats("B", facts.number("audio", WIDTH, 512), FRAMES),
    "prompt_pixel_values": pixel_values,
    "prompt_masks": pixel_values,
    "task_inputs": lambda facts: indices(
        facts.number("text", ("text_encoder_vocab_size",), 1000), "B", facts.number("text", ("task_seq_len",), 77)
    ),
    "chunk_sample_lengths": lambda facts: whole("full", "B", argument=SAMPLES),
}
