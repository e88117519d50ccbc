"""The replacements for missing packages compute what the packages' documentation says; torch is the ground truth."""

import pytest
import torch
from torch import nn

from mase_server.tracing.importing.datasets import Picture
from mase_server.tracing.importing.standins import assumed, stand_in
from tests.inputs.test_inputs_missing import BODY, HEAD, bound, told, traced

X = torch.arange(2 * 6 * 4 * 8, dtype=torch.float32).reshape(2, 6, 4, 8)

REARRANGED = {
    "b c h w -> b (h w) c": ({}, X.flatten(2).transpose(1, 2)),
    "b (g c) h w -> (b g) c h w": ({"g": 3}, X.reshape(2 * 3, 2, 4, 8)),
    "b c (h p) (w q) -> b (h w) (p q c)": (
        {"p": 2, "q": 4},
        X.reshape(2, 6, 2, 2, 2, 4).permute(0, 2, 4, 3, 5, 1).reshape(2, 4, 48),
    ),
    "b ... -> b (...)": ({}, X.flatten(1)),
    "b c ... -> b ... c": ({}, X.permute(0, 2, 3, 1)),
    "b c h w -> b 1 c () h w": ({}, X[:, None, :, None]),
    "b c h (w two) -> two b c h w": ({"two": 2}, X.reshape(2, 6, 4, 4, 2).permute(4, 0, 1, 2, 3)),
}
REDUCED = {
    ("b c h w -> b c", "mean"): X.mean((2, 3)),
    ("b c h w -> b c 1 1", "sum"): X.sum((2, 3), keepdim=True),
    ("b c (h 2) (w 2) -> b c h w", "max"): nn.functional.max_pool2d(X, 2),
    ("b ... -> b", "min"): X.flatten(1).amin(1),
}
REPEATED = {
    "b c h w -> b (k c) h w": ({"k": 3}, X.repeat(1, 3, 1, 1)),
    "b c h w -> b (c k) h w": ({"k": 3}, X.repeat_interleave(3, 1)),
    "... -> r ...": ({"r": 2}, torch.stack([X, X])),
}


@pytest.mark.parametrize("pattern", REARRANGED)
def test_patterns_rearrange_as_written(pattern):
    sizes, wanted = REARRANGED[pattern]
    assert torch.equal(stand_in("einops.rearrange")(X, pattern, **sizes), wanted)
    assert torch.equal(stand_in("einops.layers.torch.Rearrange")(pattern, **sizes)(X), wanted)


@pytest.mark.parametrize(("pattern", "reduction"), REDUCED)
def test_axes_that_the_right_side_lacks_are_reduced(pattern, reduction):
    torch.testing.assert_close(stand_in("einops.reduce")(X, pattern, reduction), REDUCED[pattern, reduction])
    torch.testing.assert_close(
        stand_in("einops.layers.torch.Reduce")(pattern, reduction)(X), REDUCED[pattern, reduction]
    )


@pytest.mark.parametrize("pattern", REPEATED)
def test_axes_that_the_left_side_lacks_are_repeated(pattern):
    sizes, wanted = REPEATED[pattern]
    assert torch.equal(stand_in("einops.repeat")(X, pattern, **sizes), wanted)


def test_tensors_are_packed_and_unpacked_and_multiplied_by_named_axes():
    parts = [torch.randn(2, 3, 5), torch.randn(2, 5), torch.randn(2, 4, 6, 5)]
    packed, shapes = stand_in("einops.pack")(parts, "b * d")
    assert packed.shape == (2, 3 + 1 + 24, 5)
    assert all(map(torch.equal, stand_in("einops.unpack")(packed, shapes, "b * d"), parts))
    left, right = torch.randn(2, 3, 5), torch.randn(2, 4, 5)
    product = stand_in("einops.einsum")(left, right, "batch i width, batch j width -> batch i j")
    torch.testing.assert_close(product, left @ right.transpose(1, 2))


REFUSED = {
    "b c h w -> b c h": "only on one side",
    "b c h -> b c h": "expected 3 dims. Received 4-dim tensor",
    "b c (h 5) w -> b c h 5 w": "can't divide axis of length 4 in chunks of 5",
    "b c (h p) w -> b c h p w": "Could not infer sizes",
    "b c h w -> b c h w z": "Specify sizes for new axes",
    "b c h w": "no `->`",
    "b (c h w -> b c h w": "do not match",
}


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_pattern_that_does_not_fit_is_refused(pattern):
    with pytest.raises(RuntimeError, match=REFUSED[pattern].replace("(", r"\(")):
        stand_in("einops.rearrange")(X, pattern)


def test_a_file_whose_patterns_need_a_missing_package_is_shown_and_told(tmp_path):
    body = BODY.replace("h = self.layer(x)", 'h = rearrange(self.layer(x), "b (two d) -> b two d", two=1)')
    payload = traced(tmp_path, {"net.py": f"{HEAD}from einops import rearrange\n{body}"})
    assert (bound(payload)["h"], told(payload)) == ([2, 1, 5], [("warning", "missing-package", 3)])
    assert "MASE computes its patterns as its documentation defines them." in payload["problems"][0]["message"]


