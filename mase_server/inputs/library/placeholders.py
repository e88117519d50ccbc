"""Places of an image in a text: as many tokens as the model makes features of the image."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from mase_server.inputs.generate import inputs_at
from mase_server.inputs.library.combined import join
from mase_server.inputs.library.huggingface_config import Facts
from mase_server.inputs.library.images import BATCH, whole
from mase_server.inputs.spec import Inputs, Spec, TensorSpec
from mase_server.tracing.rebuild import Rebuild
from mase_server.tracing.shadow import MetaMode, Shadows
from mase_server.tracing.state import unchanged

#: Names of the token that stands for a part of an image.
IMAGE_TOKENS = ("image_token_id", "image_token_index", "image_patch_id", "img_context_token_id", "video_token_index")


def with_placeholders(facts: Facts, found: Mapping[str, Spec]) -> dict[str, Spec]:
    """The same inputs, with the places of the image in the text if the model looks for them there."""
    if "image_embeds_position_mask" in facts.parameters and "pixel_values" in found:
        return _with_positions(facts, found)
    token = facts.get("text", IMAGE_TOKENS) or facts.get("vision", IMAGE_TOKENS)
    ids = found.get("input_ids")
    if not isinstance(token, int) or not isinstance(ids, TensorSpec) or "pixel_values" not in found:
        return dict(found)
    count = _features(facts, found)
    if not count or token >= facts.vocabulary():
        return {name: spec for name, spec in found.items() if _is_needed(facts, name) or not _goes_with_image(name)}
    places = whole("full", "B", count, argument=token)
    # Words come from below the token, so that none of them is taken for a place.
    words = replace(ids, argument=token) if token > 1 else whole("full", *ids.dims, argument=token + 1)
    full = {**found, "input_ids": join(words, places)}
    if "mm_token_type_ids" in facts.parameters:
        full["mm_token_type_ids"] = join(whole("zeros", "B", "T"), whole("ones", "B", count))
    return full


def _with_positions(facts: Facts, found: Mapping[str, Spec]) -> dict[str, Spec]:
    """The same inputs for a model that is told by a mask of its own where the image is."""
    count = facts.number("text", ("latent_query_num",), 64)
    places = join(whole("zeros", "B", "T"), whole("ones", "B", count))
    return {
        **found,
        "input_ids": join(found["input_ids"], whole("zeros", "B", count)),
        "image_embeds_position_mask": places,
    }


def _is_needed(facts: Facts, name: str) -> bool:
    return facts.parameters[name].default is inspect.Parameter.empty


def _goes_with_image(name: str) -> bool:
    return name.startswith(("pixel_", "image_", "spatial_", "aspect_", "grid_"))


def _features(facts: Facts, found: Mapping[str, Spec]) -> int:
    """How many features the model makes of one image, asked of its own method on meta; 0 where it has none."""
    asked = (getattr(facts.model, name, None) for name in ("get_image_features", "get_video_features"))
    return next((rows for ask in asked if ask is not None and (rows := _rows_of(facts, ask, found))), 0) // BATCH


def _rows_of(facts: Facts, ask: Callable[..., Any], found: Mapping[str, Spec]) -> int:
    accepted = inspect.signature(ask).parameters
    given = inputs_at(Inputs({name: spec for name, spec in found.items() if name in accepted}, {"B": BATCH}))
    shadows = Shadows()
    try:
        with unchanged(facts.model, shadows), MetaMode(shadows), torch.no_grad():
            return _rows(ask(**{name: _twin(value, shadows) for name, value in given.items()}))
    except Exception:  # noqa: BLE001 - the library's own code, on a guess; the text then goes alone
        return 0


def _twin(value: Any, shadows: Shadows) -> Any:
    return shadows.twin(value) if isinstance(value, torch.Tensor) and not value.is_meta else value


def _rows(features: Any) -> int:
    """Rows of the features that go into the text: all dimensions but the last."""
    if getattr(features, "pooler_output", None) is not None:
        features = features.pooler_output
    if isinstance(features, torch.Tensor):
        return int(features.numel() // features.shape[-1])
    return sum(int(each.numel() // each.shape[-1]) for each in Rebuild.of(features).tensors)
