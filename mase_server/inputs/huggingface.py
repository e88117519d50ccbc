"""Inputs of Hugging Face models, from their configuration."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from mase_server.inputs.consumers import floats, indices
from mase_server.inputs.spec import Spec, TensorSpec

LABEL_NAMES = ("labels", "start_positions", "end_positions")


def library_inputs(model: nn.Module) -> dict[str, Spec] | None:
    """The main inputs that a model with `config` and `main_input_name` asks for; None for any other model."""
    config, main = getattr(model, "config", None), getattr(model, "main_input_name", None)
    if config is None or not isinstance(main, str) or not type(model).__module__.startswith("transformers"):
        return None
    parameters = inspect.signature(model.forward).parameters
    found: dict[str, Spec] = {main: _main(main, config)}
    for other in ("input_ids", "pixel_values"):
        if other != main and other in parameters and _is_wanted(other, parameters[other], config):
            found[other] = _main(other, config)
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in parameters:
        found["decoder_input_ids"] = indices(_vocabulary(config), "B", "S")
    return found


def _is_wanted(name: str, parameter: inspect.Parameter, config: Any) -> bool:
    """Does a model need an input besides its main one? Those of text and images together say so in their config."""
    if parameter.default is inspect.Parameter.empty:
        return True
    sees = getattr(config, "vision_config", None) is not None or getattr(config, "image_size", None) is not None
    reads = getattr(config, "text_config", None) is not None or getattr(config, "vocab_size", None) is not None
    return sees and reads and not getattr(config, "image_token_id", None)


def _main(name: str, config: Any) -> TensorSpec:
    text = getattr(config, "text_config", None) or config
    vision = getattr(config, "vision_config", None) or config
    if name in ("pixel_values", "images"):
        side = getattr(vision, "image_size", None) or 224
        height, width = side if isinstance(side, list | tuple) else (side, side)
        return floats("B", getattr(vision, "num_channels", 3), height, width)
    if name == "input_values" and hasattr(config, "num_mel_bins") and hasattr(config, "max_length"):
        return floats("B", config.max_length, config.num_mel_bins)
    if name == "input_values":
        return floats("B", 16000)
    if name == "input_features" and hasattr(config, "input_feat_per_channel"):
        return floats("B", 100, config.input_feat_per_channel)
    if name == "input_features":
        return floats("B", getattr(config, "num_mel_bins", 80), 2 * getattr(config, "max_source_positions", 1500))
    return indices(_vocabulary(text), "B", "T")


def _vocabulary(config: Any) -> int:
    return int(getattr(config, "vocab_size", None) or 1000)
