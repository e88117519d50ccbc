"""A graph that was exported and loaded is the same graph: structure, metadata, weights and results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import safetensors.torch
import torch
import transformers
from torch import fx, nn
from torch.nn import functional
from transformers import BloomConfig, BloomModel

from mase_server import MaseGraph, passes
from mase_server.ir.allowed import CheckpointError, dotted_name
from mase_server.ir.checkpoint import export, load, load_module
from tests.examples.cases import BY_FILE, CASES
from tests.examples.test_equal_to_eager import assert_equal, built, results, tensors_of
from tests.ir.checkpoints import around, small

MAPPED = r"^the graph cannot be exported: node '.*' holds a .*Vmapped: a function that torch.vmap maps"


def round_trip(graph, folder, allow=()):
    """The module that comes back."""
    export(graph, folder / "graph")
    return load_module(folder / "graph", allow).model


def metadata(model):
    """Everything that is known of each node but its values, which are not kept.

    Classes by name: those of the examples are in no module that could be found again.
    """
    return [
        (node.name, node.meta["mase"].parameters, scope_of(node), node.meta.get("value")) for node in model.graph.nodes
    ]


def scope_of(node):
    scope = node.meta.get("scope")
    if scope is None:
        return None
    kind = scope.module_type
    return scope.module_path, dotted_name(kind) if isinstance(kind, type) else kind


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_an_example_comes_back_equal_in_graph_metadata_and_results(case, tmp_path):
    model = built(case).eval()
    inputs = case.inputs(case.sizes)
    graph = MaseGraph(model, inputs)
    graph, _ = passes.add_common_metadata_analysis_pass(graph, {"dummy_in": inputs, "add_value": False})
    if case.file == "llama_hf.py" and transformers.__version__ < "5":  # it makes its masks with torch.vmap
        with pytest.raises(CheckpointError, match=MAPPED):
            round_trip(graph, tmp_path)
        return
    found = round_trip(graph, tmp_path)
    assert str(found.graph) == str(graph.fx_graph)
    assert found.code == graph.model.code
    assert metadata(found) == metadata(graph.model)
    assert_equal(results(found, tensors_of(inputs)), results(model, inputs))


@pytest.mark.parametrize("name", ["transformer_encoder.py", "vae.py", "lstm_classifier.py"])
def test_a_graph_in_training_mode_comes_back_in_training_mode(name, tmp_path):
    case = BY_FILE[name]
    model = built(case).train()
    inputs = case.inputs(case.sizes)
    found = round_trip(MaseGraph(model, inputs), tmp_path)
    assert found.training
    assert_equal(results(found, tensors_of(inputs), seed=5), results(model, inputs, seed=5))


def test_a_hugging_face_classifier_comes_back_with_its_own_output_class(tmp_path):
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512)
    model = BertForSequenceClassification(config).eval()
    ids = torch.randint(0, 1000, (2, 9))
    graph = MaseGraph(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    graph.export(str(tmp_path / "tutorial_1"))
    found = MaseGraph.from_checkpoint(str(tmp_path / "tutorial_1"))
    ours, theirs = found.model(ids, torch.ones_like(ids)), model(ids, torch.ones_like(ids))
    assert type(ours) is type(theirs)
    assert torch.equal(ours.logits, theirs.logits)


def test_a_decoders_cache_comes_back(tmp_path):
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    model = LlamaModel(LlamaConfig(**sizes, vocab_size=50)).eval()
    ids = torch.randint(0, 50, (2, 5))
    found = round_trip(MaseGraph(model, {"input_ids": ids}), tmp_path)
    ours, theirs = found(ids), model(ids)
    assert type(ours.past_key_values) is type(theirs.past_key_values)
    assert torch.equal(ours.past_key_values.layers[1].keys, theirs.past_key_values.layers[1].keys)


# Names and files


@pytest.mark.parametrize("name", ["plain", "./here", "v1.2.final", "with space", "folder/inner", "ünï"])
def test_any_name_gives_exactly_its_two_files(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    export(small(), name)
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*") if path.is_file())
    plain = os.path.normpath(name)
    assert found == [f"{plain}.mz", f"{plain}.pt"]
    assert load(name).fx_graph


def test_the_default_name_is_masegraph(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small().export()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["masegraph.mz", "masegraph.pt"]


def test_a_missing_folder_is_named_when_writing(tmp_path):
    with pytest.raises(CheckpointError) as caught:
        export(small(), tmp_path / "no" / "graph")
    assert str(caught.value) == (
        f"cannot write {tmp_path}/no/graph.pt: the folder {tmp_path}/no does not exist; make it first"
    )


def test_a_missing_checkpoint_says_which_file_and_how_it_is_named(tmp_path):
    with pytest.raises(CheckpointError) as caught:
        load(tmp_path / "graph.pt")
    assert str(caught.value) == (
        f"{tmp_path}/graph.pt.mz does not exist; a checkpoint is given by its name without .pt and .mz"
    )


def test_an_export_that_fails_leaves_the_old_checkpoint(tmp_path):
    export(small(), tmp_path / "graph")
    before = [(tmp_path / name).read_bytes() for name in ("graph.pt", "graph.mz")]
    hooked = nn.Linear(2, 2)
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(CheckpointError, match="hooks"):
        export(around(hooked), tmp_path / "graph")
    assert [(tmp_path / name).read_bytes() for name in ("graph.pt", "graph.mz")] == before
    assert len(list(tmp_path.iterdir())) == 2


def test_the_tensors_are_a_safetensors_file(tmp_path):
    graph = small()
    export(graph, tmp_path / "graph")
    theirs = safetensors.torch.load_file(tmp_path / "graph.pt")
    ours = list(graph.model.state_dict().values())
    assert len(theirs) == len(ours)
    for tensor in ours:
        assert any(one.dtype == tensor.dtype and torch.equal(one, tensor) for one in theirs.values())


# What tensors keep


def test_tied_weights_stay_one_tensor_and_are_stored_once(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(1000, 16)
            self.head = nn.Linear(16, 1000, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, ids):
            return self.head(self.embedding(ids))

    found = round_trip(MaseGraph(Tied(), {"ids": torch.arange(4)[None]}), tmp_path)
    assert found.embedding.weight is found.head.weight
    assert (tmp_path / "graph.pt").stat().st_size < 1.1 * 1000 * 16 * 4


def test_a_module_that_is_called_twice_stays_one_module(tmp_path):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = self.other = nn.Linear(3, 3)

        def forward(self, x):
            return self.one(self.other(x))

    found = round_trip(MaseGraph(Twice(), {"x": torch.randn(2, 3)}), tmp_path)
    assert len([m for m in found.modules() if isinstance(m, nn.Linear)]) == 1


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool, torch.complex64,
     torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2],
    ids=str,
)  # fmt: skip
def test_every_element_type_keeps_its_bits(dtype, tmp_path):
    values = torch.randint(0, 2, (3, 5)).to(dtype)
    module = nn.Identity()
    module.register_buffer("values", values)
    found = round_trip(around(module), tmp_path).m.values
    assert found.dtype == dtype
    assert torch.equal(found.view(torch.uint8), values.view(torch.uint8))


def test_strides_gradients_and_persistence_are_kept(tmp_path):
    module = nn.Identity()
    module.register_buffer("image", torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), persistent=False)
    module.frozen = nn.Parameter(torch.randn(4, 3).T, requires_grad=False)
    module.empty = nn.Parameter(torch.empty(0, 7))
    module.scalar = nn.Parameter(torch.tensor(2.5))
    found = round_trip(around(module), tmp_path).m
    for name in ("image", "frozen", "empty", "scalar"):
        mine, other = getattr(module, name), getattr(found, name)
        assert (mine.stride(), mine.requires_grad, type(mine)) == (other.stride(), other.requires_grad, type(other))
        assert torch.equal(mine, other)
    assert list(found.state_dict()) == list(module.state_dict())


def test_a_model_on_meta_comes_back_on_meta_without_any_bytes(tmp_path):
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(10_000, 10_000), nn.ReLU())
    found = round_trip(MaseGraph(model, {"input": torch.empty(1, 10_000, device="meta")}), tmp_path)
    assert {tensor.device.type for tensor in found.state_dict().values()} == {"meta"}
    assert (tmp_path / "graph.pt").stat().st_size < 1000


# Classes, functions and metadata


class Doubling(nn.Module):
    """A leaf of the user's own."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def shifted(x: torch.Tensor) -> torch.Tensor:
    """A function of the user's own."""
    return x + 1


