"""What the inputs of Hugging Face models look like, by the name of the parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import nn

from mase_server.inputs.library.combined import flat, join
from mase_server.inputs.library.huggingface_config import CHANNELS, MELS, PATCH, VOCABULARY, WIDTH, Facts
from mase_server.inputs.library.images import (
    BATCH,
    GRID,
    grid,
    image_sizes,
    patch_width,
    patches,
    pixel_values,
    video,
    whole,
)
from mase_server.inputs.searching.consumers import floats, indices
from mase_server.inputs.spec import Dim, Spec, TensorSpec

Maker = Callable[[Facts], Spec]

#: Samples of sound: a multiple of what encoders step by.
SAMPLES = 15360
FRAMES = 100
#: Samples to a frame where nobody says how many.
HOP = 320


def input_ids(facts: Facts) -> Spec:
    """Tokens; of models that read several codebooks at once, one of each."""
    books = [layer for name, layer in facts.model.named_modules() if name.endswith("embed_tokens")]
    if len(books) == 1 and isinstance(books[0], nn.ModuleList):
        return flat(indices(facts.vocabulary(), "B", len(books[0]), "T"))
    if any(_adds_channels(layer) for layer in facts.model.modules()):
        return indices(facts.number("text", VOCABULARY, 1000), "B", "T", facts.number("text", CHANNELS, 1))
    return indices(facts.vocabulary(), "B", "T")


def _adds_channels(layer: nn.Module) -> bool:
    """Is this one table for several codebooks, whose embeddings it adds?"""
    return hasattr(layer, "num_channels") and isinstance(getattr(layer, "offsets", None), torch.Tensor)


def decoder_ids(facts: Facts) -> Spec:
    """Tokens of the decoder."""
    return indices(facts.vocabulary(), "B", "S")


def samples(facts: Facts) -> Spec:
    """Sound: spectrograms for those who want them, else samples, with channels for codecs."""
    if hasattr(facts.config, "num_mel_bins") and hasattr(facts.config, "max_length"):
        return floats("B", facts.config.max_length, facts.config.num_mel_bins)
    if not any(isinstance(layer, nn.Conv1d) for layer in facts.model.modules()):
        return hidden(facts)
    hop = facts.number("audio", ("hop_length", "downsample_factor"), 1)
    count = math.ceil(SAMPLES / hop) * hop
    if _is_codec(facts):
        return floats("B", facts.number("audio", ("audio_channels", "num_channels"), 1), count)
    return floats("B", count)


def _is_codec(facts: Facts) -> bool:
    """Does it take channels of sound? Codecs do, and what makes codes of sound and its spectrogram together."""
    words = ("audio_channels", "upsampling_ratios", "upsampling_rates", "downsampling_ratios")
    both = {"input_values", "input_features"} <= set(facts.parameters)
    return both or hasattr(facts.config, "codebook_size") or any(map(facts.says, words))


def features(facts: Facts) -> Spec:
    """Spectrograms: bins first in the manner of Whisper, whose tables say how long they are; else frames first."""
    bins = facts.number("audio", MELS, 80)
    if "feature_lens" in facts.parameters:
        return floats(bins, BATCH * FRAMES)
    if "chunk_sample_lengths" in facts.parameters or hasattr(facts.config, "n_window"):
        return floats("B", bins, FRAMES)
    if "input_values" in facts.parameters and _is_codec(facts):
        return floats("B", SAMPLES // facts.number("audio", ("hop_length",), HOP), bins)
    frames = facts.near("audio", ("max_source_positions",))
    if frames and not hasattr(facts.config, "input_feat_per_channel"):
        return floats("B", bins, 2 * frames)
    return floats("B", FRAMES, bins)


def hidden(facts: Facts) -> Spec:
    """Hidden states of a part; of a tower that also takes a grid, patches."""
    if "grid_thw" in facts.parameters:
        return patches(facts)
    if getattr(facts.model, "main_input_name", None) == "pixel_values" and "inputs_embeds" not in facts.parameters:
        return pixel_values(facts)
    conv = next((layer for layer in facts.model.modules() if isinstance(layer, nn.Conv1d)), None)
    if getattr(facts.model, "main_input_name", None) == "input_values" and conv is not None:
        return floats("B", conv.in_channels, SAMPLES)
    return floats("B", "T", facts.number("text", WIDTH, 768))


def series(facts: Facts) -> Spec:
    """Time series, with channels where the configuration counts them."""
    length = facts.number("text", ("context_length",), 64)
    channels = facts.number("text", ("num_input_channels",), 0)
    return floats("B", length, channels) if channels else floats("B", length)


def flattened_patches(facts: Facts) -> Spec:
    """Patches of an image, each after its row and its column."""
    channels, side = facts.number("vision", CHANNELS, 3), facts.number("vision", PATCH, 16)
    width = facts.number("vision", ("patch_embed_hidden_size",), channels * side**2)
    return join(TensorSpec("f32", ("B", "T", 2), "ones"), floats("B", "T", width))


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
    "patch_embeds": hidden,
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
    "image_attention_mask": _text("B", "T", 1),
    "decoder_input_values": _wide(WIDTH, 768, "B", "S"),
    "encoder_hidden_states": _wide(("cross_hidden_size",), 768, "B", "T"),
    "feature_lens": lambda facts: whole("full", BATCH, argument=FRAMES),
    "target_sizes": lambda facts: whole("full", BATCH, 2, argument=GRID),
    "qformer_input_ids": lambda facts: indices(facts.vocabulary("qformer"), "B", "T"),
    "visual_feats": _wide(("visual_feat_dim",), 2048, "B", 36),
    "visual_pos": lambda facts: TensorSpec("f32", ("B", 36, 4), "uniform"),
    "states": _wide(("state_dim",), 17, "B", "T"),
    "actions": _wide(("act_dim",), 4, "B", "T"),
    "rewards": lambda facts: floats("B", "T", 1),
    "returns_to_go": lambda facts: floats("B", "T", 1),
    "timesteps": lambda facts: indices(facts.number("text", ("max_ep_len",), 100), "B", "T"),
    "inputs": lambda facts: floats("B", "T", facts.number("text", WIDTH, 768)),
    "flattened_patches": lambda facts: join(
        TensorSpec("f32", ("B", "T", 2), "ones"), floats("B", "T", patch_width(facts))
    ),
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
