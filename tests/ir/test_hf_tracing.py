"""The dmx tracers: scopes, leaf rules, and each fault of the original."""

from __future__ import annotations

import copy
import inspect
import math

import pytest
import torch
from torch import fx, nn
from transformers import (
    BertConfig,
    BertModel,
    GPTNeoXConfig,
    GPTNeoXModel,
    LlamaConfig,
    LlamaModel,
    Qwen2Config,
    Qwen2Model,
    ViTConfig,
    ViTModel,
)

from mase_server.ir.hf import (
    DmxHFTracer,
    HFQuantTracer,
    QuantTracer,
    Scope,
    ScopeContextManager,
    disable_hooked_forward,
    hf_symbolic_trace,
    symbolic_trace,
)
from mase_server.tracing.recording.values import Rebuild

SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 100,
}  # fmt: skip


def bert():
    torch.manual_seed(0)
    return BertModel(BertConfig(**SMALL)).eval()


def decoder(kind=LlamaModel, config=LlamaConfig):
    torch.manual_seed(0)
    return kind(config(**SMALL, num_key_value_heads=4)).eval()


def same(one, other):
    ours, theirs = Rebuild.of(one).tensors, Rebuild.of(other).tensors
    return len(ours) == len(theirs) > 0 and all(map(torch.equal, ours, theirs))


def called(traced):
    """What the call nodes of a traced module call, by name."""
    nodes = [node for node in traced.graph.nodes if node.op.startswith("call_")]
    return [node.target if isinstance(node.target, str) else node.target.__name__ for node in nodes]


# hf_symbolic_trace


def test_the_signature_is_the_documented_one():
    parameters = inspect.signature(hf_symbolic_trace).parameters
    assert {name: one.default for name, one in parameters.items()} == {
        "model": inspect.Parameter.empty, "input_names": None, "concrete_args": None, "tracer_cls": DmxHFTracer,
        "dummy_inputs": None,
    }  # fmt: skip
    assert list(inspect.signature(symbolic_trace).parameters) == ["root", "concrete_args"]
    assert list(inspect.signature(Scope).parameters) == ["module_path", "module_type"]
    assert list(inspect.signature(ScopeContextManager).parameters) == ["scope", "current_module", "current_module_path"]
    assert list(inspect.signature(DmxHFTracer).parameters)[:2] == ["autowrap_modules", "autowrap_functions"]
    assert not inspect.signature(QuantTracer).parameters


def test_the_call_of_the_docstring_works_and_every_input_counts():
    # The original fails on it, because dummy_inputs is None.
    model = bert()
    traced, tracer = hf_symbolic_trace(model, input_names=["input_ids", "attention_mask", "token_type_ids"])
    assert isinstance(traced, fx.GraphModule)
    assert isinstance(tracer, DmxHFTracer)
    placeholders = [node for node in traced.graph.nodes if node.op == "placeholder"]
    assert [node.target for node in placeholders] == ["input_ids", "attention_mask", "token_type_ids"]
    assert all(node.users for node in placeholders)


def test_what_comes_back_is_what_the_annotation_says():
    annotation = inspect.get_annotations(hf_symbolic_trace, eval_str=True)["return"]
    for value, kind in zip(hf_symbolic_trace(bert()), annotation.__args__, strict=True):
        assert isinstance(value, kind)
    annotation = inspect.get_annotations(symbolic_trace, eval_str=True)["return"]
    for value, kind in zip(symbolic_trace(nn.ReLU(), {"input": torch.ones(2)}), annotation.__args__, strict=True):
        assert isinstance(value, kind)


def test_without_input_names_the_models_own_dummy_inputs_decide():
    for model, names in ((bert(), ["input_ids"]), (ViTModel(ViTConfig(**SMALL)).eval(), ["pixel_values"])):
        traced, _ = hf_symbolic_trace(model)
        assert [node.target for node in traced.graph.nodes if node.op == "placeholder"] == names


def test_dummy_inputs_name_the_inputs_and_nothing_passed_in_is_changed():
    # The original changes both dictionaries.
    ids = torch.randint(0, 100, (2, 6))
    dummies, concrete = {"input_ids": ids}, {"output_hidden_states": True}
    before = copy.copy(dummies), copy.copy(concrete)
    model = bert()
    traced, _ = hf_symbolic_trace(model, concrete_args=concrete, dummy_inputs=dummies)
    assert (dummies, concrete) == before
    assert dummies["input_ids"] is ids
    assert same(traced(ids), model(ids, output_hidden_states=True))


