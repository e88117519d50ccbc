"""Statistics against torch and numpy on all samples at once."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mase_server import MaseGraph, passes
from mase_server.passes.profile import STATISTICS, make_statistics
from tests.ir.models import Mlp, node_named


def samples(seed, count, rows=4):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, 6, generator=generator) * (index + 1) + index for index in range(count)]


def gathered(name, tensors, **options):
    statistic = make_statistics({name: options})[name]
    for tensor in tensors:
        statistic.update(tensor)
    return statistic.result()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 5), st.sampled_from(["variance_online", "variance_precise"]))
def test_variance_and_mean_are_those_of_all_samples_together(seed, count, name):
    tensors = samples(seed, count)
    together = torch.cat(tensors).double().numpy()
    found = gathered(name, tensors)
    assert float(found["variance"]) == pytest.approx(together.var(ddof=1), rel=1e-9)
    assert float(found["mean"]) == pytest.approx(together.mean(), rel=1e-9, abs=1e-12)
    assert found["count"] == together.size


@pytest.mark.parametrize("name", ["variance_online", "variance_precise"])
def test_variance_along_one_dimension(name):
    tensors = samples(1, 3)
    found = gathered(name, tensors, dims=0)
    together = torch.cat(tensors).double()
    assert torch.allclose(found["variance"], together.var(dim=0))
    assert torch.allclose(found["mean"], together.mean(dim=0))
    assert found["count"] == 12


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 5), st.booleans())
def test_the_range_is_that_of_all_samples_together(seed, count, absolute):
    tensors = samples(seed, count)
    together = torch.cat(tensors).numpy()
    together = np.abs(together) if absolute else together
    found = gathered("range_min_max", tensors, abs=absolute)
    assert (float(found["min"]), float(found["max"])) == (together.min(), together.max())
    assert found["count"] == together.size


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 5), st.floats(0.5, 1.0))
def test_quantiles_are_numpys(seed, count, quantile):
    tensors = samples(seed, count)
    together = torch.cat(tensors).double().numpy()
    found = gathered("range_quantile", tensors, quantile=quantile)
    assert float(found["min"]) == pytest.approx(np.quantile(together, 1 - quantile), rel=1e-6, abs=1e-9)
    assert float(found["max"]) == pytest.approx(np.quantile(together, quantile), rel=1e-6, abs=1e-9)


def test_quantiles_along_one_dimension():
    tensors = samples(2, 3)
    found = gathered("range_quantile", tensors, dims=0, quantile=0.9)
    assert torch.allclose(found["max"], torch.quantile(torch.cat(tensors).double(), 0.9, dim=0))


def test_sigma_range_is_mean_and_deviations():
    tensors = samples(3, 4)
    together = torch.cat(tensors).double()
    found = gathered("range_n_sigma", tensors, num_sigma=2)
    assert float(found["max"]) == pytest.approx(float(together.mean() + 2 * together.std()))
    assert float(found["min"]) == pytest.approx(float(together.mean() - 2 * together.std()))


def test_the_mean_of_absolute_values():
    tensors = samples(4, 4)
    found = gathered("abs_mean", tensors)
    assert float(found["abs_mean"]) == pytest.approx(float(torch.cat(tensors).double().abs().mean()))


def test_records_are_the_samples_and_not_views_of_them():
    tensors = samples(5, 3)
    together = torch.cat(tensors)
    statistic = make_statistics({"record": {}})["record"]
    for tensor in tensors:
        statistic.update(tensor)
        tensor.zero_()
    assert torch.equal(statistic.result()["data"], together)
    assert statistic.result()["count"] == together.numel()


def test_records_can_be_stacked():
    assert gathered("record", samples(6, 3), add_new_dim_before_concat=True)["data"].shape == (3, 4, 6)


def test_unknown_statistics_and_options_are_named():
    with pytest.raises(ValueError, match="there is no statistic 'median'; known are record, variance_online"):
        make_statistics({"median": {}})
    with pytest.raises(ValueError, match=r"the statistic abs_mean does not take \{'sigma': 2\}"):
        make_statistics({"abs_mean": {"sigma": 2}})


# The pass


def profiled(model, inputs, **options):
    graph = MaseGraph(model, inputs, add_metadata_args={"add_value": False})
    return passes.profile_statistics_analysis_pass(graph, options)[0]


def stat(graph, node, name):
    return node_named(graph, node).meta["mase"]["software"]["args"][name]["stat"]


def test_weights_and_activations_are_profiled():
    torch.manual_seed(0)
    model = Mlp()
    batches = [{"x": torch.randn(2, 28, 28)} for _ in range(4)]
    graph = profiled(
        model, batches[0], by="type", target_weight_nodes=["linear"], target_activation_nodes=["relu"],
        weight_statistics={"variance_precise": {"device": "cpu", "dims": "all"}},
        activation_statistics={"range_min_max": {"device": "cpu", "dims": "all"}, "record": {}},
        input_generator=iter(batches), num_samples=4,
    )  # fmt: skip
    expected = model.fc2.weight.detach().double().var()
    assert float(stat(graph, "fc2", "weight")["variance_precise"]["variance"]) == pytest.approx(float(expected))
    hidden = torch.cat([model.fc1(batch["x"].flatten(1)) for batch in batches])
    found = stat(graph, "relu", "data_in_0")
    assert (found["range_min_max"]["min"], found["range_min_max"]["max"]) == (hidden.min(), hidden.max())
    assert torch.equal(found["record"]["data"], hidden)
    assert "data_in_0" not in node_named(graph, "fc1").meta["mase"]["software"]["args"]


@pytest.mark.parametrize(
    ("by", "pattern", "found"),
    [("name", "fc1", {"fc1"}), ("regex_name", "fc[12]", {"fc1", "fc2"}), ("type", "linear", {"fc1", "fc2", "fc3"})],
)
def test_nodes_are_chosen_by_type_name_or_pattern(by, pattern, found):
    graph = profiled(
        Mlp(), {"x": torch.randn(1, 28, 28)}, by=by, target_weight_nodes=[pattern], weight_statistics={"abs_mean": {}}
    )
    with_stat = {node.name for node in graph.nodes if "weight" in node.meta["mase"]["software"].get("args", {})}
    assert with_stat == found


EVERY = {
    "record": {}, "variance_online": {}, "variance_precise": {}, "range_n_sigma": {"num_sigma": 2},
    "range_quantile": {"quantile": 0.9}, "range_min_max": {}, "abs_mean": {},
}  # fmt: skip


def check_every(found, values):
    """Every statistic of some values, worked out with numpy."""
    flat = values.detach().double().numpy().ravel()
    mean, deviation = flat.mean(), flat.std(ddof=1)
    assert np.array_equal(found["record"]["data"].detach().numpy().ravel(), values.detach().numpy().ravel())
    for name in ("variance_online", "variance_precise"):
        assert float(found[name]["variance"]) == pytest.approx(flat.var(ddof=1), rel=1e-9)
        assert float(found[name]["mean"]) == pytest.approx(mean, rel=1e-9)
    assert float(found["range_n_sigma"]["min"]) == pytest.approx(mean - 2 * deviation)
    assert float(found["range_n_sigma"]["max"]) == pytest.approx(mean + 2 * deviation)
    assert float(found["range_quantile"]["min"]) == pytest.approx(np.quantile(flat, 0.1))
    assert float(found["range_quantile"]["max"]) == pytest.approx(np.quantile(flat, 0.9))
    assert (float(found["range_min_max"]["min"]), float(found["range_min_max"]["max"])) == (flat.min(), flat.max())
    assert float(found["abs_mean"]["abs_mean"]) == pytest.approx(np.abs(flat).mean())
    assert {statistic["count"] for statistic in found.values()} == {flat.size}


def test_every_statistic_of_weights_inputs_and_results_over_batches_of_data():
    torch.manual_seed(0)
    model, data = Mlp(), [torch.randn(2, 28, 28) for _ in range(3)]
    graph = profiled(
        model, {"x": data[0]}, by="name", target_weight_nodes="fc3", target_activation_nodes=["fc3"],
        weight_statistics=EVERY, activation_statistics=EVERY, profile_output_activation=True, data=data, num_samples=3,
    )  # fmt: skip
    hidden = torch.cat([model.fc2(model.fc1(x.flatten(1)).relu()).relu() for x in data])
    check_every(stat(graph, "fc3", "weight"), model.fc3.weight)
    check_every(stat(graph, "fc3", "bias"), model.fc3.bias)
    check_every(stat(graph, "fc3", "data_in_0"), hidden)
    results = node_named(graph, "fc3").meta["mase"]["software"]["results"]
    check_every(results["data_out_0"]["stat"], model.fc3(hidden))
    passes.verify_software_metadata_analysis_pass(graph)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_what_is_streamed_agrees_with_all_at_once_far_from_zero(offset):
    tensors = [tensor + offset for tensor in samples(7, 5)]
    streamed, precise = gathered("variance_online", tensors), gathered("variance_precise", tensors)
    assert float(streamed["variance"]) == pytest.approx(float(precise["variance"]), rel=1e-7)


def test_a_rounded_weight_is_profiled_as_it_is_used():
    torch.manual_seed(0)
    graph = MaseGraph(nn.Sequential(nn.Linear(4, 4)), {"input": torch.randn(1, 4)})
    graph, _ = passes.quantize_transform_pass(graph, {"by": "type", "linear": "fixed(8,2)"})
    graph.annotate(add_value=False)
    graph, _ = passes.profile_statistics_analysis_pass(
        graph, {"target_weight_nodes": "linear", "weight_statistics": {"range_min_max": {}}}
    )
    rounded = (graph.root[0].weight * 4).round() / 4
    found = stat(graph, "_0", "weight")["range_min_max"]
    assert (found["min"], found["max"]) == (rounded.min(), rounded.max())


def test_samples_are_counted_in_batches_where_the_generator_knows_their_size():
    class Loader:
        batch_size = 2

        def __iter__(self):
            return iter([{"x": torch.full((2, 28, 28), float(index))} for index in range(9)])

    graph = profiled(
        Mlp(), {"x": torch.randn(2, 28, 28)}, by="type", target_activation_nodes=["flatten"],
        activation_statistics={"range_min_max": {}}, input_generator=Loader(), num_samples=5,
    )  # fmt: skip
    assert stat(graph, "flatten", "data_in_0")["range_min_max"]["count"] == 3 * 2 * 28 * 28


def test_only_what_is_named_is_profiled():
    graph = profiled(
        Mlp(), {"x": torch.randn(1, 28, 28)}, target_weight_nodes=["linear"], weight_statistics={"abs_mean": {}},
        only=["fc2"],
    )  # fmt: skip
    assert stat(graph, "fc2", "weight")
    assert "args" not in node_named(graph, "fc1").meta["mase"]["software"]


def test_weights_on_meta_have_no_statistics():
    with torch.device("meta"):
        model = Mlp()
    with pytest.raises(ValueError, match="profile_statistics needs the values of weight of fc1, which is on meta"):
        profiled(
            model, {"x": torch.randn(1, 28, 28)}, target_weight_nodes=["linear"], weight_statistics={"abs_mean": {}}
        )


def test_an_activation_is_taken_before_it_is_written_over():
    x = torch.randn(3, 4)
    graph = profiled(
        nn.Sequential(nn.Identity(), nn.ReLU(inplace=True)), {"input": x}, by="type", target_activation_nodes=["relu"],
        activation_statistics={"record": {}}, input_generator=[{"input": x}],
    )  # fmt: skip
    assert torch.equal(stat(graph, "_1", "data_in_0")["record"]["data"], x)


def test_profiling_changes_neither_the_model_nor_its_mode():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.ReLU()).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    profiled(
        model, {"input": torch.randn(3, 4)}, target_activation_nodes=["relu"], activation_statistics={"abs_mean": {}},
        input_generator=[{"input": torch.randn(3, 4)}],
    )  # fmt: skip
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.training


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"by": "colour"}, "by is 'colour'; nodes are chosen by type, name, regex_name"),
        ({"only": ["tail"]}, "only names 'tail'"),
        ({"target_weight_nodes": ["linear"], "weight_statistics": {"median": {}}}, "there is no statistic 'median'"),
        (
            {
                "target_activation_nodes": ["relu"], "activation_statistics": {"abs_mean": {}}, "num_samples": 3,
                "input_generator": [{"x": torch.randn(1, 28, 28)}],
            },
            "num_samples is 3, but the input_generator ended after 1",
        ),
        ({"samples": 3}, "profile_statistics_analysis_pass has no option 'samples'"),
    ],
)  # fmt: skip
def test_what_cannot_be_profiled_is_told(options, text):
    with pytest.raises(ValueError, match=text):
        profiled(Mlp(), {"x": torch.randn(1, 28, 28)}, **options)


def test_every_statistic_of_the_metadata_tree_is_there():
    assert set(STATISTICS) == {
        "record", "variance_online", "variance_precise", "range_n_sigma", "range_quantile", "range_min_max", "abs_mean",
    }  # fmt: skip
