"""Recording by running: data flow, aliases, containers and odd objects, against eager on real tensors."""

from __future__ import annotations

import dataclasses
import sys
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph
from mase_server.tracing.recording.recorder import Recorder
from mase_server.tracing.recording.shadow import Shadows
from tests.tracing.recording import assert_equal_to_eager, record, run_once, targets


class Model(nn.Module):
    """A small module whose forward is given as a function of (self, x)."""

    def __init__(self, forward: Any, **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self._function = (forward,)

    def forward(self, x: torch.Tensor) -> Any:
        return self._function[0](self, x)


def linear() -> nn.Linear:
    torch.manual_seed(3)
    return nn.Linear(6, 6)


def aliased(model, x):
    y = x.contiguous()
    y = y + 1
    return x, y


def moved(model, x):
    same = x.to("cpu").to(x.dtype).to(x.device)
    return model.fc(same) + x


def residual(model, x):
    keep = x
    x = model.fc(x)
    x = x.relu()
    return x + keep


def in_place_chain(model, x):
    y = x * 2
    y.add_(1).mul_(3)
    y += x
    y[0] = 5
    y[:, 1] = x[:, 2]
    return y


def views_see_writes(model, x):
    y = x.clone()
    view = y[:, :3]
    view.zero_()
    view2 = y.view(-1)
    view2[0] = 9
    return y, view


def base_writes_are_seen_by_views(model, x):
    y = x.clone()
    row = y[0]
    y.mul_(2)
    return row + 1


def relu_in_place(model, x):
    y = model.fc(x)
    model.act(y)
    return y


def writes_an_input(model, x):
    x.add_(1)
    return model.fc(x)


def buffer_is_written(model, x):
    model.seen.add_(1)
    return x * model.seen


def buffer_is_replaced(model, x):
    model.seen = model.seen * 2
    return x * model.seen


def twice(model, x):
    return model.fc(model.fc(x))


def parameter_used_directly(model, x):
    return F.linear(x, model.fc.weight.t(), model.fc.bias) * model.scale


def plain_attribute(model, x):
    return x * model.plain


def made_in_forward(model, x):
    return nn.LayerNorm(6)(x) + nn.ReLU()(x)


def numpy_constant(model, x):
    return x * np.float32(2.5) + torch.from_numpy(np.arange(6, dtype=np.float32)) / np.sqrt(4)


def numpy_array_method(model, x):
    return x + torch.tensor(np.eye(6, dtype=np.float32))[0]


def constant_tensor(model, x):
    mask = torch.tril(torch.ones(6, 6))
    return x @ mask


def boolean_mask(model, x):
    keep = torch.tensor([True, False, True, True, False, False])
    return x[:, keep]


def lists_as_indices(model, x):
    y = model.fc(x)
    return y[[slice(None), 0]], y[[[0, 1], [2, 3]]], y[[None, Ellipsis, 0]], y[[1, 0]]


def masked_fill_known(model, x):
    mask = torch.arange(6) < 3
    return x.masked_fill(mask, float("-inf")).softmax(-1)


def where_and_item(model, x):
    positions = torch.arange(6)
    return x[:, : int(positions.max().item())]


def reads_in_control_flow(model, x):
    mask = torch.ones(6, dtype=torch.bool)
    return model.fc(x) if mask.all() else x


def parameter_of_an_attribute(self, x):
    y = x + nn.Parameter(self.plain, requires_grad=False)
    return self.fc(y) * nn.Parameter(self.plain, requires_grad=False).to("cpu")


def loop_over_rows(model, x):
    return torch.stack([row * index for index, row in enumerate(x)])


def unbind_chunk_split(model, x):
    a, b = x.chunk(2, dim=-1)
    c, d, e = x.split([1, 2, 3], dim=-1)
    return torch.cat([a * b, d], -1), c, e


def returns_dict(model, x):
    return {"logits": model.fc(x), "nested": {"pair": (x, [x + 1, None])}, "n": 3}


def returns_ordered_dict(model, x):
    return OrderedDict(a=x, b=model.fc(x))


def max_with_indices(model, x):
    best = x.max(dim=-1)
    return best.values, best.indices, x.topk(2).values


def einsum_and_functions(model, x):
    y = torch.einsum("bi,ij->bj", x, model.fc.weight)
    return F.gelu(F.layer_norm(y, (6,)))


def properties(model, x):
    return x.T @ x, x.mT


def augmented(model, x):
    y = x + 0
    y -= 1
    y *= x
    y @= model.fc.weight
    return y


def out_argument(model, x):
    out = torch.empty_like(x)
    torch.add(x, 1, out=out)
    return out


def out_arguments_of_other_sizes(model, x):
    out, values, places = torch.zeros(2), torch.empty(0), torch.empty(0, dtype=torch.long)
    torch.mul(x, 2, out=out)
    torch.max(out, dim=0, out=(values, places))
    return out + 1, values * 2, places + 1


def given_data(model, x):
    y, known = x * 1, torch.zeros(2)
    y.data, known.data = x.sum(0), x.clone()
    return y + 1, known + 1


def weights_given_data(model, x):
    model.fc.weight.data = model.fc.weight.data * 2
    return model.fc(x)


def vmapped(model, x):
    return torch.vmap(lambda row: row * 2 + row.sum())(x)


def vmapped_over_a_closure(model, x):
    weight = model.fc.weight
    return torch.vmap(lambda row: weight @ row)(x)


def vmapped_with_a_size(model, x):
    size = len(x)
    return torch.vmap(lambda row: row * size + model.plain[0], in_dims=1, out_dims=1)(x)


def vmapped_twice(model, x):
    y = model.fc(x)
    outer = torch.vmap(lambda a: torch.vmap(lambda b: a @ b + y.sum())(y))
    return outer(y), torch.vmap(torch.dot)(x, y)


def copy_under_the_mode(model, x):
    y = torch.zeros(2, 6)
    y.copy_(x[:2])
    return y


def scatter(model, x):
    index = torch.zeros(1, 6, dtype=torch.long)
    return torch.zeros(4, 6).scatter_add_(0, index, x[:1])


def comparison_chain(model, x):
    return (x > 0) & ~(x > 1) | (x == 0)


def shape_arithmetic(model, x):
    b, d = x.shape
    return x.view(b, 2, d // 2).transpose(1, 2).reshape(b * (d // 2), 2)


def expand_and_repeat(model, x):
    return model.scale.expand(x.size(0), -1) + x.repeat(1, 1)


def ellipsis_and_none(model, x):
    return x[..., None, 1:-1], x[None], x[:, [0, 2]], x[torch.tensor([1, 0])]


def pad_and_roll(model, x):
    return F.pad(x, (1, 2)), x.roll(1, 0), x.flip(-1)


def cast(model, x):
    return x.half().float(), x.int(), x.type(torch.float64), x.type_as(model.fc.weight)


def attention(model, x):
    q = x.view(x.shape[0], 1, 2, 3)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True)


def embedding_of_argmax(model, x):
    return F.embedding(x.argmax(-1), model.fc.weight)


def random_in_eval(model, x):
    return F.dropout(x, 0.5, training=True) + torch.rand_like(x)


def split_then_assign(model, x):
    out = torch.zeros_like(x)
    out[:, ::2] = x[:, 1::2]
    out[:, 1::2] = x[:, ::2]
    return out


def detach_keeps_storage(model, x):
    y = x.clone()
    y.detach().zero_()
    return y


def data_attribute(model, x):
    y = x.clone()
    y.data[0] = 1.0
    return y


def nested_function(model, x):
    def inner(value, *, by):
        return value * by

    return inner(x, by=model.scale)


def lambda_and_comprehension(model, x):
    return sum((lambda v: v * n)(x) for n in range(3))


def parameter_list(model, x):
    for weight in model.weights:
        x = x * weight
    return x


def module_list_and_dict(model, x):
    for layer in model.layers:
        x = layer(x)
    return model.heads["a"](x)


def bare_return(model, x):
    return x


def constant_result(model, x):
    return x, 3, "text", None, 2.5


def unused_result(model, x):
    x.sin()
    return x


FORWARDS = [
    aliased, moved, residual, in_place_chain, views_see_writes, base_writes_are_seen_by_views, relu_in_place,
    writes_an_input, twice, parameter_used_directly, plain_attribute, made_in_forward, numpy_constant,
    numpy_array_method, constant_tensor, boolean_mask, masked_fill_known, lists_as_indices, where_and_item,
    reads_in_control_flow, unbind_chunk_split, returns_dict, returns_ordered_dict, max_with_indices,
    einsum_and_functions, properties, augmented, out_argument, out_arguments_of_other_sizes,
    given_data, weights_given_data, vmapped, vmapped_over_a_closure, vmapped_twice,
    vmapped_with_a_size, copy_under_the_mode, scatter,
    comparison_chain, shape_arithmetic, expand_and_repeat, ellipsis_and_none, pad_and_roll, cast, attention,
    embedding_of_argmax, random_in_eval, split_then_assign, detach_keeps_storage, data_attribute, nested_function,
    lambda_and_comprehension, parameter_list, module_list_and_dict, bare_return, constant_result, unused_result,
    buffer_is_written, buffer_is_replaced, loop_over_rows, parameter_of_an_attribute,
]  # fmt: skip
#: Forwards whose graph cannot hold at other batch sizes.
FIXED = {loop_over_rows, properties, vmapped_with_a_size}


def model_of(forward: Any) -> Model:
    model = Model(
        forward,
        fc=linear(),
        act=nn.ReLU(inplace=True),
        scale=nn.Parameter(torch.linspace(0.5, 2, 6)),
        plain=torch.linspace(1, 2, 6),
        layers=nn.ModuleList([linear(), nn.Tanh()]),
        heads=nn.ModuleDict({"a": linear()}),
        weights=nn.ParameterList([torch.full((6,), 2.0), torch.full((6,), 0.5)]),
    )
    model.register_buffer("seen", torch.ones(6))
    return model


def batch(size: int) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(size, 6, generator=torch.Generator().manual_seed(size))}