def test_an_input_that_forward_does_not_have_is_told():
    with pytest.raises(ValueError, match=r"^Outer has no input 'pixel_values'; its forward takes x$"):
        hf_symbolic_trace(Outer(), input_names=["pixel_values"])
    with pytest.raises(ValueError, match=r"^no form is known for the input 'nothing' of LlamaModel; "):
        hf_symbolic_trace(decoder(), input_names=["nothing"])


@pytest.mark.parametrize("tracer_cls", [DmxHFTracer, HFQuantTracer, QuantTracer])
def test_every_tracer_gives_what_eager_gives(tracer_cls):
    model, ids = decoder(), torch.randint(0, 100, (3, 7))
    traced, tracer = hf_symbolic_trace(model, tracer_cls=tracer_cls)
    assert type(tracer) is tracer_cls
    with torch.no_grad():
        assert same(traced(ids), model(ids))


# Leaf rules


@pytest.mark.parametrize(
    ("kind", "config"), [(LlamaModel, LlamaConfig), (Qwen2Model, Qwen2Config), (GPTNeoXModel, GPTNeoXConfig)]
)
def test_each_architectures_own_rotary_function_is_one_node(kind, config):
    # The original knows three copies of it, by identity.
    model, ids = decoder(kind, config), torch.randint(0, 100, (2, 5))
    traced, _ = hf_symbolic_trace(model)
    assert called(traced).count("apply_rotary_pos_emb") == 2
    assert "rotate_half" not in called(traced)
    with torch.no_grad():
        assert same(traced(ids), model(ids))


def test_activations_norms_and_rotary_embeddings_are_leaves_as_the_options_say():
    class Nothing(DmxHFTracer):
        def __init__(self):
            super().__init__(activations=False, norms=False, rotary=False)

    leaves = {"rotary_emb", "norm", "layers.0.input_layernorm", "layers.1.mlp.act_fn"}
    traced, _ = hf_symbolic_trace(decoder())
    assert leaves <= set(called(traced))
    traced, _ = hf_symbolic_trace(decoder(), tracer_cls=Nothing)
    assert not leaves & set(called(traced))
    assert {"rsqrt", "silu", "cos"} <= set(called(traced))


def test_functions_and_modules_of_ones_own_can_be_leaves():
    from transformers.models.llama import modeling_llama

    class Mine(DmxHFTracer):
        def __init__(self):
            super().__init__((math,), (modeling_llama.repeat_kv, modeling_llama.rotate_half), rotary=False)

    traced, _ = hf_symbolic_trace(decoder(), tracer_cls=Mine)
    assert called(traced).count("rotate_half") == 4


def test_a_function_is_itself_again_after_tracing_and_after_a_failure():
    from transformers.models.llama import modeling_llama

    before = modeling_llama.apply_rotary_pos_emb.__code__
    hf_symbolic_trace(decoder())
    assert modeling_llama.apply_rotary_pos_emb.__code__ is before
    with pytest.raises(ValueError, match="the input 'nothing'"):
        hf_symbolic_trace(decoder(), input_names=["nothing"])
    with pytest.raises(RuntimeError):
        hf_symbolic_trace(decoder(), dummy_inputs={"input_ids": torch.randn(2, 2)})
    assert modeling_llama.apply_rotary_pos_emb.__code__ is before


# Scopes


