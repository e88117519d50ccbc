"""Every module of torch.nn comes back as it was, on torch's own samples of constructor arguments and inputs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import register_parametrization
from torch.testing._internal.common_modules import module_db

from mase_server import MaseGraph
from mase_server.ir.allowed import CheckpointError
from mase_server.ir.checkpoint import export, load_module
from tests.ir.checkpoints import around

INFOS = [info for info in module_db if info.module_cls.__module__.startswith("torch.nn.modules")]
SAMPLES = 4


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [one for item in value for one in tensors(item)] if isinstance(value, tuple | list) else []


def samples(info, training):
    found = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=training)
    return found[:SAMPLES]


def attributes(module):
    """What a module holds besides tensors, children and hooks."""
    base = vars(nn.Module())
    found = {key: value for key, value in vars(module).items() if key not in base and "_flat_weight" not in key}
    return {key: value for key, value in found.items() if not isinstance(value, nn.Module)}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("info", INFOS, ids=lambda info: info.module_cls.__name__)
def test_a_module_comes_back_as_it_was(info, training, tmp_path):
    for sample in samples(info, training):
        arguments = sample.constructor_input
        # Torch's samples give these in double precision, which its own single-precision inputs do not fit.
        named = {key: value for key, value in arguments.kwargs.items() if key != "_random_samples"}
        module = info.module_cls(*arguments.args, **named).train(training)
        if any(isinstance(tensor, nn.UninitializedParameter) for tensor in module.parameters()):
            pytest.skip("a lazy module becomes another one at its first call, before anything is recorded")
        export(around(module), tmp_path / "graph")
        found = load_module(tmp_path / "graph").model.m
        assert type(found) is type(module)
        assert repr(found) == repr(module)
        assert found.training is training
        assert attributes(found) == attributes(module)
        assert list(found.state_dict()) == list(module.state_dict())
        state = found.state_dict()
        assert all(torch.equal(tensor, state[name]) for name, tensor in module.state_dict().items())
        assert_same_results(module, found, sample.forward_input)


def assert_same_results(module, found, given):
    torch.manual_seed(0)
    theirs = tensors(module(*given.args, **given.kwargs))
    torch.manual_seed(0)
    ours = tensors(found(*given.args, **given.kwargs))
    assert len(ours) == len(theirs) > 0
    assert all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in zip(ours, theirs, strict=True))


def image(*shape):
    return torch.randn(*shape).abs() + 0.1


#: Modules of which torch has no samples: a way to make each, and inputs.
OTHERS = {
    nn.AdaptiveLogSoftmaxWithLoss: (
        lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 5]), (image(2, 4), torch.tensor([1, 7])),
    ),
    nn.AlphaDropout: (nn.AlphaDropout, (image(2, 3),)),
    nn.ChannelShuffle: (lambda: nn.ChannelShuffle(2), (image(1, 4, 2, 2),)),
    nn.CosineSimilarity: (nn.CosineSimilarity, (image(2, 3), image(2, 3))),
    nn.CrossMapLRN2d: (lambda: nn.CrossMapLRN2d(2), (image(1, 4, 3, 3),)),
    nn.Dropout: (nn.Dropout, (image(2, 3),)),
    nn.Dropout1d: (nn.Dropout1d, (image(2, 3, 4),)),
    nn.Dropout2d: (nn.Dropout2d, (image(2, 3, 4, 4),)),
    nn.Dropout3d: (nn.Dropout3d, (image(2, 3, 2, 2, 2),)),
    nn.EmbeddingBag: (lambda: nn.EmbeddingBag(9, 3, padding_idx=1), (torch.tensor([[1, 2], [4, 5]]),)),
    nn.FeatureAlphaDropout: (nn.FeatureAlphaDropout, (image(2, 3, 2, 2, 2),)),
    nn.Flatten: (nn.Flatten, (image(2, 3, 4),)),
    nn.Fold: (lambda: nn.Fold((4, 5), (2, 3)), (image(1, 12, 9),)),
    nn.Hardsigmoid: (nn.Hardsigmoid, (image(2, 3),)),
    nn.Identity: (nn.Identity, (image(2, 3),)),
    nn.MaxUnpool1d: (lambda: nn.MaxUnpool1d(2), (image(1, 1, 2), torch.tensor([[[0, 3]]]))),
    nn.MaxUnpool2d: (lambda: nn.MaxUnpool2d(2), (image(1, 1, 1, 1), torch.tensor([[[[2]]]]))),
    nn.MaxUnpool3d: (lambda: nn.MaxUnpool3d(2), (image(1, 1, 1, 1, 1), torch.tensor([[[[[5]]]]]))),
    nn.NLLLoss2d: (nn.NLLLoss2d, (image(1, 3, 2, 2), torch.zeros(1, 2, 2, dtype=torch.int64))),
    nn.PairwiseDistance: (nn.PairwiseDistance, (image(2, 3), image(2, 3))),
    nn.PixelShuffle: (lambda: nn.PixelShuffle(2), (image(1, 4, 2, 2),)),
    nn.PixelUnshuffle: (lambda: nn.PixelUnshuffle(2), (image(1, 1, 4, 4),)),
    nn.RReLU: (nn.RReLU, (image(2, 3) - 1,)),
    nn.SyncBatchNorm: (lambda: nn.SyncBatchNorm(3).eval(), (image(2, 3, 4),)),
    nn.TransformerDecoder: (
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8), 2).eval(), (image(3, 1, 4), image(5, 1, 4)),
    ),
    nn.TripletMarginLoss: (nn.TripletMarginLoss, (image(2, 3), image(2, 3), image(2, 3))),
    nn.TripletMarginWithDistanceLoss: (
        lambda: nn.TripletMarginWithDistanceLoss(distance_function=nn.PairwiseDistance(1.0)),
        (image(2, 3), image(2, 3), image(2, 3)),
    ),
    nn.Unflatten: (lambda: nn.Unflatten(1, (2, 3)), (image(2, 6),)),
    nn.Unfold: (lambda: nn.Unfold((2, 3)), (image(2, 5, 3, 4),)),
    nn.Upsample: (lambda: nn.Upsample(scale_factor=2.0, mode="bilinear"), (image(1, 1, 2, 2),)),
    nn.UpsamplingBilinear2d: (lambda: nn.UpsamplingBilinear2d(scale_factor=2), (image(1, 1, 2, 2),)),
    nn.UpsamplingNearest2d: (lambda: nn.UpsamplingNearest2d((4, 4)), (image(1, 1, 2, 2),)),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.__name__)
def test_a_module_without_samples_comes_back_too(kind, tmp_path):
    make, inputs = OTHERS[kind]
    module = make()
    export(around(module), tmp_path / "graph")
    found = load_module(tmp_path / "graph").model.m
    torch.manual_seed(0)
    theirs = tensors(module(*inputs))
    torch.manual_seed(0)
    assert all(torch.equal(one, other) for one, other in zip(tensors(found(*inputs)), theirs, strict=True))
    assert repr(found) == repr(module)


def test_every_module_of_torch_nn_is_tried():
    public = {value for value in vars(nn).values() if isinstance(value, type) and issubclass(value, nn.Module)}
    tried = {info.module_cls for info in INFOS} | set(OTHERS)
    containers = {"Module", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "Container"}
    left = {kind.__name__ for kind in public - tried} - containers
    # Bases of others, lazy ones (another class once they have run), and one that needs several GPUs.
    assert {name for name in left if not name.startswith("Lazy")} == {"RNNBase", "RNNCellBase", "DataParallel"}


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 2))),
        nn.ModuleDict({"a": nn.Linear(2, 2), "b.c".replace(".", "_"): nn.ReLU()}),
        nn.ModuleList([nn.Linear(2, 2), nn.GELU("tanh")]),
        nn.ParameterList([nn.Parameter(torch.randn(2)), nn.Parameter(torch.randn(3))]),
        nn.ParameterDict({"a": nn.Parameter(torch.randn(2))}),
    ],
    ids=lambda module: type(module).__name__,
)
def test_containers_come_back(module, tmp_path):
    export(around(module), tmp_path / "graph")
    found = load_module(tmp_path / "graph").model.m
    assert repr(found) == repr(module)
    assert all(torch.equal(tensor, found.state_dict()[name]) for name, tensor in module.state_dict().items())


def test_a_recurrent_module_uses_the_weights_that_it_shows(tmp_path):
    export(around(nn.LSTM(3, 4, num_layers=2, bidirectional=True)), tmp_path / "graph")
    found = load_module(tmp_path / "graph").model.m
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.zero_()
    assert not found(torch.randn(5, 2, 3))[0].any()


@pytest.mark.parametrize("parametrize", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_a_layer_with_a_parametrization_of_torch_comes_back_with_it(parametrize, tmp_path):
    model = nn.Sequential(parametrize(nn.Linear(4, 3)), nn.ReLU()).eval()
    export(MaseGraph(model, {"input": torch.randn(2, 4)}), tmp_path / "graph")
    graph = MaseGraph.from_checkpoint(tmp_path / "graph")
    layer, given = graph.modules["0"], torch.randn(2, 4)
    assert repr(layer) == repr(model[0])
    assert torch.equal(graph.model(given), model(given))
    with torch.no_grad():
        next(layer.parametrizations.parameters()).mul_(torch.rand(3, 1))
    assert layer.weight.isfinite().all()
    assert not torch.equal(layer.weight, model[0].weight)


def test_a_parametrization_of_ones_own_is_named_with_what_allows_it(tmp_path):
    layer = register_parametrization(nn.Linear(4, 3), "weight", Doubled())
    export(around(layer), tmp_path / "graph")
    with pytest.raises(CheckpointError, match=r"Doubled.*allow="):
        load_module(tmp_path / "graph")
    found = load_module(tmp_path / "graph", allow=[Doubled]).model
    given = torch.randn(2, 4)
    assert torch.equal(found(given), layer(given))


class Doubled(nn.Module):
    def forward(self, weight):
        return weight * 2