def test_the_helpers_of_a_missing_timm_change_no_shape(tmp_path):
    text = f"{HEAD}from timm.models.layers import DropPath, to_2tuple, trunc_normal_\n" + BODY.replace(
        "self.layer = nn.Linear(width, 5)",
        "self.layer = nn.Linear(*to_2tuple(width))\n        trunc_normal_(self.layer.weight, std=0.02)"
        "\n        self.drop = DropPath(0.1)",
    ).replace("h = self.layer(x)", "h = self.drop(self.layer(x))")
    payload = traced(tmp_path, {"net.py": text})
    assert (bound(payload)["h"], told(payload)) == ([2, 4], [("warning", "missing-package", 3)])
    drop = stand_in("timm.layers.DropPath")(0.5)
    kept = drop(torch.ones(64, 3))
    assert set(kept.flatten().tolist()) == {0.0, 2.0}, "whole samples, scaled by the share that is kept"
    assert torch.equal(kept[:, 0], kept[:, 2])
    assert torch.equal(drop.eval()(X), X)


def test_the_layers_of_a_missing_vision_transformer_are_computed(tmp_path):
    text = f"""{HEAD}from timm.models.vision_transformer import Attention, Block, Mlp, PatchEmbed


class Net(nn.Module):
    def __init__(self, size=32, patch=8, width=24, depth=2):
        super().__init__()
        self.embed = PatchEmbed(size, patch, 3, width)
        self.place = nn.Parameter(torch.zeros(1, self.embed.num_patches, width))
        self.blocks = nn.Sequential(*(Block(width, 4, 2.0, qkv_bias=True, drop_path=0.1) for _ in range(depth)))
        self.attn = Attention(width, num_heads=3, qkv_bias=True, qk_norm=True)
        self.mlp = Mlp(in_features=width, hidden_features=48, out_features=7, drop=0)

    def forward(self, x):
        h = self.embed(x) + self.place
        h = self.attn(self.blocks(h))
        h = self.mlp(h)
        return h
"""
    payload = traced(tmp_path, {"net.py": text})
    assert (bound(payload)["h"][1:], told(payload)) == ([16, 7], [("warning", "missing-package", 3)])
    assert stand_in("timm.models.swin_transformer.Attention") is None, "another layer of the same name"
    layer = stand_in("timm.models.vision_transformer.Attention")(8, 2, qkv_bias=True).eval()
    x = torch.randn(2, 5, 8)
    q, k, v = (each.unflatten(-1, (2, 4)).transpose(1, 2) for each in layer.qkv(x).chunk(3, -1))
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    assert torch.allclose(layer(x), layer.proj(mixed), atol=1e-6)
    with pytest.raises(AssertionError, match="Input height"):
        stand_in("timm.layers.PatchEmbed")(32, 8)(torch.ones(1, 3, 40, 32))


def test_nothing_else_of_these_packages_is_made_up():
    assert stand_in("timm.models.create_model") is None
    assert stand_in("einops.EinopsError") is None
    assert assumed("numpy") == ""


CONFIGURED = """
from {package} import {name}
import torch
from torch import nn
from typeguard import check_argument_types

cfg = {name}()
cfg.MODEL = {name}({{"DEPTH": 3, "HEAD": {{"WIDTH": 7}}}})
cfg.MODEL.WIDTH = 5
cfg.freeze()


class Net(nn.Module):
    def __init__(self, cfg=cfg.clone()):
        super().__init__()
        assert check_argument_types()
        self.body = nn.Linear(cfg.MODEL.DEPTH, cfg["MODEL"]["WIDTH"])
        self.head = nn.Linear(cfg.MODEL.WIDTH, cfg.MODEL.HEAD.WIDTH)

    def forward(self, x):
        h = self.head(self.body(x))
        return h
"""


@pytest.mark.parametrize(
    ("package", "name"), [("yacs.config", "CfgNode"), ("easydict", "EasyDict"), ("ml_collections", "ConfigDict")]
)
def test_configurations_of_a_missing_package_hold_what_they_are_given(tmp_path, package, name):
    payload = traced(tmp_path, {"net.py": CONFIGURED.format(package=package, name=name)})
    assert bound(payload)["h"] == [2, 7]
    assert all(each["severity"] == "warning" for each in payload["problems"])
    assert "keeps what its configurations are given" in payload["problems"][0]["message"]


PARALLEL = """
import torch
import fairscale.nn.model_parallel.initialize as fs_init
from fairscale.nn.model_parallel.layers import ColumnParallelLinear, ParallelEmbedding, RowParallelLinear
from torch import nn


class Net(nn.Module):
    def __init__(self, words: int = 12, heads: int = 4):
        super().__init__()
        self.heads = heads // fs_init.get_model_parallel_world_size()
        self.words = ParallelEmbedding(words, 8, init_method=lambda x: x)
        self.up = ColumnParallelLinear(8, 4 * self.heads, bias=False, gather_output=False, init_method=lambda x: x)
        self.down = RowParallelLinear(16, 3, bias=False, input_is_parallel=True, init_method=lambda x: x)

    def forward(self, tokens):
        x = self.up(self.words(tokens))
        return self.down(x)
"""


def test_parallel_layers_are_whole_in_one_process(tmp_path):
    payload = traced(tmp_path, {"net.py": PARALLEL})
    (model,) = payload["models"]
    assert model["parameters"] == 12 * 8 + 8 * 16 + 16 * 3
    assert bound(payload)["x"] == [2, 16, 16]
    (problem,) = payload["problems"]
    assert "MASE takes its parallel layers as whole, in one process." in problem["message"]


#: Edges from the nodes of the first row to those of the second; node 3 gets no message.
EDGES = torch.tensor([[0, 1, 1, 2, 3, 0], [1, 0, 2, 0, 2, 2]])
NODES = torch.tensor([[1.0, 2.0], [3.0, 5.0], [-7.0, 11.0], [13.0, -17.0]])
#: From and to which node, how often.
ADJACENT = torch.zeros(4, 4).index_put((EDGES[1], EDGES[0]), torch.tensor(1.0), accumulate=True)


