"""Hugging Face base models of all kinds, shrunk, with random weights; and what it means that one works."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from hf_sizes import shrink
from torch import nn
from transformers import AutoConfig, AutoModel, PretrainedConfig

from mase_server import MaseGraph, passes
from mase_server.ir.feeding import feed_placeholders, flatten_arguments
from mase_server.tracing.recording.values import Rebuild

KINDS: Mapping[str, str] = {
    "encoder": """bert roberta distilbert albert electra deberta deberta-v2 mpnet mobilebert squeezebert xlm-roberta
        camembert ernie layoutlm convbert fnet nystromformer funnel roformer megatron-bert modernbert rembert esm
        data2vec-text""",
    "decoder": """gpt2 gpt_neo gpt_neox gptj opt bloom llama mistral mixtral qwen2 qwen3 qwen2_moe gemma gemma2
        gemma3_text phi phi3 falcon mpt codegen stablelm starcoder2 olmo olmo2 cohere granite persimmon ctrl openai-gpt
        xglm biogpt mamba""",
    "encoder-decoder": "t5 mt5 bart mbart pegasus marian m2m_100 blenderbot umt5",
    "vision": "vit deit beit swin convnext resnet regnet mobilenet_v2 dinov2 poolformer segformer mobilevit",
    "audio": "wav2vec2 hubert whisper wavlm audio-spectrogram-transformer speech_to_text",
    "multimodal": "clip siglip blip vilt chinese_clip",
}

#: Where the limits alone do not fit together.
SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "funnel": {
        "block_sizes": [1, 1, 1],
        "block_repeats": [1, 1, 1],
        "d_model": 64,
        "n_head": 4,
        "d_head": 16,
        "d_inner": 128,
    },
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "gptj": {"rotary_dim": 8},
    "codegen": {"rotary_dim": 8},
    "swin": {"embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
    "convnext": {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1], "hidden_size": 32},
    "audio-spectrogram-transformer": {"max_length": 128},
}  # fmt: skip


def names() -> Iterator[tuple[str, str]]:
    """(kind, model type) of every model."""
    for kind, text in KINDS.items():
        for name in text.split():
            yield kind, name


def configuration(name: str) -> PretrainedConfig:
    """The type's own configuration, cut down."""
    config = AutoConfig.for_model(name, **SPECIAL.get(name, {}))
    shrink(config, set(SPECIAL.get(name, {})))
    config.architectures = config.architectures or []
    return config


def build(name: str) -> nn.Module:
    """The base model with random weights, in eval mode."""
    torch.manual_seed(0)
    model: nn.Module = AutoModel.from_config(configuration(name))
    return model.eval()


@dataclass(slots=True)
class Outcome:
    """How far one model came, and why not further."""

    kind: str
    name: str
    traced: bool = False
    annotated: bool = False
    equal: bool = False
    reloaded: bool = False
    nodes: int = 0
    seconds: float = 0.0
    inputs: list[str] = field(default_factory=list)
    reason: str = ""

    @property
    def good(self) -> bool:
        """Did everything work?"""
        return self.traced and self.annotated and self.equal and self.reloaded


def check(kind: str, name: str) -> Outcome:
    """Trace, annotate and compare one model; nothing is raised."""
    outcome = Outcome(kind, name)
    try:
        _check(outcome)
    except Exception as error:  # noqa: BLE001 - one model's fault is a row of the table
        outcome.reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:150]}"
    return outcome


def _check(outcome: Outcome) -> None:
    model = build(outcome.name)
    started = time.process_time()
    graph = MaseGraph(model)
    outcome.nodes, outcome.traced = len(graph.nodes), True
    outcome.seconds = time.process_time() - started
    arguments = dict(graph.arguments)
    outcome.inputs = list(arguments)
    outcome.equal = same(graph, model, arguments)
    outcome.reloaded = same(reloaded(graph), model, arguments)
    graph, _ = passes.init_metadata_analysis_pass(graph)
    graph, _ = passes.add_common_metadata_analysis_pass(graph, {"dummy_in": arguments, "add_value": False})
    outcome.annotated = not unannotated(graph)
    if not outcome.annotated:
        outcome.reason = f"without metadata: {', '.join(unannotated(graph)[:3])}"


def reloaded(graph: MaseGraph) -> MaseGraph:
    """The graph as its checkpoint gives it back."""
    with tempfile.TemporaryDirectory() as folder:
        graph.export(f"{folder}/graph")
        return MaseGraph.from_checkpoint(f"{folder}/graph")


def same(graph: MaseGraph, model: nn.Module, arguments: Mapping[str, Any]) -> bool:
    """Does the graph give what the model gives, bit for bit?"""
    with torch.no_grad():
        torch.manual_seed(1)
        theirs = Rebuild.of(model(**arguments)).tensors
        torch.manual_seed(1)
        ours = Rebuild.of(graph.model(*feed_placeholders(graph.fx_graph, flatten_arguments(arguments, model)))).tensors
    return len(theirs) > 0 and len(ours) == len(theirs) and all(map(_identical, ours, theirs))


def _identical(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one.nan_to_num(), other.nan_to_num())


def unannotated(graph: MaseGraph) -> list[str]:
    """Names of nodes without an operator, or with tensors of unknown type."""
    bad = []
    for node in graph.nodes:
        common = node.meta["mase"]["common"]
        entries = [entry for entry in common.get("results", {}).values() if isinstance(entry, dict)]
        if not common.get("mase_op") or any("type" not in entry or "shape" not in entry for entry in entries):
            bad.append(node.name)
    return bad
