"""What names of a checkpoint stand for: every tensor function by a name that leads back to it, and nothing else."""

from __future__ import annotations

import contextlib
import math
import operator
import os
import subprocess

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from mase_server.ir.allowed import Allowed, CheckpointError, _tensor_functions, dotted_name, is_method, is_public

NAMES, CALLABLES = _tensor_functions()


def test_every_name_leads_to_its_callable_and_back():
    allowed = Allowed()
    for function, name in CALLABLES.items():
        assert allowed.function(name) == function
        assert allowed.name_of(allowed.function(name)) == name


@pytest.mark.parametrize(
    "function",
    [torch.matmul, torch.add, functional.relu, functional.gelu, functional.softmax, functional.linear,
     functional.scaled_dot_product_attention, functional.max_pool2d, functional.interpolate, torch.einsum, torch.cat,
     torch.arange, torch.zeros, torch.full, torch.tensor, torch.rsqrt, torch.special.erf, torch.linalg.norm,
     torch.fft.rfft, operator.getitem, operator.add, operator.setitem, getattr, math.sqrt, torch.rand_like,
     torch._VF.lstm, torch._pack_padded_sequence, nn.utils.rnn.PackedSequence, torch._grouped_mm, torch.relu_,
     torch._int_mm, functional.celu_],
    ids=lambda function: getattr(function, "__name__", str(function)),
)  # fmt: skip
def test_what_graphs_call_has_a_name(function):
    assert Allowed().function(Allowed().name_of(function)) == function


@pytest.mark.parametrize(
    "function",
    [os.system, eval, exec, open, __import__, compile, setattr, delattr, globals, vars, input, breakpoint, type,
     torch.load, torch.save, torch.compile, torch.from_file, torch.set_num_threads, operator.call, torch._print,
     torch.frombuffer, operator.methodcaller,
     operator.attrgetter, subprocess.run, subprocess.Popen, os.remove, torch.hub.load, torch.jit.load],
    ids=lambda function: getattr(function, "__qualname__", str(function)),
)  # fmt: skip
def test_what_reaches_outside_is_in_no_table(function):
    assert function not in CALLABLES
    assert function not in NAMES.values()
    with pytest.raises(CheckpointError):
        Allowed().function(dotted_name(function))


def test_no_callable_in_the_table_takes_a_file():
    words = {"file", "load", "save", "exec", "eval", "import", "open", "compile", "pickle"}
    assert not [name for name in NAMES if words & set(name.rpartition(".")[2].split("_"))]


def test_an_aten_overload_is_found_by_its_name():
    allowed = Allowed()
    for overload in (torch.ops.aten.add.Tensor, torch.ops.aten.relu.default):
        assert allowed.function(allowed.name_of(overload)) is overload


@pytest.mark.parametrize("name", [None, 3, b"torch.relu", [], "", ".", "torch", "torch.", "torch.ops.aten.add",
                                  "torch.ops.aten.from_file.default", "torch.ops.aten.__add__.x"])  # fmt: skip
def test_what_is_no_name_is_an_error(name):
    allowed = Allowed()
    for look in (allowed.function, allowed.module_class, allowed.result_class):
        with pytest.raises(CheckpointError):
            look(name)


@given(st.text(max_size=30) | st.sampled_from(sorted(NAMES)).map(lambda name: f"{name}.__globals__"))
def test_any_text_is_a_tensor_function_or_an_error(text):
    with contextlib.suppress(CheckpointError):
        assert Allowed().function(text) in CALLABLES


def test_methods_are_tensors_public_ones_and_operators():
    assert all(map(is_method, ("view", "add_", "__getitem__", "__iadd__", "__invert__", "size", "__eq__", "items")))
    assert not any(
        map(is_method, ("__class__", "__reduce_ex__", "_backward_hooks", "apply_", "no_such", "", None, "a b"))
    )


@pytest.mark.parametrize("name", dir(object))
def test_what_every_object_has_is_no_method_of_a_graph_but_comparisons(name):
    assert not is_method(name) or name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
    assert not is_public(name)


def test_a_module_class_is_torch_nns_own_whatever_else_is_a_module():
    allowed = Allowed()
    assert allowed.module_class("torch.nn.modules.linear.Linear") is nn.Linear
    with pytest.raises(CheckpointError, match=r"GraphModule'"):
        allowed.module_class("torch.fx.graph_module.GraphModule")


def test_labels_name_classes_that_are_loaded_and_import_nothing():
    import sys

    allowed = Allowed()
    assert allowed.label(dotted_name(nn.Linear)) is nn.Linear
    for name in ("antigravity.Thing", "no.such.Module", "builtins.eval", "eval", "os.system"):
        assert allowed.label(name) == name
    assert "antigravity" not in sys.modules


def test_a_result_class_has_to_be_a_model_output():
    allowed = Allowed()
    found = allowed.result_class("transformers.modeling_outputs.BaseModelOutput")
    assert found.__name__ == "BaseModelOutput"
    for name in ("transformers.modeling_outputs.dataclass", "transformers.models.bert.modeling_bert.BertModel",
                 "transformers.cache_utils.os", "transformers.trainer.Trainer"):  # fmt: skip
        with pytest.raises(CheckpointError, match="no known class of results"):
            allowed.result_class(name)