def test_messages_of_a_graph_reach_their_nodes():
    base = stand_in("torch_geometric.nn.MessagePassing")
    assert stand_in("torch_geometric.nn.conv.MessagePassing") is base
    assert torch.equal(base().propagate(EDGES, x=NODES), ADJACENT @ NODES)
    assert torch.equal(base(flow="target_to_source").propagate(EDGES, x=NODES), ADJACENT.T @ NODES)
    mean = ADJACENT / ADJACENT.sum(1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(base(aggr="mean").propagate(EDGES, x=NODES), mean @ NODES)
    largest = torch.tensor([[3.0, 11.0], [1.0, 2.0], [13.0, 5.0], [0.0, 0.0]])
    assert torch.equal(base("max").propagate(EDGES, x=NODES), largest)

    class Weighted(base):
        def message(self, x_i, x_j, weight, index, size_i):
            assert (torch.equal(index, EDGES[1]), size_i) == (True, 4)
            return (x_i - x_j) * weight[:, None]

        def update(self, aggr_out, x):
            return aggr_out + x

    weight = torch.arange(1.0, 7.0)
    dense = torch.zeros(4, 4).index_put((EDGES[1], EDGES[0]), weight)
    wanted = dense.sum(1, keepdim=True) * NODES - dense @ NODES + NODES
    assert torch.equal(Weighted().propagate(EDGES, x=NODES, weight=weight), wanted)
    two = base().propagate(EDGES[:, :4], x=(NODES, NODES[:3]), size=None)
    assert torch.equal(two, (torch.zeros(3, 4).index_put((EDGES[1, :4], EDGES[0, :4]), torch.tensor(1.0))) @ NODES)


def test_helpers_of_graphs_count_and_share():
    where = torch.tensor([0, 0, 2, 2, 2])
    assert stand_in("torch_geometric.utils.degree")(where, 4).tolist() == [2, 0, 3, 0]
    values = torch.tensor([[0.0], [1.0], [2.0], [2.0], [5.0]])
    shares = stand_in("torch_geometric.utils.softmax")(values, where, num_nodes=4)
    torch.testing.assert_close(shares, torch.cat([values[:2].softmax(0), values[2:].softmax(0)]))
    assert stand_in("torch_geometric.nn.global_max_pool")(values, where, 3).tolist() == [[1.0], [0.0], [5.0]]
    assert stand_in("torch_geometric.nn.global_mean_pool")(values, None).tolist() == [[2.0]]
    edges, weights = stand_in("torch_geometric.utils.add_self_loops")(EDGES, torch.ones(6, 3), 2.0, num_nodes=4)
    assert (edges.shape, edges[:, 6:].tolist()) == ((2, 10), [[0, 1, 2, 3]] * 2)
    assert (weights.shape, weights[6:].unique().tolist()) == ((10, 3), [2.0])
    assert stand_in("torch_scatter.scatter_add")(values.T, where, dim=1).tolist() == [[1.0, 0.0, 9.0]]
    assert stand_in("torch_geometric.nn.GATConv") is None, "a layer of its own"


def test_convolutions_of_a_graph_are_products_with_its_matrix():
    make = stand_in("torch_geometric.nn.GCNConv")
    layer, weights = make(2, 3), torch.tensor([0.5, 2.0, 1.0, 3.0, 0.25, 1.5])
    for given, matrix in ((None, ADJACENT), (weights, torch.zeros(4, 4).index_put((EDGES[1], EDGES[0]), weights))):
        looped = matrix + torch.eye(4)
        root = torch.diag(looped.sum(1) ** -0.5)
        wanted = root @ looped @ root @ NODES @ layer.lin.weight.T
        torch.testing.assert_close(layer(NODES, EDGES, given), wanted)
    plain = make(2, 3, normalize=False, bias=False)
    torch.testing.assert_close(plain(NODES, EDGES), ADJACENT @ NODES @ plain.lin.weight.T)
    alone = make(2, 3, add_self_loops=False)(NODES, EDGES)
    assert torch.equal(alone[3], torch.zeros(3)), "a node without neighbours"
    gin = stand_in("torch_geometric.nn.GINConv")(nn.Identity(), eps=0.5, train_eps=True)
    torch.testing.assert_close(gin(NODES, EDGES), (ADJACENT + 1.5 * torch.eye(4)) @ NODES)
    sage = stand_in("torch_geometric.nn.conv.SAGEConv")(2, 3)
    mean = ADJACENT / ADJACENT.sum(1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(sage(NODES, EDGES), sage.lin_l(mean @ NODES) + NODES @ sage.lin_r.weight.T)


GRAPH = """
import torch
from torch import nn
from torch_geometric.nn import MessagePassing, global_mean_pool
from torch_geometric.utils import add_self_loops, softmax


class Attending(MessagePassing):
    def __init__(self, width, heads=2, aggr="add"):
        super().__init__(node_dim=0)
        self.aggr, self.heads, self.width = aggr, heads, width
        self.into = nn.Linear(width, heads * width)
        self.score = nn.Parameter(torch.ones(1, heads, 2 * width))
        self.bonds = nn.Embedding(6, heads * width)

    def forward(self, x, edge_index, edge_attr):
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        loops = torch.full((x.size(0),), 4, dtype=edge_attr.dtype)
        bonds = self.bonds(torch.cat([edge_attr, loops]))
        x = self.into(x).view(-1, self.heads, self.width)
        found = self.propagate(edge_index, x=x, edge_attr=bonds)
        return found

    def message(self, edge_index, x_i, x_j, edge_attr):
        x_j = x_j + edge_attr.view(-1, self.heads, self.width)
        weights = (torch.cat([x_i, x_j], dim=-1) * self.score).sum(-1)
        weights = softmax(weights, edge_index[1])
        return x_j * weights[..., None]

    def update(self, aggr_out):
        return aggr_out.mean(dim=1)


class Network(nn.Module):
    def __init__(self, layers=2, width=12, classes=5):
        super().__init__()
        self.atoms = nn.Embedding(20, width)
        self.layers = nn.ModuleList(Attending(width) for _ in range(layers))
        self.head = nn.Linear(width, classes)

    def forward(self, x, edge_index, edge_attr, batch):
        h = self.atoms(x)
        for layer in self.layers:
            h = layer(h, edge_index, edge_attr)
        pooled = global_mean_pool(h, batch)
        return self.head(pooled)
"""


def test_a_graph_network_whose_package_is_missing_is_shown(tmp_path):
    payload = traced(tmp_path, {"net.py": GRAPH})
    assert bound(payload)["found"][1:] == [12]
    assert bound(payload)["pooled"][1:] == [12]
    assert [each for each in told(payload) if each[0] != "information"] == [("warning", "missing-package", 4)]
    assert "MASE computes MessagePassing" in payload["problems"][0]["message"]


def test_a_norm_of_maps_normalises_their_channels():
    layer = stand_in("timm.models.layers.LayerNorm2d")(6)
    mean, variance = X.mean(1, keepdim=True), X.var(1, keepdim=True, correction=0)
    torch.testing.assert_close(layer(X), (X - mean) / (variance + 1e-6).sqrt())
    assert layer.weight.shape == (6,)
    assert stand_in("timm.layers.LayerNorm2d")(6, affine=False).weight is None


#: Number of weights of a network, as its page in torchvision's documentation says.
WEIGHTS = {
    "resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032, "resnet101": 44_549_160,
    "resnet152": 60_192_808, "resnext50_32x4d": 25_028_904, "resnext101_32x8d": 88_791_336,
    "wide_resnet50_2": 68_883_240, "wide_resnet101_2": 126_886_696, "alexnet": 61_100_840, "vgg11": 132_863_336,
    "vgg11_bn": 132_868_840, "vgg13": 133_047_848, "vgg16": 138_357_544, "vgg16_bn": 138_365_992, "vgg19": 143_667_240,
}  # fmt: skip


def test_the_networks_of_a_missing_torchvision_have_as_many_weights_as_its_pages_say():
    with torch.device("meta"):
        made = {name: stand_in(f"torchvision.models.{name}")(pretrained=True) for name in WEIGHTS}
    assert {name: sum(each.numel() for each in model.parameters()) for name, model in made.items()} == WEIGHTS
    assert stand_in("torchvision.models.efficientnet_b0") is None, "a network that releases changed"
    assert stand_in("torchvision.models.video.resnet.BasicBlock") is None, "a block of volumes"


def test_stages_of_a_missing_torchvision_are_as_large_as_its_paper_says():
    images = torch.empty(2, 3, 224, 224, device="meta")
    with torch.device("meta"):
        plain = stand_in("torchvision.models.resnet34")()
        dilated = stand_in("torchvision.models.resnet50")(replace_stride_with_dilation=[False, True, True])
    stages = {f"layer{index}": str(index) for index in (1, 2, 3, 4)}
    get = stand_in("torchvision.models._utils.IntermediateLayerGetter")
    assert [tuple(each.shape[1:]) for each in get(plain, stages)(images).values()] == [
        (64, 56, 56), (128, 28, 28), (256, 14, 14), (512, 7, 7),
    ]  # fmt: skip
    found = get(dilated, {"layer2": "low", "layer4": "high"})(images)
    sizes = {name: tuple(each.shape[1:]) for name, each in found.items()}
    assert sizes == {"low": (512, 28, 28), "high": (2048, 28, 28)}
    assert plain(images).shape == (2, 1000)


def test_boxes_and_layers_of_a_missing_torchvision_compute_what_it_documents():
    boxes, others = torch.tensor([[0.0, 0, 2, 2], [4, 4, 5, 6]]), torch.tensor([[1.0, 1, 3, 3]])
    assert stand_in("torchvision.ops.boxes.box_area")(boxes).tolist() == [4, 2]
    torch.testing.assert_close(stand_in("torchvision.ops.box_iou")(boxes, others), torch.tensor([[1 / 7], [0.0]]))
    frozen, norm = stand_in("torchvision.ops.misc.FrozenBatchNorm2d")(6), nn.BatchNorm2d(6).eval()
    for each in ("weight", "bias", "running_mean", "running_var"):
        getattr(norm, each).data = torch.rand(6) + 0.5
    frozen.load_state_dict(norm.state_dict(), strict=False)
    torch.testing.assert_close(frozen(X), norm(X))
    normal = stand_in("torchvision.transforms.Normalize")((1.0, 2.0), (2.0, 4.0))
    assert normal(torch.tensor([3.0, 10.0]).reshape(2, 1, 1)).flatten().tolist() == [1.0, 2.0]
    drop = stand_in("torchvision.ops.StochasticDepth")(0.5, "row")(torch.ones(64, 3))
    assert (set(drop.flatten().tolist()), torch.equal(drop[:, 0], drop[:, 2])) == ({0.0, 2.0}, True)


TRUNK = """
import torch
import torchvision
from torch import nn
from torchvision import models

if float(torchvision.__version__.split(".")[1]) < 7:
    from torchvision.ops import _new_empty_tensor


class Stacked(models.ResNet):
    def __init__(self, block, layers, images):
        super().__init__(block, layers)
        self.inplanes = 64
        self.conv1 = nn.Conv2d(3 * images, 64, 7, 2, 3, bias=False)
        self.layer1 = self._make_layer(block, 64, layers[0])


class Trunk(nn.Module):
    def __init__(self, depth=50, images=2, pretrained=True):
        super().__init__()
        depths = {18: (models.resnet.BasicBlock, [2, 2, 2, 2]), 50: (models.resnet.Bottleneck, [3, 4, 6, 3])}
        self.body = Stacked(*depths[depth], images)
        self.early = models.vgg16(pretrained=pretrained).features[:9]

    def forward(self, images):
        early = self.early(images[:, :3])
        low = self.body.layer1(self.body.maxpool(self.body.relu(self.body.bn1(self.body.conv1(images)))))
        high = self.body.layer4(self.body.layer3(self.body.layer2(low)))
        return early, high
"""


def test_a_model_around_a_network_of_a_missing_torchvision_is_shown_and_told(tmp_path):
    payload = traced(tmp_path, {"net.py": TRUNK})
    side = bound(payload)["low"][-1]
    assert bound(payload)["low"][1:] == [256, side, side]
    assert bound(payload)["high"][1:] == [2048, side // 8, side // 8]
    assert bound(payload)["early"][1:] == [128, side * 2, side * 2]
    assert {each[1] for each in told(payload)} == {"missing-package"}
    assert "with random weights" in payload["problems"][0]["message"]


COMPOSED = """
import hydra
import torch
from omegaconf import DictConfig, ListConfig, OmegaConf
from torch import nn

LAYERS = {"mix": "parts.Mix", "act": "torch.nn.GELU"}
cfg = OmegaConf.create({"head": {"_target_": "torch.nn.Linear", "out_features": 3}, "steps": [1, {"scale": 2}]})


def make(registry, config, *args, **kwargs):
    config = dict(config)
    return hydra.utils.get_class(registry[config.pop("_name_")])(*args, **config, **kwargs)


class Net(nn.Module):
    def __init__(self, width=6, cfg=cfg):
        super().__init__()
        assert isinstance(cfg, DictConfig) and isinstance(cfg.steps, ListConfig)
        self.mix = make(LAYERS, {"_name_": "mix", "factor": cfg.steps[1].scale}, width)
        self.act = make(LAYERS, {"_name_": "act"})
        self.head = hydra.utils.instantiate(cfg.head, in_features=2 * width)
        self.norm = hydra.utils.instantiate({"_target_": "torch.nn.LayerNorm", "_partial_": True})(3)

    def forward(self, x):
        mixed = self.act(self.mix(x))
        h = self.norm(self.head(mixed))
        return h
"""
MIX = (
    HEAD
    + """
class Mix(nn.Module):
    def __init__(self, width, factor):
        super().__init__()
        self.layer = nn.Linear(width, factor * width)

    def forward(self, x):
        return self.layer(x)
"""
)


def test_a_missing_hydra_makes_what_a_configuration_names(tmp_path):
    payload = traced(tmp_path, {"net.py": COMPOSED, "parts.py": MIX})
    assert (bound(payload)["mixed"][1:], bound(payload)["h"][1:]) == ([12], [3])
    assert {each[1] for each in told(payload)} == {"missing-package"}
    assert "MASE makes what its configurations name." in " ".join(each["message"] for each in payload["problems"])


def test_configurations_of_a_missing_omegaconf_are_merged_and_given_back_plain():
    create, merge = stand_in("omegaconf.OmegaConf.create"), stand_in("omegaconf.OmegaConf.merge")
    merged = merge(create({"net": {"width": 4, "depth": 2}, "rate": 1}), {"net": {"depth": 3}}, create({"steps": [5]}))
    plain = stand_in("omegaconf.OmegaConf.to_container")(merged, resolve=True)
    assert plain == {"net": {"width": 4, "depth": 3}, "rate": 1, "steps": [5]}
    assert (type(plain["net"]), type(plain["steps"]), merged.net.depth) == (dict, list, 3)
    pair = stand_in("hydra.utils.instantiate")([{"_target_": "builtins.max", "_args_": [3, 7]}, None])
    assert pair == [7, None]
    inner = {"_target_": "builtins.dict", "made": {"_target_": "builtins.len", "_args_": ["four"]}}
    assert stand_in("hydra.utils.instantiate")(inner) == {"made": 4}
    again = {"_target_": "builtins.dict", "_args_": [{"first": 1}]}
    assert stand_in("hydra.utils.instantiate")(again, {"given": 2}) == {"given": 2}
    assert stand_in("hydra.utils.instantiate")(inner, _recursive_=False)["made"]["_args_"] == ["four"]


def test_the_nodes_of_each_graph_become_a_row(tmp_path):
    nodes, batch = torch.tensor([[1.0], [2.0], [3.0], [4.0]]), torch.tensor([0, 0, 0, 2])
    dense, mask = stand_in("torch_geometric.utils.to_dense_batch")(nodes, batch, fill_value=9.0)
    assert dense[..., 0].tolist() == [[1, 2, 3], [9, 9, 9], [4, 9, 9]]
    assert mask.tolist() == [[True, True, True], [False] * 3, [True, False, False]]
    cut, mask = stand_in("torch_geometric.utils.to_dense_batch")(nodes, batch, max_num_nodes=2)
    assert (cut[..., 0].tolist(), mask.sum().item()) == ([[1, 2], [0, 0], [4, 0]], 3)
    text = f"""{HEAD}from torch_geometric.utils import to_dense_batch


class Net(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)

    def forward(self, data):
        x, real = to_dense_batch(data.x, data.batch)
        mixed = self.attention(x, x, x, ~real)[0][real]
        data.x = mixed + data.x
        return data
"""
    payload = traced(tmp_path, {"net.py": text})
    assert (len(bound(payload)["x"]), bound(payload)["mixed"][1:]) == (3, [12])
    assert {each[1] for each in told(payload)} == {"missing-package", "value-taken"}


#: Size [C, H, W], classes, and pictures to train with and to test with of a data set, as its page says.
DATA = {
    "MNIST": ([1, 28, 28], 10, 60_000, 10_000),
    "FashionMNIST": ([1, 28, 28], 10, 60_000, 10_000),
    "CIFAR10": ([3, 32, 32], 10, 50_000, 10_000),
    "CIFAR100": ([3, 32, 32], 100, 50_000, 10_000),
    "STL10": ([3, 96, 96], 10, 5_000, 8_000),
    "SVHN": ([3, 32, 32], 10, 73_257, 26_032),
}


@pytest.mark.parametrize("name", DATA)
def test_pictures_are_as_large_as_the_page_of_their_data_set_says(name):
    size, classes, train, test = DATA[name]
    make, as_tensor = stand_in(f"torchvision.datasets.{name}"), stand_in("torchvision.transforms.ToTensor")()
    told = {"split": "test"} if name in ("STL10", "SVHN") else {"train": False}
    data = make("data", transform=as_tensor, download=True)
    picture, target = data[len(data) - 1]
    assert (list(picture.shape), picture.dtype, target) == (size, torch.float32, 0)
    assert (len(data), len(make("data", **told)), len(data.classes)) == (train, test, classes)


#: Transforms and the size that torchvision's pages give for a picture of 3 x 32 x 40.
TRANSFORMS = {
    "Resize(64)": [3, 64, 80],
    "Resize((20, 30))": [3, 20, 30],
    "Resize([16])": [3, 16, 20],
    "CenterCrop(24)": [3, 24, 24],
    "RandomCrop(32, padding=4)": [3, 32, 32],
    "RandomResizedCrop((224, 112))": [3, 224, 112],
    "Pad(4)": [3, 40, 48],
    "Pad((1, 2))": [3, 36, 42],
    "Pad((1, 2, 3, 4))": [3, 38, 44],
    "Grayscale()": [1, 32, 40],
    "Grayscale(num_output_channels=3)": [3, 32, 40],
    "RandomHorizontalFlip(p=0.3)": [3, 32, 40],
    "Lambda(lambda each: each.convert('L'))": [1, 32, 40],
}


@pytest.mark.parametrize("text", TRANSFORMS)
def test_transforms_of_a_missing_torchvision_give_the_sizes_of_its_pages(text):
    names = {
        name: stand_in(f"torchvision.transforms.{name}") for name in ("Compose", "PILToTensor", text.split("(")[0])
    }
    picture = Picture(3, 32, 40)
    whole = eval(f"Compose([{text}, PILToTensor()])", names)
    assert (list(whole(picture).shape), whole(picture).dtype) == (TRANSFORMS[text], torch.uint8)
    if "convert" not in text:
        after = eval(f"Compose([PILToTensor(), {text}])", names)
        assert list(after(picture).shape) == TRANSFORMS[text]


DETECTOR = f"""{HEAD}from mmcv.cnn import ConvModule, build_activation_layer, build_norm_layer
from mmcv.runner import BaseModule, auto_fp16
from mmcv.utils import Registry

LAYERS = Registry("layers")


@LAYERS.register_module()
class Mix(BaseModule):
    def __init__(self, width, norm_cfg=dict(type="GN", num_groups=2), init_cfg=None):
        super().__init__(init_cfg)
        name, norm = build_norm_layer(norm_cfg, width, postfix=1)
        self.add_module(name, norm)
        self.act = build_activation_layer(dict(type="LeakyReLU", negative_slope=0.1))

    def forward(self, x):
        return self.act(self.gn1(x))


class Net(BaseModule):
    def __init__(self, width=12):
        super().__init__()
        self.stem = ConvModule(3, width, 3, stride=2, padding=1, norm_cfg=dict(type="BN"), act_cfg=dict(type="Swish"))
        self.mix = LAYERS.build(dict(type="Mix", width=width))

    @auto_fp16()
    def forward(self, x):
        h = self.stem(x)
        h = self.mix(h)
        return h
"""


def test_layers_and_registries_of_a_missing_openmmlab_are_built(tmp_path):
    payload = traced(tmp_path, {"net.py": DETECTOR})
    assert bound(payload)["h"][1:] == [12, 16, 16]
    assert "MASE computes its base classes, registries and convolution layers" in payload["problems"][0]["message"]
    layer = stand_in("mmcv.cnn.ConvModule")(
        3, 8, 3, norm_cfg={"type": "BN", "eps": 1e-3}, order=("act", "norm", "conv")
    )
    x = torch.randn(2, 3, 9, 9)
    norm = nn.BatchNorm2d(3, eps=1e-3)
    torch.testing.assert_close(layer(x), nn.functional.conv2d(norm(x.relu()), layer.conv.weight))
    assert layer.conv.bias is None, "a norm has one itself"
    with pytest.raises(KeyError, match="MASE has no norm 'Unheard'"):
        stand_in("mmcv.cnn.build_norm_layer")({"type": "Unheard"}, 8)
    child = stand_in("mmengine.registry.Registry")("child", parent=stand_in("mmengine.registry.MODELS"))
    child.register_module("two", module=dict)
    assert child.build({"type": "scope.two", "a": 1}) == {"a": 1}
    with pytest.raises(KeyError, match="three is not in the child registry"):
        child.build({"type": "three"})


MAMBA = f"""{HEAD}from mamba_ssm import Mamba


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mamba = Mamba(d_model=width, d_state=8, d_conv=4, expand=2)

    def forward(self, x):
        h = x + self.mamba(self.norm(x))
        return h
"""


def test_a_model_of_state_spaces_whose_package_is_missing_is_shown(tmp_path):
    payload = traced(tmp_path, {"net.py": MAMBA})
    assert (bound(payload)["h"][1:], told(payload)) == ([16, 24], [("warning", "missing-package", 3)])


def test_a_selective_scan_is_the_recurrence_of_its_paper():
    torch.manual_seed(0)
    u, delta, z = torch.randn(3, 2, 4, 6)
    a, b, c, d, bias = -torch.rand(4, 3), torch.randn(2, 3, 6), torch.randn(2, 2, 3, 6), torch.randn(4), torch.randn(4)
    steps = torch.nn.functional.softplus(delta + bias[:, None])
    state, expected = torch.zeros(2, 4, 3), []
    for t in range(6):
        state = (steps[:, :, t, None] * a).exp() * state + (steps * u)[:, :, t, None] * b[:, None, :, t]
        read = (state.unflatten(1, (2, 2)) * c[:, :, None, :, t]).sum(-1).flatten(1)
        expected.append((read + u[:, :, t] * d) * torch.nn.functional.silu(z[:, :, t]))
    scan = stand_in("mamba_ssm.ops.selective_scan_interface.selective_scan_fn")
    found, last = scan(u, delta, a, b, c, d, z, bias, delta_softplus=True, return_last_state=True)
    torch.testing.assert_close(found, torch.stack(expected, -1))
    torch.testing.assert_close(last, state)


def test_what_mamba_computes_depends_on_no_later_token():
    x = torch.randn(2, 7, 8)
    for layer in (stand_in("mamba_ssm.Mamba")(8), stand_in("mamba_ssm.Mamba2")(8, headdim=4, d_state=6, ngroups=2)):
        assert layer(x).shape == x.shape
        torch.testing.assert_close(layer(x)[:, :4], layer(x[:, :4]))
    weight = torch.randn(5, 3)
    mixed = stand_in("causal_conv1d.causal_conv1d_fn")(torch.ones(1, 5, 4), weight, activation="silu")
    torch.testing.assert_close(mixed[0, :, 0], torch.nn.functional.silu(weight[:, -1]))


def test_attention_of_missing_kernels_weighs_values_by_products():
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 5, 4, 8), torch.randn(2, 7, 2, 8), torch.randn(2, 7, 2, 8)
    keys, values = (each.repeat_interleave(2, 2) for each in (k, v))
    scores = torch.einsum("blhd,bmhd->bhlm", q, keys) / 8**0.5
    scores = scores.masked_fill(torch.arange(7) > torch.arange(5)[:, None] + 2, float("-inf"))
    expected = torch.einsum("bhlm,bmhd->blhd", scores.softmax(-1), values)
    torch.testing.assert_close(stand_in("flash_attn.flash_attn_func")(q, k, v, causal=True), expected)
    plain = stand_in("xformers.ops.memory_efficient_attention")
    torch.testing.assert_close(plain(q, keys, values)[:, :, 0], plain(q[:, :, 0], keys[:, :, 0], values[:, :, 0]))
    with pytest.raises(NotImplementedError):
        stand_in("flash_attn.flash_attn_func")(q, k, v, window_size=(3, 0))


def test_products_of_rotated_queries_and_keys_depend_on_how_far_they_are_apart():
    rotary = stand_in("rotary_embedding_torch.RotaryEmbedding")(dim=6)
    q, k = torch.randn(8).expand(2, 3, 9, 8), torch.randn(8).expand(2, 3, 9, 8)
    products = rotary.rotate_queries_or_keys(q) @ rotary.rotate_queries_or_keys(k).transpose(-1, -2)
    torch.testing.assert_close(products[0, 0, 1:, 1:], products[0, 0, :-1, :-1])
    assert torch.equal(rotary.rotate_queries_or_keys(q)[..., 6:], q[..., 6:]), "these are not turned"


def test_neighbours_of_points_are_the_nearest():
    torch.manual_seed(0)
    one, other = torch.randn(2, 5, 3), torch.randn(2, 8, 3)
    apart = torch.cdist(one, other).square()
    found = stand_in("pytorch3d.ops.knn_points")(one, other, K=3, return_nn=True)
    torch.testing.assert_close(found.dists, apart.sort(-1)[0][..., :3])
    torch.testing.assert_close((found.knn - one[:, :, None]).square().sum(-1), found.dists)
    loss, of_normals = stand_in("pytorch3d.loss.chamfer_distance")(one, other)
    torch.testing.assert_close(loss, (apart.amin(2).mean(1) + apart.amin(1).mean(1)).mean())
    assert of_normals is None


def test_points_are_sampled_apart_grouped_and_interpolated():
    line = torch.tensor([0.0, 1.0, 2.0, 7.0, 10.0])[None, :, None] * torch.tensor([1.0, 0.0, 0.0])
    picked, places = stand_in("pytorch3d.ops.sample_farthest_points")(line, K=3)
    assert (places.tolist(), picked[0, :, 0].tolist()) == ([[0, 4, 3]], [0.0, 10.0, 7.0])
    ops = "pointnet2_ops.pointnet2_utils"
    assert stand_in(f"{ops}.furthest_point_sample")(line, 3).tolist() == [[0, 4, 3]]
    near = stand_in(f"{ops}.ball_query")(1.5, 4, line, line[:, [1, 4]])
    assert near.tolist() == [[[0, 1, 2, 0], [4, 4, 4, 4]]]
    features = torch.arange(10.0).reshape(1, 2, 5)
    grouped = stand_in(f"{ops}.grouping_operation")(features, near)
    assert grouped[0, 1].tolist() == [[5.0, 6.0, 7.0, 5.0], [9.0] * 4]
    apart, places = stand_in(f"{ops}.three_nn")(line[:, :1], line)
    assert (apart.tolist(), places.tolist()) == ([[[0.0, 1.0, 2.0]]], [[[0, 1, 2]]])
    mixed = stand_in(f"{ops}.three_interpolate")(features, places, torch.tensor([[[0.5, 0.25, 0.25]]]))
    assert mixed.tolist() == [[[0.75], [5.75]]]
    dists, places = stand_in("knn_cuda.KNN")(k=2, transpose_mode=True)(line, line[:, [3]])
    assert (dists.tolist(), places.tolist()) == ([[[0.0, 3.0]]], [[[3, 4]]])


def deformed(moved, mask=None, groups=1, **options):
    """A deformable convolution whose offsets are the same everywhere, and the plain one beside it."""
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 4, 7, 6), torch.randn(6, 4 // groups, 3, 2), torch.randn(6)
    plain = nn.functional.conv2d(x, weight, bias, groups=groups, **options)
    offset = torch.tensor(moved).view(1, 2, 1, 1).repeat(2, 2 * 6, *plain.shape[-2:])  # for each half of the channels
    mask = None if mask is None else torch.full((2, 12, *plain.shape[-2:]), mask)
    layer = stand_in("modules.modulated_deform_conv.ModulatedDeformConv")
    made = layer(4, 6, (3, 2), groups=groups, deformable_groups=2, bias=True, **options)
    with torch.no_grad():
        made.weight.copy_(weight)
        made.bias.copy_(bias)
        return made(x, offset, mask), plain, nn.functional.conv2d, (x, weight, bias)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": (1, 2)}, {"dilation": 2, "padding": 2}])
def test_a_deformable_convolution_that_moves_nothing_is_the_plain_one(groups, options):
    out, plain, *_ = deformed([0.0, 0.0], 1.0, groups, **options)
    torch.testing.assert_close(out, plain)


def test_a_deformable_convolution_reads_where_its_offsets_say_and_zero_outside():
    out, _, convolve, (x, weight, bias) = deformed([1.0, -2.0])
    moved = torch.zeros_like(x)
    moved[:, :, :-1, 2:] = x[:, :, 1:, :-2]  # a row down, two columns to the left
    torch.testing.assert_close(out, convolve(moved, weight, bias))
    between, *_ = deformed([0.5, 0.0])
    down = torch.cat([x[:, :, 1:], torch.zeros_like(x[:, :, :1])], 2)
    torch.testing.assert_close(between, convolve((x + down) / 2, weight, bias))
    halved, *_ = deformed([0.0, 0.0], 0.5)
    torch.testing.assert_close(halved, convolve(x / 2, weight, bias))


DEFORMING = """
import torch
from torch import nn
from lib.dcn.modulated_deform_conv import ModulatedDeformConv, ModulatedDeformConvFunction
from dcn_v2 import DCN


class Aligned(ModulatedDeformConv):
    def __init__(self, *args):
        super().__init__(*args)
        count = self.deformable_groups * 3 * self.kernel_size[0] * self.kernel_size[1]
        self.moves = nn.Conv2d(self.in_channels, count, self.kernel_size, self.stride, self.padding)

    def forward(self, x):
        one, other, mask = self.moves(x).chunk(3, 1)
        offset = torch.cat([one, other], 1)
        return ModulatedDeformConvFunction.apply(
            x, offset, mask.sigmoid(), self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups,
            self.deformable_groups, self.im2col_step,
        )


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Aligned(3, 8, 3, 2, 1, 1, 1, 1, 64, True)
        self.second = DCN(8, 5, kernel_size=(3, 3), stride=1, padding=1, deformable_groups=2)

    def forward(self, x):
        return self.second(self.first(x))


net = Net()
out = net(torch.ones(2, 3, 16, 16))
"""


def test_a_program_with_a_deformable_extension_that_is_not_built_is_traced(tmp_path):
    payload = traced(tmp_path, {"net.py": DEFORMING})
    assert bound(payload)["out"] == [2, 5, 8, 8]
    assert {code for _, code, _ in told(payload)} == {"missing-package"}
    assert any("deformable" in problem["message"] for problem in payload["problems"])


def test_a_network_of_crossed_features_is_no_convolution():
    assert stand_in("recommend.models.dcn.DCN") is None
    assert stand_in("recommend.models.dcnv2.DCNv2") is None
