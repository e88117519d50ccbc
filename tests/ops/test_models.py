"""Whole models: what torch counts and what the table adds up are one number, however the model is cut into calls."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from mase_server.ops.table import cost_of, named_arguments, op_info, total_cost
from mase_server.ops.types import iterate_tensors
from ops.recording import Recording, run
from tests.conftest import SEARCH

CONTAINERS = (nn.Module, nn.Sequential, nn.ModuleList, nn.ModuleDict)
LEAVES = tuple(
    cls for cls in vars(nn).values() if isinstance(cls, type) and issubclass(cls, nn.Module) and cls not in CONTAINERS
)
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def ids(high=50):
    return torch.randint(3, high, (2, 6))


def image():
    return torch.zeros(2, 3, 32, 32)


def hugging_face(name):
    """A small model of one architecture with random weights, and its inputs."""
    transformers = pytest.importorskip("transformers")
    text = dict(SMALL, vocab_size=50)
    config, inputs = {
        "Bert": (text, {"input_ids": ids()}),
        "Llama": (text | {"num_key_value_heads": 2}, {"input_ids": ids()}),
        "GPT2": (
            {"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2},
            {"input_ids": ids()},
        ),
        "T5": (
            {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 50},
            {"input_ids": ids(), "decoder_input_ids": ids()},
        ),
        "ViT": (SMALL | {"image_size": 32, "patch_size": 8}, {"pixel_values": image()}),
        "ResNet": ({"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}, {"pixel_values": image()}),
        "Swin": (
            {
                "image_size": 32,
                "patch_size": 2,
                "embed_dim": 8,
                "depths": [1, 1],
                "num_heads": [2, 2],
                "window_size": 4,
            },
            {"pixel_values": image()},
        ),
    }[name]
    model = getattr(transformers, f"{name}Model")(getattr(transformers, f"{name}Config")(**config))
    return model.eval(), inputs


@pytest.fixture(scope="module", params=["Bert", "Llama", "GPT2", "T5", "ViT", "ResNet", "Swin"])
def counted(request):
    """(calls as functions, calls as leaf modules, FLOPs by torch's own counter) of one model."""
    model, inputs = hugging_face(request.param)
    with sdpa_kernel(SDPBackend.MATH):
        by_function, theirs = run(lambda: model(**inputs))
        by_module, _ = run(lambda: model(**inputs), *LEAVES)
    return by_function, by_module, theirs


def test_a_model_costs_what_torch_counts(counted):
    by_function, by_module, theirs = counted
    assert total_cost(by_function).matmul_flops == total_cost(by_module).matmul_flops == theirs > 0


def test_all_operations_are_somewhat_more_than_the_products(counted):
    by_function, by_module, theirs = counted
    assert theirs < total_cost(by_module).flops < 1.5 * theirs
    assert total_cost(by_function).flops > theirs


def test_every_call_of_a_model_is_known(counted):
    by_function, by_module, _ = counted
    calls = [*by_function, *by_module]
    infos = [op_info(call.kind, call.target, call.module) for call in calls]
    unknown = {info.mase_op for info in infos if not info.known}
    assert unknown == set()


def test_no_tensor_is_lost_among_the_named_arguments(counted):
    for calls in counted[:2]:
        for call in calls:
            own = {} if call.module is None else dict(call.module.named_parameters())
            given = [*iterate_tensors(call.args), *iterate_tensors(call.kwargs)]
            assert len(list(iterate_tensors(named_arguments(call)))) == len(given) + len(own), call.target


def test_every_call_that_makes_a_new_tensor_moves_bytes(counted):
    for call in counted[1]:
        info = op_info(call.kind, call.target, call.module)
        if info.family in ("matmul", "conv", "attention", "norm", "elementwise") and list(iterate_tensors(call.result)):
            written = sum(t.nbytes for t in iterate_tensors(call.result))
            assert cost_of(call).bytes >= written, info.mase_op


def database():
    """Torch's own list of operators with sample arguments, where this torch ships it."""
    pytest.importorskip("expecttest")
    return pytest.importorskip("torch.testing._internal.common_methods_invocations").op_db


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore")
def test_every_sample_of_torch_s_own_operator_database_has_a_cost_and_names():
    """All operators at night, every sixth one in `make test`."""
    operators, seen = database()[:: 1 if SEARCH else 6], 0
    for operator in operators:
        for call in sampled(operator):
            seen += 1
            info = op_info(call.kind, call.target)
            assert info.flops(call) >= 0
            assert info.bytes(call) >= 0
            given = [*iterate_tensors(call.args), *iterate_tensors(call.kwargs)]
            assert len(list(iterate_tensors(named_arguments(call)))) == len(given), operator.name
    assert seen > len(operators)


def sampled(operator):
    """The calls that two samples of an operator make; none where this machine cannot run it."""
    dtype = torch.float32 if torch.float32 in operator.dtypes else next(iter(operator.dtypes), None)
    recording = Recording()
    for _, sample in zip(range(2), operator.sample_inputs("cpu", dtype) if dtype else (), strict=False):
        try:
            with torch.no_grad(), recording:
                operator.op(sample.input, *sample.args, **sample.kwargs)
        except (RuntimeError, NotImplementedError, TypeError, AssertionError, ValueError):
            continue
    return recording.calls


def from_the_examples():
    return importlib.import_module("tests.examples.cases").CASES


@pytest.mark.slow
@pytest.mark.parametrize("case", from_the_examples(), ids=lambda case: case.file)
def test_an_example_costs_what_torch_counts(case):
    model = case.build(case.load()).train()
    inputs = case.inputs(case.sizes)
    with sdpa_kernel(SDPBackend.MATH):
        calls, theirs = run(lambda: model(**inputs), *LEAVES)
    assert total_cost(calls).matmul_flops == theirs > 0