def test_a_class_of_the_users_own_loads_only_where_it_is_allowed(tmp_path):
    export(around(Doubling(2.0)), tmp_path / "graph")
    with pytest.raises(CheckpointError, match=r"Doubling'.* which is not torch.nn's; where you trust it, pass it: "):
        load(tmp_path / "graph")
    found = load(tmp_path / "graph", allow=[Doubling])
    assert torch.equal(found.model(torch.ones(2)), torch.full((2,), 2.0))


def calling(function):
    """A graph of one call of a function."""
    graph = fx.Graph()
    graph.output(graph.call_function(function, (graph.placeholder("x"),)))
    return MaseGraph(fx.GraphModule(nn.Module(), graph), skip_init_metadata=True)


def test_a_function_of_the_users_own_loads_only_where_it_is_allowed(tmp_path):
    export(calling(shifted), tmp_path / "graph")
    with pytest.raises(CheckpointError, match="which is not a tensor function"):
        load(tmp_path / "graph")
    assert torch.equal(load(tmp_path / "graph", allow=[shifted]).model(torch.ones(2)), torch.full((2,), 2.0))


def test_a_function_without_a_name_cannot_be_exported(tmp_path):
    def local(x):
        return x

    with pytest.raises(CheckpointError, match=r"node 'local' calls .*local.*, which has no name that can be looked up"):
        export(calling(local), tmp_path / "graph")


