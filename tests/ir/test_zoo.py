"""Model types of transformers from their default configurations: a sample of `benchmarks/zoo.py`."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
import zoo
from forks import Limits, forked
from hf_check import Outcome, types_of
from hf_sizes import of_each_kind, put_inside, shorten
from hf_types import NotBuilt, build, model_class, model_types
from transformers import BertConfig, CLIPConfig, JambaConfig, LlavaConfig, ViTConfig

#: One of each family: type -> a part of the inputs that it must have been given.
SAMPLE = {
    "albert": "input_ids: i64[B=2, T=16] < 30000",
    "gpt2": "input_ids",
    "mamba2": "input_ids",
    "jamba": "input_ids",
    "mixtral": "input_ids",
    "t5": "decoder_input_ids: i64[B, S=12]",
    "fnet": "input_ids",
    "convnext": "pixel_values: f32[B=2, 3, 224, 224]",
    "dinov2": "pixel_values: f32[B=2, 3, 224, 224]",
    "videomae": "pixel_values: f32[B=2, 16, 3, 224, 224]",
    "segformer": "pixel_values",
    "rt_detr_resnet": "pixel_values",
    "yolos": "pixel_values: f32[B=2, 3, 512, 864]",
    "dpt": "pixel_values",
    "wav2vec2": "input_values: f32[B=2, 15360]",
    "encodec": "input_values: f32[B=2, 1, 15360]",
    "whisper": "input_features: f32[B=2, 80, 3000]; decoder_input_ids",
    "clip": "pixel_values: f32[B, 3, 224, 224]",
    "llava": "input_ids: join(i64[B=2, T=16] < 31999, i64[B, 576] full(31999)); pixel_values: f32[B, 3, 336, 336]",
    "qwen2_vl_vision": "hidden_states: flat(f32[B=2, 64, 1176]); grid_thw: join(i64[B, 1] ones, i64[B, 2] full(8))",
    "idefics": "image_attention_mask",
    "layoutlm": "bbox: i64[B, T, 4] arange",
    "decision_transformer": "states: f32[B=2, T=16, 17]; actions: f32[B, T, 4]",
    "patchtst": "past_values: f32[B=2, 32, 1]",
    "vision-encoder-decoder": "decoder_input_ids",
}
#: Types that cannot be built, and what is said of them: a package that is not installed, or no model at all.
REFUSED = {"sam_mask_decoder": "no model class", "bark": "no forward"}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, Outcome]:
    """Of the script itself, in a process of its own: a process that has computed is no place to fork from."""
    results = tmp_path_factory.mktemp("zoo") / "results.jsonl"
    command = [sys.executable, zoo.__file__, *SAMPLE, *REFUSED, "--results", str(results)]
    # Its exit status also tells of times, which are no matter here.
    assert subprocess.run(command, check=False, capture_output=True).returncode in (0, 1)
    return zoo.read(results)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_type_is_traced_and_its_graph_gives_the_same_types_again(outcomes, name):
    outcome = outcomes[name]
    assert (outcome.why, outcome.not_built) == ("", "")
    assert (outcome.traced, outcome.same) == (True, True)
    assert SAMPLE[name] in outcome.inputs


@pytest.mark.parametrize("name", REFUSED)
def test_a_type_that_cannot_be_built_is_told_with_the_reason(outcomes, name):
    assert REFUSED[name] in outcomes[name].not_built
    assert not outcomes[name].traced


def test_every_type_of_the_library_is_in_the_list():
    assert len(model_types()) >= 400
    assert set(SAMPLE) | set(REFUSED) <= set(model_types())


def test_depths_are_cut_and_widths_are_not():
    config = BertConfig()
    shorten(config, 2)
    assert (config.num_hidden_layers, config.hidden_size, config.vocab_size) == (2, 768, 30522)


def test_depths_of_nested_configurations_are_cut():
    config = CLIPConfig()
    shorten(config, 2)
    assert (config.text_config.num_hidden_layers, config.vision_config.num_hidden_layers) == (2, 2)


def test_a_cut_list_of_layers_keeps_one_of_each_kind():
    assert of_each_kind(["linear"] * 3 + ["full", "linear"], 2) == ["linear", "full"]
    assert of_each_kind(("full", "linear", "full"), 2) == ("full", "linear")
    assert of_each_kind([7, 7, 7], 2) == [7, 7]


def test_a_deeper_cut_is_what_was_asked_for():
    config = JambaConfig()
    shorten(config, 8)
    assert config.num_hidden_layers == 8


def test_tokens_beyond_the_vocabulary_are_put_inside():
    config = LlavaConfig()
    assert config.image_token_id >= config.text_config.vocab_size
    put_inside(config)
    assert config.image_token_id == config.text_config.vocab_size - 1


def test_the_base_model_is_chosen_before_any_head():
    kind, auto = model_class(ViTConfig())
    assert (kind.__name__, auto) == ("ViTModel", True)


def test_nothing_is_allocated_for_a_model():
    built = build("bert")
    assert {parameter.device.type for parameter in built.model.parameters()} == {"meta"}
    assert not built.model.training


def test_a_type_without_a_model_is_refused_by_name():
    with pytest.raises(NotBuilt, match="only a part of another type's model"):
        build("sam_mask_decoder")


def answer(name: str) -> dict[str, str]:
    """A job that works, dies, or does not end."""
    if name == "dies":
        faulthandler.disable()
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "allocates":
        return {"said": str(len(bytearray(4 << 30)))}
    while name == "spins":
        time.process_time()
    return {"said": name}


def test_a_child_that_dies_spins_or_takes_too_much_costs_only_itself():
    found = dict(forked(["one", "dies", "spins", "allocates", "two"], answer, Limits(seconds=1, memory=2), 2))
    assert (found["one"], found["two"]) == ({"said": "one"}, {"said": "two"})
    assert found["dies"] == {"died": "ended by SIGSEGV"}
    assert found["spins"] == {"died": "took more than 1 s"}
    assert found["allocates"] == {"died": "ended with status 0"}


def test_the_figures_are_of_what_could_be_built():
    good = Outcome("a", traced=True, same=True, layers=2, trace=0.3, plain=0.2)
    other = Outcome("b", traced=True, why="run again: differs")
    outcomes = [good, other, Outcome("c", not_built="needs a package"), Outcome("d", why="no", eager="the same")]
    lines = "\n".join(zoo.summary(outcomes))
    assert "3 could be built here, 1 of them cut to two layers" in lines
    assert "2 of 3 traced (66.7%; promised 97%)" in lines
    assert "1 of 2 graphs give the same types again (50.0%; promised 98%)" in lines
    assert "1 of the 1 others fail in eager PyTorch too" in lines
    assert "recording takes 1.50 times the plain forward on meta" in lines
    assert "1 needs a package: c" in lines
    assert not zoo.holds(outcomes)
    assert zoo.holds([good])


def test_kept_results_are_read_back_and_the_last_one_counts(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text('{"name": "a", "died": "took more than 1 s"}\n{"name": "a", "traced": true, "same": true}\n')
    assert zoo.read(path) == {"a": Outcome("a", traced=True, same=True)}
    assert zoo.read(tmp_path / "none") == {}


def test_types_of_results_are_of_every_tensor_inside():
    found = types_of({"one": torch.zeros(2, 3), "more": [torch.zeros(4, dtype=torch.int64), None]})
    assert found == [("torch.float32", (2, 3)), ("torch.int64", (4,))]