@pytest.mark.parametrize("forward", FORWARDS, ids=lambda forward: forward.__name__)
def test_the_graph_computes_what_the_forward_computes(forward):
    graph = assert_equal_to_eager(model_of(forward), batch(4))
    if graph.generic and forward is not buffer_is_replaced:  # of what is kept from call to call, it is the first call
        assert_equal_to_eager(model_of(forward), batch(4), batch(3), batch(9))


def test_a_vmapped_function_that_was_made_with_a_size_is_not_claimed_to_be_generic():
    assert not MaseGraph(model_of(vmapped_with_a_size).eval(), batch(4)).generic


@pytest.mark.parametrize("forward", [one for one in FORWARDS if one not in FIXED], ids=lambda one: one.__name__)
def test_graphs_hold_at_any_batch_size(forward):
    assert MaseGraph(model_of(forward).eval(), batch(4)).generic


def test_code_that_the_caller_compiled_is_recorded_as_it_is_written():
    class Compiled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.compile(nn.Linear(6, 6), backend="eager")
            self.half = torch.compile(lambda x: (x * 0.5).relu(), backend="eager")

        def forward(self, x):
            return self.half(self.layer(x))

    graph = assert_equal_to_eager(Compiled(), batch(4), batch(9))
    assert [node.op for node in graph.nodes] == ["placeholder", "call_module", *["call_method"] * 2, "output"]