class Sub(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.sub = Sub()

    def forward(self, x):
        x = x.transpose(1, 2)
        return self.sub(x)


@pytest.mark.parametrize("tracer_cls", [QuantTracer, HFQuantTracer, DmxHFTracer])
def test_every_node_has_the_scope_of_the_documented_example(tracer_cls):
    tracer = tracer_cls()
    tracer.trace(Outer(), {"x": torch.randn(2, 3, 4)})
    assert tracer.node_name_to_scope["transpose"] == ("", None)
    assert tracer.node_name_to_scope["transpose_1"] == ("sub", Sub)
    assert tracer.scope == Scope("", None) or tracer.scope.module_path == ""


def test_scopes_are_the_same_when_traced_with_proxies():
    recorded, proxied = QuantTracer(), fx.Tracer()
    recorded.trace(Outer(), {"x": torch.randn(2, 3, 4)})
    proxied.trace(Outer())
    assert recorded.node_name_to_scope == proxied.node_name_to_scope


def test_the_node_of_a_leaf_is_inside_of_the_leaf_as_in_fx():
    model = nn.Sequential(nn.Linear(4, 2), nn.Sequential(nn.ReLU(), nn.Dropout()))
    recorded, proxied = QuantTracer(), fx.Tracer()
    recorded.trace(model, {"input": torch.randn(3, 4)})
    proxied.trace(model)
    assert list(recorded.node_name_to_scope.values()) == list(proxied.node_name_to_scope.values())
    assert recorded.node_name_to_scope["_1_0"] == ("1.0", nn.ReLU)


def test_a_tracer_that_is_used_twice_knows_only_the_last_model():
    tracer = QuantTracer()
    tracer.trace(Outer(), {"x": torch.randn(2, 3, 4)})
    graph = tracer.trace(Sub(), {"x": torch.randn(2, 3, 4)})
    assert set(tracer.node_name_to_scope) == {node.name for node in graph.nodes}


def test_the_scope_is_restored_after_an_exception():
    scope = Scope("outer", Outer)
    manager = ScopeContextManager(scope, Sub(), "outer.sub")
    seen = []

    def fails():
        with manager as inside:
            seen.append((inside.module_path, inside.module_type))
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert seen == [("outer.sub", Sub)]
    assert (scope.module_path, scope.module_type) == ("outer", Outer)
    assert (manager.prev_module_path, manager.prev_module_type) == ("outer", Outer)


# symbolic_trace


def test_quant_tracer_takes_batch_norm():
    # The original fails on it.
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    x = torch.randn(2, 3, 8, 8)
    traced, tracer = symbolic_trace(model, {"input": x})
    assert torch.equal(traced(x), model(x))
    assert isinstance(tracer, QuantTracer)


def test_a_function_is_specialised_on_its_concrete_arguments():
    def f(a, b):
        return a if b is True else a * 2

    traced, _ = symbolic_trace(f, concrete_args={"b": False})
    assert traced(3, False) == 6


def test_placeholders_inside_of_structures_stay_inputs():
    def f(x):
        out = 0
        for value in x.values():
            out += value
        return out

    traced, _ = symbolic_trace(f, concrete_args={"x": {"a": fx.PH, "b": fx.PH, "c": fx.PH}})
    assert traced({"a": 1, "b": 2, "c": 4}) == 7


def test_a_module_that_has_no_inputs_to_be_found_is_traced_with_proxies():
    class Odd(nn.Module):
        def forward(self, first, second):
            return first.anything(second)

    traced, _ = symbolic_trace(Odd())
    assert [node.target for node in traced.graph.nodes if node.op == "call_method"] == ["anything"]


# disable_hooked_forward


def hooked(model):
    """As accelerate's add_hook_to_module does it, without a device map."""
    for module in model.modules():
        module._old_forward = module.forward
        module.forward = lambda *args, _module=module, **kwargs: (_module._old_forward(*args, **kwargs), "hooked")[0]
    return model


def test_hooks_are_off_inside_and_on_again_after_an_exception():
    # The original leaves them off.
    model = hooked(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    before = [vars(module)["forward"] for module in model.modules()]
    seen = []

    def fails():
        with disable_hooked_forward(model):
            seen.extend(module.forward for module in model.modules())
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert seen == [module._old_forward for module in model.modules()]
    assert [vars(module)["forward"] for module in model.modules()] == before


def test_a_model_without_hooks_is_not_touched():
    model = nn.Sequential(nn.Linear(2, 2))
    before = {id(module): dict(vars(module)) for module in model.modules()}
    with disable_hooked_forward(model):
        pass
    assert {id(module): dict(vars(module)) for module in model.modules()} == before


def test_a_hooked_model_is_traced_without_its_hooks_and_keeps_them():
    model = hooked(bert())
    traced, _ = hf_symbolic_trace(model)
    assert "forward" in vars(model)
    ids = torch.randint(0, 100, (2, 4))
    with torch.no_grad():
        assert same(traced(ids), model._old_forward(ids))
