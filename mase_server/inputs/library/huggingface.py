"""Inputs of Hugging Face models, from their configuration."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping

from torch import nn

from mase_server.inputs.library.combined import flat
from mase_server.inputs.library.families import FAMILIES
from mase_server.inputs.library.huggingface_config import Facts
from mase_server.inputs.library.images import patches, wants_sizes
from mase_server.inputs.library.placeholders import with_placeholders
from mase_server.inputs.spec import Spec, TensorSpec

LABEL_NAMES = ("labels", "start_positions", "end_positions")

#: What a forward may do without, though it is of use only with it: parameter -> those that it goes with.
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

#: Optional inputs that are never left out where they were found.
ALWAYS = ("decoder_input_ids", "decoder_input_values", "encoder_hidden_states")


def library_inputs(model: nn.Module) -> dict[str, Spec] | None:
    """The likeliest inputs of a model of the library, by parameter name; None for any other model."""
    return next(iter(library_choices(model)), None)


def library_choices(model: nn.Module) -> list[dict[str, Spec]]:
    """Inputs that a model of the library may ask for, the likeliest first; none for other models."""
    facts = Facts.of(model)
    if facts is None:
        return []
    found = {name: FAMILIES[name](facts) for name in dict.fromkeys(_names(facts)) if name in FAMILIES}
    if not found or any(name not in found for name in _required(facts)):
        return []
    needed = {*_mains(facts), *_required(facts), *ALWAYS}
    least = {name: spec for name, spec in found.items() if name in needed}
    sets = [with_placeholders(facts, found), least]
    if "inputs_embeds" in facts.parameters and not _required(facts):
        sets.append({"inputs_embeds": FAMILIES["inputs_embeds"](facts)})
    if isinstance(clip := found.get("pixel_values"), TensorSpec) and len(clip.dims) > 4:
        sets.append({**least, "pixel_values": patches(facts) if "grid_thw" in found else flat(clip)})
    return [each for index, each in enumerate(sets) if each and each not in sets[:index]]


def _mains(facts: Facts) -> tuple[str, ...]:
    main = getattr(facts.model, "main_input_name", None)
    names = tuple(main) if isinstance(main, list | tuple) else (main,)
    return tuple(name for name in names if isinstance(name, str) and name in facts.parameters)


def _required(facts: Facts) -> list[str]:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [name for name, each in facts.parameters.items() if each.default is each.empty and each.kind not in variable]


def _names(facts: Facts) -> Iterator[str]:
    """The parameters that are given: main and required ones, what else it sees or reads, and what goes along."""
    first = [*_mains(facts), *_required(facts)]
    if "pixel_values" in facts.parameters and facts.has_part("vision"):
        first.append("pixel_values")
    if "pixel_values" in first and "input_ids" in facts.parameters and _reads(facts):
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


def _reads(facts: Facts) -> bool:
    return facts.has_part("text") or getattr(facts.config, "vocab_size", None) is not None
