"""Inputs of Hugging Face models, from their configuration."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from mase_server.tracing.inputs.library.huggingface_config import CHANNELS, MELS, PATCH, VOCABULARY, WIDTH, Facts
from mase_server.tracing.inputs.library.images import (
    BATCH,
    GRID,
    flatten_spec,
    image_sizes,
    join_parts,
    make_grid_spec,
    make_integer_spec,
    make_patches_spec,
    make_video_spec,
    patch_width,
    pixel_values,
    wants_sizes,
)
from mase_server.tracing.inputs.searching.consumers import floats, indices
from mase_server.tracing.inputs.spec import Dim, Inputs, Spec, TensorSpec, inputs_at
from mase_server.tracing.recording.shadow import MetaMode, Shadows
from mase_server.tracing.recording.state import preserve_state
from mase_server.tracing.recording.values import Rebuild

LABEL_NAMES = ("labels", "start_positions", "end_positions")

#: Optional parameters that are only useful together with others -> those others.
COMPANIONS: Mapping[str, tuple[str, ...]] = {
    "pixel_values": (
        "grid_thw", "image_grid_thw", "image_sizes", "spatial_shapes", "pixel_position_ids", "image_position_ids",
        "aspect_ratio_ids", "aspect_ratio_mask", "image_attention_mask", "target_sizes",
    ),
    "input_ids": ("bbox", "visual_feats", "visual_pos", "encoder_hidden_states"),
    "hidden_states": ("attention_mask",),
    "input_features": ("feature_lens",),
    "states": ("actions", "rewards", "returns_to_go", "timesteps", "attention_mask"),
    "spatial_shapes": ("pixel_attention_mask",),
}  # fmt: skip

#: Optional inputs that are always given if they can be made.
ALWAYS = ("decoder_input_ids", "decoder_input_values", "encoder_hidden_states")


def library_inputs(model: nn.Module) -> dict[str, Spec] | None:
    """The likeliest inputs of a model of the library, by parameter name; None for any other model."""
    return next(iter(library_choices(model)), None)


def library_choices(model: nn.Module) -> list[dict[str, Spec]]:
    """Alternative inputs of a model of the library, the likeliest first; none for other models."""
    facts = Facts.of(model)
    if facts is None:
        return []
    found = {name: FAMILIES[name](facts) for name in dict.fromkeys(_iterate_given_names(facts)) if name in FAMILIES}
    if not found or any(name not in found for name in _list_required_inputs(facts)):
        return []
    needed = {*_list_main_inputs(facts), *_list_required_inputs(facts), *ALWAYS}
    least = {name: spec for name, spec in found.items() if name in needed}
    sets = [with_placeholders(facts, found), least]
    if "inputs_embeds" in facts.parameters and not _list_required_inputs(facts):
        sets.append({"inputs_embeds": FAMILIES["inputs_embeds"](facts)})
    if isinstance(clip := found.get("pixel_values"), TensorSpec) and len(clip.dims) > 4:
        sets.append({**least, "pixel_values": make_patches_spec(facts) if "grid_thw" in found else flatten_spec(clip)})
    return [each for index, each in enumerate(sets) if each and each not in sets[:index]]


def _list_main_inputs(facts: Facts) -> tuple[str, ...]:
    main = getattr(facts.model, "main_input_name", None)
    names = tuple(main) if isinstance(main, list | tuple) else (main,)
    return tuple(name for name in names if isinstance(name, str) and name in facts.parameters)


def _list_required_inputs(facts: Facts) -> list[str]:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [name for name, each in facts.parameters.items() if each.default is each.empty and each.kind not in variable]


def _iterate_given_names(facts: Facts) -> Iterator[str]:
    """The parameters to give: main and required ones, further ones that it sees or reads, and those that belong to
    them."""
    first = [*_list_main_inputs(facts), *_list_required_inputs(facts)]
    if "pixel_values" in facts.parameters and facts.has_part("vision"):
        first.append("pixel_values")
    if "pixel_values" in first and "input_ids" in facts.parameters and _has_text_part(facts):
        first.append("input_ids")
    first = first or [name for name in facts.parameters if name in FAMILIES][:1]
    if getattr(facts.config, "is_encoder_decoder", False):
        first += ["decoder_input_ids", "decoder_input_values"]
    for name in first:
        if name in facts.parameters:
            yield name
            yield from (other for other in COMPANIONS.get(name, ()) if _goes_along(facts, other))


def _goes_along(facts: Facts, name: str) -> bool:
    if name == "encoder_hidden_states" and not hasattr(facts.config, "cross_hidden_size"):
        return False
    return name in facts.parameters and (name != "image_sizes" or wants_sizes(facts))


def _has_text_part(facts: Facts) -> bool:
    return facts.has_part("text") or getattr(facts.config, "vocab_size", None) is not None


# The inputs of Hugging Face models, by the name of the parameter.

Maker = Callable[[Facts], Spec]

#: Samples of sound: a multiple of what encoders step by.
SAMPLES = 15360
FRAMES = 100
#: The default number of samples in a frame.
HOP = 320


def input_ids(facts: Facts) -> Spec:
    """Tokens; for models that read several codebooks at once, one for each."""
    books = [layer for name, layer in facts.model.named_modules() if name.endswith("embed_tokens")]
    if len(books) == 1 and isinstance(books[0], nn.ModuleList):
        return flatten_spec(indices(facts.vocabulary(), "B", len(books[0]), "T"))
    if any(_adds_channels(layer) for layer in facts.model.modules()):
        return indices(facts.number("text", VOCABULARY, 1000), "B", "T", facts.number("text", CHANNELS, 1))
    return indices(facts.vocabulary(), "B", "T")


def _adds_channels(layer: nn.Module) -> bool:
    """Is this one table for several codebooks, whose embeddings it adds?"""
    return hasattr(layer, "num_channels") and isinstance(getattr(layer, "offsets", None), torch.Tensor)


def decoder_ids(facts: Facts) -> Spec:
    """Tokens of the decoder."""
    return indices(facts.vocabulary(), "B", "S")


def make_samples_spec(facts: Facts) -> Spec:
    """Sound: spectrograms for models that want them, else samples, with channels for codecs."""
    if hasattr(facts.config, "num_mel_bins") and hasattr(facts.config, "max_length"):
        return floats("B", facts.config.max_length, facts.config.num_mel_bins)
    if not any(isinstance(layer, nn.Conv1d) for layer in facts.model.modules()):
        return make_hidden_spec(facts)
    hop = facts.number("audio", ("hop_length", "downsample_factor"), 1)
    count = math.ceil(SAMPLES / hop) * hop
    if _is_codec(facts):
        return floats("B", facts.number("audio", ("audio_channels", "num_channels"), 1), count)
    return floats("B", count)


def _is_codec(facts: Facts) -> bool:
    """Does it take channels of sound? Codecs do, and models that compute codes from sound and its spectrogram
    together."""
    words = ("audio_channels", "upsampling_ratios", "upsampling_rates", "downsampling_ratios")
    both = {"input_values", "input_features"} <= set(facts.parameters)
    return both or hasattr(facts.config, "codebook_size") or any(map(facts.says, words))


def make_features_spec(facts: Facts) -> Spec:
    """Spectrograms: bins first as in Whisper, whose tables give the length; else frames first."""
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


def make_hidden_spec(facts: Facts) -> Spec:
    """Hidden states of a part; patches for a tower that also takes a grid."""
    if "grid_thw" in facts.parameters:
        return make_patches_spec(facts)
    if getattr(facts.model, "main_input_name", None) == "pixel_values" and "inputs_embeds" not in facts.parameters:
        return pixel_values(facts)
    conv = next((layer for layer in facts.model.modules() if isinstance(layer, nn.Conv1d)), None)
    if getattr(facts.model, "main_input_name", None) == "input_values" and conv is not None:
        return floats("B", conv.in_channels, SAMPLES)
    return floats("B", "T", facts.number("text", WIDTH, 768))


def make_series_spec(facts: Facts) -> Spec:
    """Time series, with channels if the configuration counts them."""
    length = facts.number("text", ("context_length",), 64)
    channels = facts.number("text", ("num_input_channels",), 0)
    return floats("B", length, channels) if channels else floats("B", length)


def flattened_patches(facts: Facts) -> Spec:
    """Patches of an image, each after its row and its column."""
    channels, side = facts.number("vision", CHANNELS, 3), facts.number("vision", PATCH, 16)
    width = facts.number("vision", ("patch_embed_hidden_size",), channels * side**2)
    return join_parts(TensorSpec("f32", ("B", "T", 2), "ones"), floats("B", "T", width))


def _make_text_maker(*dims: Dim, fill: str = "ones") -> Maker:
    return lambda facts: make_integer_spec(fill, *dims)


def _make_wide_maker(names: tuple[str, ...], default: int, *dims: Dim) -> Maker:
    return lambda facts: floats(*dims, facts.number("text", names, default))


#: Parameter -> the function that makes its specification.
FAMILIES: Mapping[str, Maker] = {
    "input_ids": input_ids,
    "decoder_input_ids": decoder_ids,
    "pixel_values": pixel_values,
    "images": pixel_values,
    "image": pixel_values,
    "pixel_values_videos": make_video_spec,
    "input_values": make_samples_spec,
    "input_features": make_features_spec,
    "audio_mel": lambda facts: floats("B", FRAMES, facts.number("audio", ("input_feat_size",), 128)),
    "audio_mel_mask": lambda facts: TensorSpec("bool", ("B", FRAMES), "zeros"),
    "input_features_mask": lambda facts: make_integer_spec("ones", "B", FRAMES),
    "hidden_states": make_hidden_spec,
    "inputs_embeds": make_hidden_spec,
    "query_embeds": make_hidden_spec,
    "patch_embeds": make_hidden_spec,
    "context": make_hidden_spec,
    "grid_thw": make_grid_spec,
    "image_grid_thw": make_grid_spec,
    "merge_sizes": lambda facts: make_integer_spec("ones", "B"),
    "image_sizes": image_sizes,
    "spatial_shapes": lambda facts: make_integer_spec("full", "B", 2, argument=GRID),
    "pixel_attention_mask": lambda facts: make_integer_spec("ones", "B", GRID * GRID),
    "pixel_position_ids": lambda facts: make_integer_spec("below", "B", GRID * GRID, 2, argument=GRID),
    "image_position_ids": lambda facts: make_integer_spec("below", "B", GRID * GRID, 2, argument=GRID),
    "aspect_ratio_ids": _make_text_maker("B", 1),
    "aspect_ratio_mask": lambda facts: make_integer_spec("ones", "B", 1, facts.number("vision", ("max_num_tiles",), 4)),
    "bbox": lambda facts: make_integer_spec("arange", "B", "T", 4),
    "attention_mask": _make_text_maker("B", "T"),
    "image_attention_mask": _make_text_maker("B", "T", 1),
    "decoder_input_values": _make_wide_maker(WIDTH, 768, "B", "S"),
    "encoder_hidden_states": _make_wide_maker(("cross_hidden_size",), 768, "B", "T"),
    "feature_lens": lambda facts: make_integer_spec("full", BATCH, argument=FRAMES),
    "target_sizes": lambda facts: make_integer_spec("full", BATCH, 2, argument=GRID),
    "qformer_input_ids": lambda facts: indices(facts.vocabulary("qformer"), "B", "T"),
    "visual_feats": _make_wide_maker(("visual_feat_dim",), 2048, "B", 36),
    "visual_pos": lambda facts: TensorSpec("f32", ("B", 36, 4), "uniform"),
    "states": _make_wide_maker(("state_dim",), 17, "B", "T"),
    "actions": _make_wide_maker(("act_dim",), 4, "B", "T"),
    "rewards": lambda facts: floats("B", "T", 1),
    "returns_to_go": lambda facts: floats("B", "T", 1),
    "timesteps": lambda facts: indices(facts.number("text", ("max_ep_len",), 100), "B", "T"),
    "inputs": lambda facts: floats("B", "T", facts.number("text", WIDTH, 768)),
    "flattened_patches": lambda facts: join_parts(
        TensorSpec("f32", ("B", "T", 2), "ones"), floats("B", "T", patch_width(facts))
    ),
    "past_values": make_series_spec,
    "past_values_padding": lambda facts: make_integer_spec("zeros", "B", facts.number("text", ("context_length",), 64)),
    "freq": lambda facts: make_integer_spec("zeros", "B", 1),
    "spectrogram": _make_wide_maker(("model_in_dim", "num_mel_bins"), 80, "B", FRAMES),
    "mel_spectrogram": lambda facts: floats("B", facts.number("audio", ("mel_dim",), 80), FRAMES),
    "latents": lambda facts: floats("B", facts.number("audio", WIDTH, 512), FRAMES),
    "prompt_pixel_values": pixel_values,
    "prompt_masks": pixel_values,
    "task_inputs": lambda facts: indices(
        facts.number("text", ("text_encoder_vocab_size",), 1000), "B", facts.number("text", ("task_seq_len",), 77)
    ),
    "chunk_sample_lengths": lambda facts: make_integer_spec("full", "B", argument=SAMPLES),
}


# Placeholders of an image in a text: as many tokens as the model makes features of the image.

#: Names of the token that represents a part of an image.
IMAGE_TOKENS = ("image_token_id", "image_token_index", "image_patch_id", "img_context_token_id", "video_token_index")


def with_placeholders(facts: Facts, found: Mapping[str, Spec]) -> dict[str, Spec]:
    """The same inputs, with the image's placeholders in the text if the model looks for them there."""
    if "image_embeds_position_mask" in facts.parameters and "pixel_values" in found:
        return _with_positions(facts, found)
    token = facts.get("text", IMAGE_TOKENS) or facts.get("vision", IMAGE_TOKENS)
    ids = found.get("input_ids")
    if not isinstance(token, int) or not isinstance(ids, TensorSpec) or "pixel_values" not in found:
        return dict(found)
    count = _count_image_features(facts, found)
    if not count or token >= facts.vocabulary():
        return {name: spec for name, spec in found.items() if _is_needed(facts, name) or not _goes_with_image(name)}
    places = make_integer_spec("full", "B", count, argument=token)
    # Words are drawn below the token, so that none of them is taken for a placeholder.
    words = replace(ids, argument=token) if token > 1 else make_integer_spec("full", *ids.dims, argument=token + 1)
    full = {**found, "input_ids": join_parts(words, places)}
    if "mm_token_type_ids" in facts.parameters:
        full["mm_token_type_ids"] = join_parts(
            make_integer_spec("zeros", "B", "T"), make_integer_spec("ones", "B", count)
        )
    return full


