"""Configurations of the library cut down: depths, widths, and tokens that lie beyond the vocabulary."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from transformers.configuration_utils import PreTrainedConfig

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

#: Attributes of a configuration -> the largest value that it keeps.
LIMITS: Mapping[str, int] = {
    **dict.fromkeys(
        ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers",
         "num_decoder_layers", "num_encoder_layers", "depth", "num_blocks"), 2,
    ),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "emb_dim", "word_embed_proj_dim"), 64),
    **dict.fromkeys(
        ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads",
         "num_encoder_attention_heads", "num_decoder_attention_heads"), 4,
    ),
    **dict.fromkeys(
        ("intermediate_size", "ffn_dim", "d_ff", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim",
         "dff", "moe_intermediate_size", "shared_expert_intermediate_size"), 128,
    ),
    "projection_size": 64,
    "num_key_value_heads": 2, "head_dim": 16, "d_kv": 16, "vocab_size": 1000, "image_size": 64, "embedding_size": 64,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "max_position_embeddings": 512, "n_positions": 512, "n_ctx": 512, "max_source_positions": 50, "max_length": 100,
}  # fmt: skip


def shorten(config: PreTrainedConfig, layers: int) -> None:
    """Cut every count of layers to so many, in nested configurations too, and the lists of layers with them."""
    counts = set()
    for key, value in list(vars(config).items()):
        if isinstance(value, PreTrainedConfig):
            shorten(value, layers)
        elif type(value) is int and value > layers and _DEPTHS.match(key):
            with contextlib.suppress(NotImplementedError):
                setattr(config, key, layers)
                counts.add(value)
        elif isinstance(value, list | tuple) and _DEPTHS.match(key) and all(type(item) is int for item in value):
            setattr(config, key, type(value)(min(item, layers) for item in value))
    for key, value in list(vars(config).items()):
        if isinstance(value, list | tuple) and len(value) in counts and _LISTS.search(key):
            setattr(config, key, of_each_kind(value, layers))


def of_each_kind(items: list[Any] | tuple[Any, ...], count: int) -> list[Any] | tuple[Any, ...]:
    """So many items in their order, one of each kind before any is repeated."""
    texts = [repr(item) for item in items]
    firsts = [texts.index(text) for text in dict.fromkeys(texts)]
    rest = [index for index in range(len(items)) if index not in firsts]
    return type(items)(items[index] for index in sorted((firsts + rest)[:count]))


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


def shrink(config: PreTrainedConfig, fixed: set[str]) -> None:
    """Cut depths, widths and vocabularies, all but those in `fixed`, in nested configurations too."""
    for key, limit in LIMITS.items():
        value = getattr(config, key, None)
        if type(value) is int and value > limit and key not in fixed:
            with contextlib.suppress(NotImplementedError):
                setattr(config, key, limit)
    for key in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        value = getattr(config, key, None)
        if type(value) is int and value >= (getattr(config, "vocab_size", None) or value + 1):
            setattr(config, key, 1)
    for value in vars(config).values():
        if isinstance(value, PreTrainedConfig):
            shrink(value, fixed)
