"""The examples as the tests see them: how each author builds the model, and inputs at any size."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

EXAMPLES = Path(__file__).parents[2] / "examples"

Namespace = Mapping[str, Any]
Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Case:
    """One example.

    root: the class that the file is about.  build: a model from the file's namespace, small where that is quick.
    inputs: forward's arguments by name for {"B": ..., "T": ...}.  sizes: those of the file's own run.
    others: sizes at which a generic graph must hold too.  main: the file has a `__main__` that runs the model.
    """

    file: str
    root: str
    build: Callable[[Namespace], nn.Module]
    inputs: Callable[[Sizes], dict[str, Any]]
    sizes: Sizes
    others: tuple[Sizes, ...] = ()
    main: bool = True

    @property
    def path(self) -> Path:
        """The file."""
        return EXAMPLES / self.file

    def load(self) -> Namespace:
        """The file's namespace, imported under a name of its own."""
        spec = importlib.util.spec_from_file_location(f"example_{self.path.stem}", self.path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return vars(module)


def ids(high: int, *shape: int) -> torch.Tensor:
    """Token ids in 1..high - 1."""
    return torch.randint(1, high, shape)


def lstm_inputs(sizes: Sizes) -> dict[str, Any]:
    """Reviews of unequal lengths, the longest of them T."""
    lengths = torch.linspace(sizes["T"], 3, sizes["B"]).long()
    return {"tokens": ids(5000, sizes["B"], sizes["T"]), "lengths": lengths}


def padded_ids(sizes: Sizes) -> dict[str, Any]:
    """Token ids whose last row ends in padding (0)."""
    tokens = ids(8000, sizes["B"], sizes["T"])
    tokens[-1, sizes["T"] // 2 :] = 0
    return {"ids": tokens}


def product_batch(sizes: Sizes) -> dict[str, Any]:
    """The dict that ProductMatcher takes."""
    batch, tokens = sizes["B"], sizes["T"]
    image = torch.randn(batch, 3, sizes["H"], sizes["W"])
    caption = {"caption": ids(6000, batch, tokens), "caption_mask": torch.ones(batch, tokens)}
    return {"batch": {"image": image, **caption, "price": torch.rand(batch) * 100}}


def masked_ids(sizes: Sizes) -> dict[str, Any]:
    """What a Hugging Face encoder takes."""
    input_ids = ids(30000, sizes["B"], sizes["T"])
    return {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}


def small_bert(file: Namespace) -> nn.Module:
    """BERT with BERT-base's structure in three layers of its width."""
    return file["BertForSpans"](file["BertConfig"](num_hidden_layers=3))


CASES = (
    Case(
        "mlp.py", "MLP", lambda file: file["MLP"](), lambda n: {"x": torch.randn(n["B"], 16)},
        {"B": 32}, ({"B": 5}, {"B": 7}),
    ),
    Case(
        "lenet.py", "LeNet", lambda file: file["LeNet"](), lambda n: {"x": torch.randn(n["B"], 1, 28, 28)},
        {"B": 4}, ({"B": 3}, {"B": 9}), main=False,
    ),
    Case(
        "resnet.py", "ResNet", lambda file: file["resnet18"](),
        lambda n: {"x": torch.randn(n["B"], 3, n["H"], n["W"])},
        {"B": 2, "H": 224, "W": 224}, ({"B": 3, "H": 96, "W": 128},),
    ),
    Case(
        "gpt.py", "GPT",
        lambda file: file["GPT"](file["GPTConfig"](vocab_size=512, n_layer=4, n_head=4, n_embd=128)),
        lambda n: {"idx": ids(512, n["B"], n["T"]), "targets": ids(512, n["B"], n["T"])},
        {"B": 4, "T": 64}, ({"B": 3, "T": 17}, {"B": 2, "T": 101}),
    ),
    Case(
        "vit.py", "ViT", lambda file: file["ViT"](), lambda n: {"images": torch.rand(n["B"], 3, 224, 224)},
        {"B": 2}, ({"B": 3},),
    ),
    Case(
        "lstm_classifier.py", "LSTMClassifier", lambda file: file["LSTMClassifier"](), lstm_inputs,
        {"B": 4, "T": 23},
    ),
    Case(
        "transformer_encoder.py", "TopicClassifier", lambda file: file["TopicClassifier"](), padded_ids,
        {"B": 3, "T": 48},
    ),
    Case(
        "llama.py", "Llama", lambda file: file["Llama"](file["LlamaArgs"]()),
        lambda n: {"tokens": ids(4096, n["B"], n["T"])},
        {"B": 2, "T": 32}, ({"B": 3, "T": 19}, {"B": 5, "T": 40}), main=False,
    ),
    Case(
        "vae.py", "VAE", lambda file: file["VAE"](), lambda n: {"x": torch.rand(n["B"], 1, 28, 28)},
        {"B": 16},
    ),
    Case(
        "multimodal.py", "ProductMatcher", lambda file: file["ProductMatcher"](), product_batch,
        {"B": 4, "T": 12, "H": 64, "W": 64},
    ),
    Case(
        "bert_hf.py", "BertForSpans", small_bert, masked_ids,
        {"B": 2, "T": 64}, ({"B": 3, "T": 21},),
    ),
    Case(
        "llama_hf.py", "LlamaForCausalLM", lambda file: file["LlamaForCausalLM"](file["config"]),
        lambda n: {"input_ids": ids(2048, n["B"], n["T"]), "use_cache": False},
        {"B": 2, "T": 20}, ({"B": 3, "T": 33},),
    ),
)  # fmt: skip

BY_FILE = {case.file: case for case in CASES}
