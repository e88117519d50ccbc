"""Configurations of the library cut down: depths, widths, and tokens that lie beyond the vocabulary."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from transformers import PretrainedConfig

#: Attributes of configurations that count layers.
_DEPTHS = re.compile(
    r"^(num_|n_|max_)?((hidden|encoder|decoder|text|vision|audio|transformer|perception|bottleneck|self_attention|depth|"
    r"backbone|conformer|qformer|resampler|attention|prediction|mask_decoder|perceiver|memory_attention)_)*"
    r"(layers?|depth|depths|blocks)$|^(num_|n_)(enc|dec|encoder|decoder)_(layers?|blocks)$"
)
#: Lists of what each layer is like; they are as long as there are layers.
_LISTS = re.compile(r"types?$|pattern|layers?$|idx|indexes|indices|interval|rope")

#: What some defaults leave open.
DEFAULTS = {"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "sliding_window": 128}
#: What a model keeps that is made narrow: other sizes were chosen to fit these.
KEPT = frozenset(
    [
        "hidden_size",
        "d_model",
        "n_embd",
        "dim",
        "embed_dim",
        "emb_dim",
        "word_embed_proj_dim",
        "num_attention_heads",
        "n_head",
        "n_heads",
        "num_heads",
        "encoder_attention_heads",
        "decoder_attention_heads",
        "num_encoder_attention_heads",
        "num_decoder_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "d_kv",
        "image_size",
        "embedding_size",
        "projection_size",
        "max_position_embeddings",
        "n_positions",
        "n_ctx",
    ]
)
#: Lists of layers whose results are used.
_INDICES = re.compile(r"hook_ids|intermediate_layers?_ind|visual_ind|global_attn_ind|(feature|select)_layers?$")
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
         "expert_ffn_hidden_size", "ffn_hidden_size",
         "dff", "moe_intermediate_size", "shared_expert_intermediate_size"), 128,
    ),
    "projection_size": 64,
    "num_key_value_heads": 2, "head_dim": 16, "d_kv": 16, "vocab_size": 1000, "image_size": 64, "embedding_size": 64,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "encoder_hash_byte_group_vocab": 1000,
    "max_position_embeddings": 512, "n_positions": 512, "n_ctx": 512, "max_source_positions": 50, "max_length": 100,
}  # fmt: skip


def shorten(config: PretrainedConfig, layers: int) -> None:
    """Cut every count of layers to so many, in nested configurations too, and the lists of layers with them."""
    counts = set()
    for key, value in list(vars(config).items()):
        if isinstance(value, PretrainedConfig):
            shorten(value, layers)
        elif type(value) is int and value > layers and _DEPTHS.match(key):
            with contextlib.suppress(NotImplementedError):
                setattr(config, key, layers)
                counts.add(value)
        elif isinstance(value, list | tuple) and _DEPTHS.match(key) and all(type(item) is int for item in value):
            setattr(config, key, type(value)(min(item, layers) for item in value))
    for key, value in list(vars(config).items()):
        if isinstance(value, list | tuple) and _INDICES.search(key) and all(type(item) is int for item in value):
            setattr(config, key, type(value)(min(item, layers - 1) for item in value))
        elif isinstance(value, list | tuple) and len(value) in counts and _LISTS.search(key):
            setattr(config, key, of_each_kind(value, layers))
    stages = getattr(config, "stage_names", None)
    if stages and len(stages) - 1 in counts:
        _keep_stages(config, layers)


def _keep_stages(config: Any, layers: int) -> None:
    """A backbone gives what it gave, from the layers that are left: as many outputs, where there are enough."""
    wanted = len(config._out_indices or [0])
    config.stage_names = config.stage_names[: layers + 1]
    kept = list(range(max(0, layers + 1 - wanted), layers + 1))
    config.set_output_features_output_indices(out_features=None, out_indices=kept)


def of_each_kind(items: list[Any] | tuple[Any, ...], count: int) -> list[Any] | tuple[Any, ...]:
    """So many items in their order, one of each kind before any is repeated."""
    texts = [repr(item) for item in items]
    firsts = [texts.index(text) for text in dict.fromkeys(texts)]
    rest = [index for index in range(len(items)) if index not in firsts]
    return type(items)(items[index] for index in sorted((firsts + rest)[:count]))


def put_inside(config: PretrainedConfig) -> None:
    """Mend what defaults leave open: tokens beyond the vocabulary, and features of images too wide for the text."""
    text = getattr(config, "text_config", None) or config
    size = getattr(text, "vocab_size", None)
    sees = getattr(config, "vision_config", None) is not None
    names = [key for key in vars(config) if _PLACES.match(key)]
    for index, key in enumerate(names if isinstance(size, int) else ()):
        value = getattr(config, key)
        if (type(value) is int and value >= size) or (value is None and sees and key.startswith(("image", "video"))):
            setattr(config, key, size - 1 - index)
    vision = getattr(config, "vision_config", None)
    if getattr(vision, "out_hidden_size", None) and getattr(text, "hidden_size", None):
        vision.out_hidden_size = text.hidden_size


def _is_config(value: Any) -> bool:
    return isinstance(value, PretrainedConfig)


def shrink(config: PretrainedConfig, fixed: AbstractSet[str]) -> None:
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
        if isinstance(value, PretrainedConfig):
            shrink(value, fixed)


def mend(config: PretrainedConfig) -> None:
    """Defaults that the library itself cannot run: caches of models without attention, sections of rotary positions."""
    for value in vars(config).values():
        if isinstance(value, PretrainedConfig):
            mend(value)
    with contextlib.suppress(AttributeError, NotImplementedError):
        config.use_cache = False
    for key, value in DEFAULTS.items():
        if getattr(config, key, 0) is None:
            setattr(config, key, value)
    if getattr(config, "languages", None) and getattr(config, "default_language", 0) is None:
        config.default_language = config.languages[0]
    if getattr(config, "projector_in_channels", None) == []:
        config.projector_scale_factors, config.num_feature_levels = [1.0], 1
        config.projector_in_channels = [config.d_model]
    if getattr(config, "class_thresholds", 0) is None:
        config.class_thresholds = [0.5] * config.num_labels
        config.class_order = list(range(config.num_labels))
    heads, hidden = getattr(config, "num_attention_heads", None), getattr(config, "hidden_size", None)
    if isinstance(heads, int) and isinstance(hidden, int) and getattr(config, "head_dim", None) is None:
        config.num_attention_heads = next(count for count in range(heads, 0, -1) if hidden % count == 0)
    if width := getattr(config, "moe_intermediate_size", None):
        config.moe_intermediate_size = -(-width // 8) * 8
    if getattr(config, "global_config", None) is not None and not hasattr(config, "num_hidden_layers"):
        config.num_hidden_layers = config.global_config.num_hidden_layers
    if getattr(config, "pixel_shuffle_ratio", None):
        config.intermediate_size = int(config.hidden_size / config.pixel_shuffle_ratio**2)
    rope = getattr(config, "rope_parameters", None)
    if isinstance(rope, dict) and getattr(config, "num_attention_heads", None):
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        pairs = (int(width * rope.get("partial_rotary_factor", 1.0)) + 1) // 2
        rope["mrope_section"] = [pairs - 2 * (3 * pairs // 8), 3 * pairs // 8, 3 * pairs // 8]