def _with_positions(facts: Facts, found: Mapping[str, Spec]) -> dict[str, Spec]:
    """The same inputs for a model that takes a mask of its own for the image's positions."""
    count = facts.number("text", ("latent_query_num",), 64)
    places = join_parts(make_integer_spec("zeros", "B", "T"), make_integer_spec("ones", "B", count))
    return {
        **found,
        "input_ids": join_parts(found["input_ids"], make_integer_spec("zeros", "B", count)),
        "image_embeds_position_mask": places,
    }


def _is_needed(facts: Facts, name: str) -> bool:
    return facts.parameters[name].default is inspect.Parameter.empty


def _goes_with_image(name: str) -> bool:
    return name.startswith(("pixel_", "image_", "spatial_", "aspect_", "grid_"))


def _count_image_features(facts: Facts, found: Mapping[str, Spec]) -> int:
    """The number of features that the model makes of one image, by its own method on meta; 0 if it has none."""
    asked = (getattr(facts.model, name, None) for name in ("get_image_features", "get_video_features"))
    return next((rows for ask in asked if ask is not None and (rows := _rows_of(facts, ask, found))), 0) // BATCH


def _rows_of(facts: Facts, ask: Callable[..., Any], found: Mapping[str, Spec]) -> int:
    accepted = inspect.signature(ask).parameters
    given = inputs_at(Inputs({name: spec for name, spec in found.items() if name in accepted}, {"B": BATCH}))
    shadows = Shadows()
    try:
        with preserve_state(facts.model, shadows), MetaMode(shadows), torch.no_grad():
            return _count_feature_rows(ask(**{name: _make_twin(value, shadows) for name, value in given.items()}))
    except Exception:  # noqa: BLE001 - the library's own code, on a guess; the text then goes alone
        return 0


def _make_twin(value: Any, shadows: Shadows) -> Any:
    return shadows.twin(value) if isinstance(value, torch.Tensor) and not value.is_meta else value


def _count_feature_rows(features: Any) -> int:
    """Rows of the features that go into the text: all dimensions but the last."""
    if getattr(features, "pooler_output", None) is not None:
        features = features.pooler_output
    if isinstance(features, torch.Tensor):
        return int(features.numel() // features.shape[-1])
    return sum(int(each.numel() // each.shape[-1]) for each in Rebuild.of(features).tensors)