class Both(NamedTuple):
    """A result class of the user's own."""

    first: torch.Tensor
    second: torch.Tensor


def test_a_result_class_of_the_users_own_loads_only_where_it_is_allowed(tmp_path):
    class Pairs(nn.Module):
        def forward(self, x):
            return Both(x + 1, x * 2)

    model = Pairs()
    export(MaseGraph(model, {"x": torch.ones(3)}), tmp_path / "graph")
    with pytest.raises(CheckpointError, match=r"Both'.* which is no known class of results"):
        load(tmp_path / "graph")
    found = load(tmp_path / "graph", allow=[Both]).model(torch.ones(3))
    assert isinstance(found, Both)
    assert torch.equal(found.second, torch.full((3,), 2.0))


def test_a_recorded_graph_with_leaf_functions_comes_back(tmp_path):
    class Calls(nn.Module):
        def forward(self, x):
            return shifted(x) * 2

    graph = MaseGraph(Calls(), {"x": torch.ones(3)}, custom_ops={"functions": {shifted: {}}})
    export(graph, tmp_path / "graph")
    found = load(tmp_path / "graph", allow=[shifted])
    assert next(node.target for node in found.nodes if node.op == "call_function") is shifted
    assert torch.equal(found.model(torch.ones(3)), torch.full((3,), 4.0))


def test_a_vmapped_function_is_told_to_be_code(tmp_path):
    class Mapped(nn.Module):
        def forward(self, x):
            return torch.vmap(lambda row: row * 2)(x)

    graph = MaseGraph(Mapped(), {"x": torch.ones(3, 2)})
    with pytest.raises(CheckpointError, match=MAPPED):
        export(graph, tmp_path / "graph")


def test_the_constructor_of_a_class_does_not_run_on_loading(tmp_path):
    class Loud(Doubling):
        """Tells when it is made."""

        def __init__(self) -> None:
            raise AssertionError("the constructor ran")

    module = object.__new__(Loud)
    nn.Module.__init__(module)
    module.factor = 3.0
    export(around(module), tmp_path / "graph")
    assert load(tmp_path / "graph", allow=[Loud]).model.m.factor == 3.0