def test_a_residual_edge_goes_to_the_value_before_the_layer():
    graph = MaseGraph(model_of(residual), batch(4))
    by_name = {node.name: node for node in graph.nodes}
    assert by_name["add"].args == (by_name["relu"], by_name["x"])


def test_writes_come_before_the_reads_that_follow_them():
    names = targets(MaseGraph(model_of(in_place_chain), batch(4)))
    assert names.index("setitem") < names.index("setitem", names.index("setitem") + 1)
    assert names[:5] == ["mul", "add_", "mul_", "add_", "setitem"] or "__iadd__" in names


def test_what_writes_stays_although_nothing_uses_its_result():
    graph = MaseGraph(model_of(views_see_writes), batch(4))
    graph.fx_graph.eliminate_dead_code()
    graph.model.recompile()
    assert "setitem" in targets(graph)
    ours = run_once(graph.model, batch(4))
    assert ours[0][:, :3].flatten().tolist()[1:] == [0.0] * 11


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@dataclasses.dataclass
class Batch:
    ids: torch.Tensor
    mask: torch.Tensor | None = None
    name: str = "batch"


class Box:
    """An object with a tensor inside, as caches have."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.keys = [tensor]
        self.steps = 1


class TakesContainers(nn.Module):
    def forward(self, pair, batch, named, box):
        total = pair.left + pair.right * 2 + batch.ids
        if batch.mask is not None:
            total = total * batch.mask
        box.keys.append(named["more"][0][1])
        return Pair(total, sum(box.keys))


def containers(size: int) -> dict[str, Any]:
    make = torch.Generator().manual_seed(size)
    x, y, z = (torch.randn(size, 3, generator=make) for _ in range(3))
    return {"pair": Pair(x, y), "batch": Batch(y, z), "named": {"more": [(x, z)]}, "box": Box(y)}


def test_named_tuples_dataclasses_dicts_and_objects_go_in_and_out():
    model = TakesContainers()
    graph = MaseGraph(model, containers(4))
    theirs = model(**containers(4))
    ours = graph.model(**containers(4))
    assert type(ours) is Pair
    assert torch.equal(ours.left, theirs.left)
    assert torch.equal(ours.right, theirs.right)


class ReturnsDataclass(nn.Module):
    def forward(self, x):
        return Batch(x + 1, None, "out")


def test_a_dataclass_comes_out_as_itself():
    x = torch.ones(2, 3)
    ours = MaseGraph(ReturnsDataclass(), {"x": x}).model(x)
    assert type(ours) is Batch
    assert ours.name == "out"
    assert ours.mask is None
    assert torch.equal(ours.ids, x + 1)


class Cached(nn.Module):
    """A cache that the caller passes and gets back."""

    def __init__(self):
        super().__init__()
        self.fc = linear()

    def forward(self, x, cache=None):
        key = self.fc(x)
        if cache is not None:
            key = torch.cat([cache.keys[0], key], dim=0)
        made = Box(key)
        return key.sum(0), made


@pytest.mark.parametrize("with_cache", [False, True])
def test_a_cache_comes_out_with_its_tensors(with_cache):
    model, x = Cached(), torch.randn(4, 6)
    cache = Box(torch.randn(2, 6)) if with_cache else None
    inputs = {"x": x} | ({"cache": cache} if with_cache else {})
    theirs = model(**inputs)
    ours = MaseGraph(model, inputs).model(**inputs)
    assert torch.equal(ours[0], theirs[0])
    assert type(ours[1]) is Box
    assert torch.equal(ours[1].keys[0], theirs[1].keys[0])


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight
        self.again = self.embed

    def forward(self, ids):
        return self.head(self.embed(ids) + self.again(ids)) @ self.head.weight


def test_tied_weights_and_shared_modules_are_the_same_in_the_graph():
    model, ids = Shared(), torch.randint(0, 11, (3, 5))
    graph = assert_equal_to_eager(model, {"ids": ids}, {"ids": torch.randint(0, 11, (2, 7))})
    modules = dict(graph.model.named_modules())
    assert modules["head"].weight is model.embed.weight


def test_hooks_of_a_leaf_run_inside_it_and_do_not_show():
    model = model_of(twice)
    seen = []
    model.fc.register_forward_hook(lambda module, args, out: seen.append(tuple(out.shape)))
    run = record(model, batch(4)["x"])
    assert [call.kind for call in run.calls] == ["placeholder", "call_module", "call_module", "output"]
    assert seen == [(4, 6), (4, 6)]


def test_a_hook_that_changes_a_result_is_part_of_the_graph():
    model = nn.Sequential(linear())
    model[0].register_forward_hook(lambda module, args, out: out * 2)
    assert_equal_to_eager(model, {"input": torch.randn(3, 6)})


def test_a_forward_pre_hook_of_the_root_is_part_of_the_graph():
    model = model_of(residual)
    model.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    run = record(model, batch(4)["x"])
    assert len(run.calls) == len(record(model_of(residual), batch(4)["x"]).calls) + 1


def test_module_call_is_put_back_after_an_exception():
    def fails(model, x):
        raise KeyError("no")

    original = nn.Module.__call__
    with pytest.raises(KeyError):
        record(model_of(fails), batch(4)["x"])
    assert nn.Module.__call__ is original
    assert torch.overrides._len_torch_function_stack() == 0
    assert torch.is_grad_enabled()


def test_what_was_recorded_before_a_failure_is_kept():
    def fails(model, x):
        y = model.fc(x)
        return y @ y

    recorder = Recorder(model_of(fails), Shadows())
    with pytest.raises(RuntimeError):
        recorder.record((torch.randn(4, 6),), {})
    partial = recorder.partial()
    assert [call.target for call in partial.calls] == ["x", "fc"]
    assert recorder.failure is not None
    assert [tuple(one.shape) for one in recorder.failure.args] == [(4, 6), (4, 6)]


def test_a_failure_inside_a_leaf_says_which_leaf():
    recorder = Recorder(model_of(twice), Shadows())
    with pytest.raises(RuntimeError):
        recorder.record((torch.randn(4, 5),), {})
    assert recorder.failure is not None
    assert recorder.failure.path == "fc"
    assert recorder.failure.module is recorder.root.fc


def test_star_arguments_are_placeholders():
    class Star(nn.Module):
        def forward(self, *tensors, **named):
            return tensors[0] + tensors[1] * named["z"]

    run = record(Star(), torch.ones(2), torch.ones(2), z=torch.ones(2))
    assert list(run.placeholders) == ["tensors_0", "tensors_1", "z"]


def test_scopes_name_the_module_whose_forward_ran():
    class Inner(nn.Module):
        def forward(self, x):
            return x * 2

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Inner(), Inner()])

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return x + 1

    graph = MaseGraph(Outer(), {"x": torch.ones(2, 3)})
    scopes = [(node.meta["scope"].module_path, node.meta["scope"].module_type) for node in graph.nodes]
    assert scopes == [("", None), ("blocks.0", Inner), ("blocks.1", Inner), ("", None), ("", None)]


def test_the_scope_is_the_callers_again_after_a_caught_exception():
    class Inner(nn.Module):
        def forward(self, x):
            raise ValueError("not today")

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            try:
                return self.inner(x)
            except ValueError:
                return x + 1

    run = record(Outer(), torch.ones(2))
    assert [run.scopes[call.scope][0] for call in run.calls] == ["", "", ""]


def test_the_rest_of_a_pickle_like_object_is_the_constant_it_was():
    class Choice:
        def __init__(self, weight):
            self.weight = weight

        def apply(self, x):
            return x * self.weight

    choice = Choice(torch.tensor([1.0, 2.0, 3.0]))
    assert_equal_to_eager(Model(lambda model, x: choice.apply(x)), {"x": torch.randn(2, 3)})


def test_a_model_on_meta_and_the_same_model_real_record_the_same():
    with torch.device("meta"):
        on_meta = model_of(parameter_used_directly)
    real = model_of(parameter_used_directly)
    mine = [(call.kind, call.target, call.value) for call in record(on_meta, batch(4)["x"]).calls]
    assert mine == [(call.kind, call.target, call.value) for call in record(real, batch(4)["x"]).calls]


def counted(model, x, name):
    """How often the recording of a forward calls a method of C with this name."""
    calls = 0

    def count(frame, event, function):
        nonlocal calls
        calls += event == "c_call" and function.__name__ == name

    sys.setprofile(count)
    try:
        record(model, x)
    finally:
        sys.setprofile(None)
    return calls


def test_the_work_for_numbers_that_become_tensors_does_not_grow_with_their_count():
    """Counters of operations make one for each layer, of a class that the recorder does not see."""

    def summed(count):
        def forward(model, x):
            total = torch.zeros(1, dtype=torch.float64)
            for index in range(count):
                total = total + torch.DoubleTensor([float(index)])
            return x.double() + total

        return Model(forward)

    few, many = (counted(summed(count), torch.ones(2, 6), "untyped_storage") for count in (50, 200))
    assert 0 < few < many < 6 * few
