"""Inputs of Hugging Face models, judged by eager PyTorch: small models with weights take them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import (
    CLIPVisionConfig,
    EncodecConfig,
    EncodecModel,
    IdeficsConfig,
    IdeficsModel,
    LayoutLMConfig,
    LayoutLMModel,
    LlamaConfig,
    LlavaConfig,
    LlavaModel,
    PatchTSTConfig,
    PatchTSTModel,
    T5Config,
    T5Model,
    VideoMAEConfig,
    VideoMAEModel,
    WhisperConfig,
    WhisperModel,
)  # fmt: skip
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel

from mase_server import MaseGraph
from mase_server.tracing.inputs.library.huggingface import library_choices, library_inputs
from mase_server.tracing.inputs.library.images import flatten_spec, join_parts
from mase_server.tracing.inputs.roles import describe_inputs
from mase_server.tracing.inputs.spec import Inputs, TensorSpec, complete_sizes, inputs_at
from mase_server.tracing.inputs.text import SpecError, format_inputs, parse_inputs
from mase_server.tracing.recording.shadow import SHADOW_LIMIT, MetaMode, Shadows

WIDTHS = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
HEARING = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 48,
    "decoder_attention_heads": 2, "decoder_ffn_dim": 48, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1,
}  # fmt: skip
VISION = {**WIDTHS, "image_size": 32, "patch_size": 8}


def llava(token: int = 99) -> LlavaModel:
    text, vision = LlamaConfig(**WIDTHS, vocab_size=100), CLIPVisionConfig(**VISION)
    return LlavaModel(LlavaConfig(vision_config=vision, text_config=text, image_token_index=token))


MODELS = {
    "an image in a text": llava,
    "two stacks": lambda: T5Model(T5Config(d_model=32, d_kv=16, d_ff=48, num_layers=1, num_heads=2, vocab_size=50)),
    "patches and their grid": lambda: Qwen2VisionTransformerPretrainedModel(
        Qwen2VLVisionConfig(depth=1, embed_dim=32, hidden_size=32, num_heads=2)
    ),
    "frames": lambda: VideoMAEModel(VideoMAEConfig(**VISION, num_frames=4)),
    "a spectrogram": lambda: WhisperModel(WhisperConfig(**HEARING, vocab_size=50, max_source_positions=50)),
    "a codec": lambda: EncodecModel(EncodecConfig(num_filters=4, hidden_size=16, codebook_dim=16, num_lstm_layers=1)),
    "boxes": lambda: LayoutLMModel(LayoutLMConfig(**WIDTHS, vocab_size=50)),
    "a series": lambda: PatchTSTModel(PatchTSTConfig(d_model=32, num_attention_heads=2, ffn_dim=48, context_length=32)),
    "an image and what may see it": lambda: IdeficsModel(
        IdeficsConfig(**WIDTHS, vocab_size=50, vision_config={**VISION, "embed_dim": 32}, use_resampler=False)
    ),
}


@pytest.mark.parametrize("kind", MODELS)
def test_eager_takes_the_inputs(kind):
    torch.manual_seed(0)
    model = MODELS[kind]().eval()
    inputs = complete_sizes(Inputs(library_inputs(model)))
    with torch.no_grad():
        assert model(**inputs_at(inputs)) is not None


@pytest.mark.parametrize("kind", MODELS)
def test_eager_takes_them_at_another_batch_size(kind):
    model = MODELS[kind]().eval()
    inputs = complete_sizes(Inputs(library_inputs(model)))
    with torch.no_grad():
        out = model(**inputs_at(inputs, {"B": 3}))
    assert any(3 in value.shape or 192 in value.shape or 48 in value.shape for value in tensors(out))


def tensors(value) -> list[torch.Tensor]:
    values = value.values() if hasattr(value, "values") and not isinstance(value, torch.Tensor) else [value]
    return [each for each in values if isinstance(each, torch.Tensor)]


def test_a_text_has_as_many_places_as_the_image_has_features():
    # 32 / 8 = 4 patches a side, 16 in all; the first token of the tower is left out.
    inputs = complete_sizes(Inputs(library_inputs(llava())))
    ids = inputs_at(inputs)["input_ids"]
    assert ids.shape == (2, 16 + 16)
    assert (ids == 99).sum(1).tolist() == [16, 16]


def test_the_text_goes_alone_where_its_tokens_have_none_for_the_image():
    assert list(library_inputs(llava(token=100))) == ["input_ids"]


def test_a_graph_of_text_and_image_needs_no_inputs_from_its_user():
    model = llava().eval()
    graph = MaseGraph(model)
    assert set(graph.arguments) == {"input_ids", "pixel_values"}


def test_less_is_tried_after_all():
    sets = library_choices(llava())
    assert [list(each) for each in sets] == [["input_ids", "pixel_values"], ["input_ids"], ["inputs_embeds"]]


def test_a_model_of_ones_own_is_not_the_librarys():
    assert library_inputs(nn.Linear(3, 4)) is None
    assert library_choices(nn.Linear(3, 4)) == []


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("x: join(i64[B=2, T=16] < 320, i64[B, 8] full(7))", (2, 24)),
        ("x: flat(f32[B=2, 64, 12])", (128, 12)),
        ("x: flat(join(f32[B=2, 3, 1], f32[B, 3, 4]))", (6, 5)),
    ],
)
def test_combined_tensors_read_back_as_they_are_written(text, shape):
    inputs = parse_inputs(text)
    assert format_inputs(inputs) == text
    assert parse_inputs(format_inputs(inputs)) == inputs
    assert inputs_at(inputs)["x"].shape == shape


def test_a_combination_without_parts_is_refused():
    with pytest.raises(SpecError, match=r"expected '\(' and the parts after join"):
        parse_inputs("x: join i64[B]")


def test_a_combination_is_the_table_s_own():
    one, two = TensorSpec("i64", ("B", "T"), "zeros"), TensorSpec("i64", ("B", 4), "ones")
    made = inputs_at(
        Inputs({"x": join_parts(one, two), "y": flatten_spec(TensorSpec("f32", ("B", 5, 6)))}, {"B": 3, "T": 2})
    )
    assert made["x"].tolist() == [[0, 0, 1, 1, 1, 1]] * 3
    assert made["y"].shape == (15, 6)


def test_what_was_observed_is_still_one_tensor():
    found = describe_inputs({"x": torch.zeros(2, 24, dtype=torch.int64)})
    assert isinstance(found.entries["x"], TensorSpec)


def test_a_value_that_repeats_is_kept_though_it_looks_large():
    shadows = Shadows()
    with MetaMode(shadows):
        mask = torch.ones(2, 16, 1, dtype=torch.bool).expand(2, 16, SHADOW_LIMIT)
        assert bool(mask.all())


def test_a_value_that_takes_much_memory_is_not_kept():
    shadows = Shadows()
    with MetaMode(shadows):
        large = torch.ones(2, SHADOW_LIMIT)
    assert shadows.get(large) is None