def test_metadata_that_cannot_be_kept_is_left_out_and_found_again(tmp_path):
    graph = small()
    passes.add_common_metadata_analysis_pass(graph, {"dummy_in": {"x": torch.randn(5, 4)}, "add_value": False})
    node = next(node for node in graph.nodes if node.op == "call_module")
    wanted = dict(node.meta["mase"]["common"]["args"])
    node.meta["mase"]["common"]["args"] = (x for x in ())
    export(graph, tmp_path / "graph")
    bare = load(tmp_path / "graph", propagate_missing_metadata=False)
    assert "args" not in bare.nodes[1].meta["mase"]["common"]
    assert bare.nodes[1].meta["mase"]["common"]["mase_op"] == "linear"
    assert load(tmp_path / "graph").nodes[1].meta["mase"]["common"]["args"] == wanted


def test_metadata_of_any_plain_kind_survives(tmp_path):
    graph = small()
    odd = {
        "numbers": [1, 2.5, 1 << 80, -1, True, None, 3 + 4j], "shape": torch.Size([1, 2]), "pair": (1, (2,)),
        "kinds": {torch.float32, torch.int8}, "slice": slice(1, None, 2), "dots": ..., "range": range(3),
        "format": torch.channels_last, "layout": torch.strided, "device": torch.device("cpu"), 7: b"bytes",
        "statistic": {"data": torch.arange(3.0), "count": 3}, "function": functional.relu, "class": nn.Linear,
    }  # fmt: skip
    graph.nodes[2].meta["mase"]["software"]["odd"] = odd
    export(graph, tmp_path / "graph")
    found = load(tmp_path / "graph").nodes[2].meta["mase"]["software"]["odd"]
    assert torch.equal(found["statistic"].pop("data"), odd["statistic"].pop("data"))
    assert found == odd
    assert [type(value) for value in found.values()] == [type(value) for value in odd.values()]


def test_a_loaded_graph_can_be_annotated_transformed_and_exported_again(tmp_path):
    export(small(), tmp_path / "one")
    graph = load(tmp_path / "one")
    gelu = next(node for node in graph.fx_graph.nodes if node.target == "layers.2")
    gelu.replace_all_uses_with(gelu.args[0])
    graph.fx_graph.erase_node(gelu)
    graph.model.recompile()
    export(graph, tmp_path / "two")
    again = load(tmp_path / "two")
    x = torch.randn(5, 4)
    assert torch.equal(again.model(x)[0], graph.model(x)[0])
    passes.add_common_metadata_analysis_pass(again, {"dummy_in": {"x": x}, "add_value": False})
    assert again.nodes[1].meta["mase"]["common"]["results"]["data_out_0"]["shape"] == [5, 6]


def test_a_graph_that_flattens_its_inputs_is_refused_by_name(tmp_path):
    def sums(x):
        return x["a"] + x["b"]

    traced = fx.symbolic_trace(sums, concrete_args={"x": {"a": fx.PH, "b": fx.PH}})
    with pytest.raises(CheckpointError, match=r"flattens its inputs \(fx.PH\)"):
        export(MaseGraph(traced, skip_init_metadata=True), tmp_path / "graph")


def test_a_checkpoint_loads_in_another_process_without_the_code_that_made_it(tmp_path):
    graph = small()
    x = torch.randn(5, 4)
    export(graph, tmp_path / "graph")
    torch.save(x, tmp_path / "x")
    program = (
        "import sys, torch; from mase_server import MaseGraph; folder = sys.argv[1]\n"
        "found = MaseGraph.from_checkpoint(folder + '/graph').model(torch.load(folder + '/x'))[0]\n"
        "assert not [name for name in sys.modules if name.startswith('tests')]\n"
        "torch.save(found, folder + '/y')"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, cwd=Path(__file__).parents[2])
    assert torch.equal(torch.load(tmp_path / "y"), graph.model(x)[0])


def test_a_function_of_a_model_of_transformers_needs_no_permission(tmp_path):
    """bloom's GELU is an autograd.Function of its own: it is one node, and the library's own code."""
    model = BloomModel(BloomConfig(vocab_size=50, hidden_size=32, n_layer=1, n_head=2)).eval()
    ids = torch.randint(0, 50, (2, 6))
    MaseGraph(model, {"input_ids": ids}).export(tmp_path / "graph")
    found = load(tmp_path / "graph").model(ids).last_hidden_state
    assert torch.equal(found, model(input_ids=ids).last_hidden_state)
