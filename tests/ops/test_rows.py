"""The grammar that rows are written in, and what importing the table may not do."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mase_server.ops.rows import Row, cost_nothing, count_traffic, guard_formula, parse_rows
from mase_server.ops.types import OpCall, iterate_tensors
from ops.recording import f32


def one(text) -> Row:
    (row,) = parse_rows("other", cost_nothing, text)
    return row


def test_a_plain_name_is_the_function_the_method_and_their_in_place_forms():
    assert set(one("exp").targets()) == {torch.exp, torch.exp_, torch.Tensor.exp, torch.Tensor.exp_}


def test_a_dotted_name_is_only_where_it_says():
    row = one("linalg.norm")
    assert row.mase_op == "linalg_norm"
    assert list(row.targets()) == [torch.linalg.norm]


def test_other_callables_and_modules_share_a_name():
    row = one("relu=relu,F.relu6:ReLU,ReLU6")
    assert row.mase_op == "relu"
    assert {nn.ReLU, nn.ReLU6, torch.relu, nn.functional.relu6} <= set(row.targets())


def test_the_two_unfolds_are_not_confused():
    assert list(one("unfold=Tensor.unfold").targets()) == [torch.Tensor.unfold]
    assert list(one("unfold=F.unfold").targets()) == [nn.functional.unfold]


@pytest.mark.parametrize("text", ["op_of_a_later_torch", "linalg.op_of_a_later_torch", "x=nn.Later:AlsoLater"])
def test_what_this_torch_does_not_have_is_skipped(text):
    assert list(one(text).targets()) == []


def test_an_element_type_is_not_taken_for_an_operator():
    assert torch.float not in set(one("float").targets())
    assert torch.Tensor.float in set(one("float").targets())


def test_several_rows_are_separated_by_any_white_space():
    assert [row.mase_op for row in parse_rows("other", cost_nothing, "exp\n  log\tsin")] == ["exp", "log", "sin"]


@pytest.mark.parametrize("error", [IndexError, KeyError, AttributeError, TypeError, ValueError, ZeroDivisionError])
def test_a_formula_that_stumbles_counts_nothing(error):
    def stumble(_):
        raise error("over this call")

    assert guard_formula(stumble)(OpCall("call_function", torch.exp)) == 0


def test_a_formula_does_not_hide_that_memory_or_the_user_ended_it():
    def interrupted(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard_formula(interrupted)(OpCall("call_function", torch.exp))


NESTED = st.recursive(
    st.none() | st.integers() | st.builds(f32, st.integers(0, 4)),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


@given(NESTED)
def test_every_tensor_of_a_nested_value_is_seen_once(value):
    assert len(list(iterate_tensors(value))) == repr(value).count("TensorType(")
    assert count_traffic(OpCall("call_function", torch.exp, (value,))) == sum(t.nbytes for t in iterate_tensors(value))


def test_a_slice_s_bounds_are_looked_into():
    assert list(iterate_tensors(slice(f32(), None, f32(1)))) == [f32(), f32(1)]


SCRIPT = """
import json, sys, threading
import torch
from torch.utils._python_dispatch import TorchDispatchMode
before = set(sys.modules)

class Ops(TorchDispatchMode):
    seen = []
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        Ops.seen.append(str(func))
        return func(*args, **(kwargs or {}))

with Ops():
    import mase_server.ops.table as table
    for target in list(table.TABLE):
        if not isinstance(target, type):
            table.op_info("call_function", target)
new = sorted(name for name in set(sys.modules) - before if not name.startswith("mase_server"))
print(json.dumps({"ops": Ops.seen, "threads": threading.active_count(), "modules": new}))
"""


def test_importing_the_table_runs_no_op_starts_no_thread_and_imports_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=120)
    seen = json.loads(done.stdout)
    assert seen["ops"] == []
    assert seen["threads"] == 1
    heavy = {"numpy", "sympy", "transformers", "torch._dynamo", "torch._inductor", "torch.utils.flop_counter"}
    assert not heavy & set(seen["modules"])
