"""Files as they stand in real repositories: in packages, beside packages, and written to be built by somebody else."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from searching import problems_in

from mase_server.protocol.request import TraceRequest
from mase_server.protocol.snapshot import KINDS, Problem
from mase_server.tracing.execution.substitutes import loaded_where_present
from mase_server.tracing.inputs.spec import inputs_at
from mase_server.tracing.inputs.text import format_inputs
from mase_server.tracing.models.find import find_models
from mase_server.tracing.models.found import Found, call_arguments, plain_hooks
from mase_server.tracing.recording.shadow import MetaMode, Shadows
from mase_server.tracing.recording.values import Python, TupleOf, describe_value, tensor_type
from mase_server.worker.job import trace

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = {body}

    def forward(self, x):
        return self.body(x)
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def looked_at(root: Path, name: str) -> tuple[list[Found], list[Problem]]:
    path = root / name
    (root.parent / "scratch").mkdir(exist_ok=True)
    request = TraceRequest(str(path), str(root), "", 1, scratch=str(root.parent / "scratch"))
    items = list(find_models(request, path.read_text(), plain_hooks(Shadows())))
    return [item for item in items if isinstance(item, Found)], list(problems_in(items))


def runs_in_eager(found: Found) -> torch.Tensor:
    """The model built anew on the CPU and called with real tensors of the sizes found."""
    model = found.construct()
    args, kwargs = call_arguments(model, inputs_at(found.spec))
    with torch.no_grad():
        return model(*args, **kwargs)


def test_a_file_whose_package_imports_it_first_is_shown(workspace):
    put(workspace, {"shapes_kit/__init__.py": "from shapes_kit.net import Net\n"})
    put(workspace, {"shapes_kit/net.py": NET.format(body="nn.Linear(3, 4)")})
    (found,), problems = looked_at(workspace, "shapes_kit/net.py")
    assert (found.name, problems) == ("Net", [])
    assert runs_in_eager(found).shape[-1] == 4


REGISTERED = """
from {kit}.registry import register
{net}
register(Net)
"""


GUARD = "if __name__ == '__main__':\n    print(Net())\n"


@pytest.mark.parametrize(("kit", "end"), [("plain_kit", ""), ("guarded_kit", GUARD)], ids=["plain", "with a main"])
def test_a_file_that_registers_itself_is_run_once(workspace, kit, end):
    put(
        workspace,
        {
            f"{kit}/registry.py": """
        KNOWN = {}

        def register(kind):
            if kind.__name__ in KNOWN:
                raise ValueError(f"{kind.__name__} is already registered")
            KNOWN[kind.__name__] = kind
    """
        },
    )
    net = NET.format(body="nn.Linear(3, 4)")
    put(workspace, {f"{kit}/__init__.py": f"from {kit}.net import Net\n"})
    put(workspace, {f"{kit}/net.py": REGISTERED.format(kit=kit, net=net) + end})
    (found,), problems = looked_at(workspace, f"{kit}/net.py")
    assert (found.name, format_inputs(found.spec), problems) == ("Net", "x: f32[B=2, 3]", [])


def test_a_module_that_bears_the_name_of_its_package_finds_its_neighbours(workspace):
    put(workspace, {"gizmo_net/__init__.py": "", "gizmo_net/parts.py": "WIDTH = 7\n"})
    put(
        workspace,
        {"gizmo_net/gizmo_net.py": "from gizmo_net.parts import WIDTH\n" + NET.format(body="nn.Linear(WIDTH, 4)")},
    )
    (found,), problems = looked_at(workspace, "gizmo_net/gizmo_net.py")
    assert (format_inputs(found.spec), problems) == ("x: f32[B=2, 7]", [])


def test_relative_imports_work_in_folders_without_an_init_file(workspace):
    put(workspace, {"plain_folder/sizes.py": "WIDTH = 5\n"})
    put(workspace, {"plain_folder/deep/net.py": "from ..sizes import WIDTH\n" + NET.format(body="nn.Linear(WIDTH, 4)")})
    (found,), problems = looked_at(workspace, "plain_folder/deep/net.py")
    assert (format_inputs(found.spec), problems) == ("x: f32[B=2, 5]", [])


def test_modules_are_imported_from_the_workspace_too(workspace):
    put(workspace, {"common_sizes/values.py": "WIDTH = 6\n"})
    put(workspace, {"nets/net.py": "from common_sizes.values import WIDTH\n" + NET.format(body="nn.Linear(WIDTH, 4)")})
    (found,), problems = looked_at(workspace, "nets/net.py")
    assert (format_inputs(found.spec), problems) == ("x: f32[B=2, 6]", [])


PROGRAM = """
rows = torch.load("rows.pt")["rows"]
model = Net()
torch.save(model.state_dict(), "copy.pt")
model.load_state_dict(torch.load("weights.pt", map_location=torch.device("cuda")))
if rows[1].sum() == 35.0:
    model(rows[:4])
"""
REFUSALS = {
    "an assertion about an argument that is None by default": """
        def __init__(self, blocks=None):
            super().__init__()
            assert hasattr(blocks, "of_stone"), "blocks should be of stone"
    """,
    "an attribute of None": """
        def __init__(self, config=None):
            super().__init__()
            self.width = config.read_width()
    """,
    "an assertion about what its base has by default": """
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            assert self.training is None
    """,
    "weights that are not on this disk": """
        def __init__(self, weights="no/such/weights.bin"):
            super().__init__()
            self.size = len(open(weights, "rb").read())
    """,
}


@pytest.mark.parametrize("init", REFUSALS.values(), ids=REFUSALS)
def test_a_class_that_refuses_to_be_made_without_arguments_is_no_error(workspace, init):
    text = "from torch import nn\n\nclass Net(nn.Module):\n" + textwrap.indent(textwrap.dedent(init), "    ")
    put(workspace, {"refusing.py": text + "\n    def forward(self, x):\n        return x\n"})
    found, (problem,) = looked_at(workspace, "refusing.py")
    assert (found, problem.severity, problem.code) == ([], "warning", "no-arguments")


def test_a_mistake_in_a_constructor_that_needs_nothing_is_an_error(workspace):
    put(workspace, {"mistaken.py": NET.format(body="nn.Linear(3, 4).weights")})
    found, (problem,) = looked_at(workspace, "mistaken.py")
    assert (found, problem.severity, problem.line) == ([], "error", 8)


def test_a_function_that_is_handed_over_is_no_number(workspace):
    put(
        workspace,
        {
            "wrapped.py": """
        from torch import nn

        class PreNorm(nn.Module):
            def __init__(self, dim, fn):
                super().__init__()
                self.norm, self.fn = nn.LayerNorm(dim), fn

            def forward(self, x):
                return self.fn(self.norm(x)) + x
    """
        },
    )
    (found,), problems = looked_at(workspace, "wrapped.py")
    assert problems == []
    assert runs_in_eager(found).shape == found.inputs["x"].shape


def test_a_forward_that_fails_with_guessed_arguments_is_no_error(workspace):
    put(
        workspace,
        {
            "guessed.py": """
        from torch import nn

        class Pair(nn.Module):
            def __init__(self, width_in, width_out):
                super().__init__()
                self.first, self.second = nn.Linear(width_in, width_in), nn.Linear(width_in + 1, width_out)

            def forward(self, x):
                return self.second(self.first(x))
    """
        },
    )
    found, (problem,) = looked_at(workspace, "guessed.py")
    assert (found, problem.severity, problem.code) == ([], "warning", "no-inputs")


def test_a_builder_s_own_defaults_are_the_arguments(workspace):
    put(
        workspace,
        {
            "built.py": """
        from torch import nn

        class Net(nn.Module):
            def __init__(self, widths, classes):
                super().__init__()
                self.layers = nn.Sequential(nn.Linear(widths[0], widths[1]), nn.Linear(widths[1], classes))

            def forward(self, x):
                return self.layers(x)

        def small(classes=23, *, pretrained):
            return Net([11, 12], classes)
    """
        },
    )
    (found,), problems = looked_at(workspace, "built.py")
    assert (found.arguments, problems) == ({"widths": [11, 12], "classes": 23}, [])
    assert runs_in_eager(found).shape[-1] == 23


REARRANGE = """
import torch
from torch import nn

class Rearrange(nn.Module):
    '''Cuts into patches, as its pattern says.'''
    def __init__(self, pattern, **axes_lengths):
        super().__init__()
        self.pattern, self.axes_lengths = pattern, axes_lengths

    def forward(self, x):
        assert x.dim() == {dims}
        p, size = self.axes_lengths["p"], x.shape
        return {patches}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(Rearrange("{pattern}", {sizes}), {layer})

    def forward(self, data):
        return self.embed(data)
"""
PATCHES = {
    "tokens": (
        {
            "dims": 4,
            "sizes": "p=4, q=4",
            "pattern": "b c (h p) (w q) -> b (h w) (p q c)",
            "patches": "nn.functional.unfold(x, p, stride=p).transpose(1, 2)",
            "layer": "nn.Linear(4 * 4 * 3, 8)",
        },
        "data: f32[B=2, 3, H=32, W=32]",
    ),
    "an image of patches": (
        {
            "dims": 4,
            "sizes": "p=4, q=4",
            "pattern": "b c (h p) (w q) -> b (p q c) h w",
            "patches": "nn.functional.pixel_unshuffle(x, p)",
            "layer": "nn.Conv2d(4 * 4 * 5, 8, 1)",
        },
        "data: f32[B=2, 5, H=32, W=32]",
    ),
    "a signal": (
        {
            "dims": 3,
            "sizes": "p=4",
            "pattern": "b c (n p) -> b n (p c)",
            "patches": "x.reshape(size[0], 2, size[2] // p, p).permute(0, 2, 3, 1).flatten(2)",
            "layer": "nn.Linear(4 * 2, 8)",
        },
        "data: f32[B=2, 2, L=64]",
    ),
}


@pytest.mark.parametrize(("parts", "expected"), PATCHES.values(), ids=PATCHES)
def test_what_a_pattern_describes_is_the_input(workspace, parts, expected):
    put(workspace, {"patches.py": REARRANGE.format(**parts)})
    (found,), problems = looked_at(workspace, "patches.py")
    assert (format_inputs(found.spec), problems) == (expected, [])
    assert runs_in_eager(found).shape[0] == 2


def test_weights_that_are_drawn_until_they_please_are_not_drawn_on_meta():
    shadows = Shadows()
    with MetaMode(shadows):
        layer = torch.nn.Linear(300, 300)
        table = torch.nn.Parameter(torch.zeros(2, 3))
        assert torch.nn.init.trunc_normal_(layer.weight, std=0.02) is layer.weight
        torch.nn.init.trunc_normal_(table)
        assert not layer.weight.is_meta
    assert shadows.get(table) is None, "a random weight has no known value"


def test_saved_tensors_are_loaded_while_the_program_runs(workspace):
    put(workspace, {"trained.py": "import torch\n" + NET.format(body="nn.Linear(5, 2)") + PROGRAM})
    torch.save({"rows": torch.arange(30.0).reshape(6, 5)}, workspace / "rows.pt")
    torch.save({"body.weight": torch.ones(2, 5), "body.bias": torch.ones(2)}, workspace / "weights.pt")
    (found,), problems = looked_at(workspace, "trained.py")
    assert (found.inputs_from, format_inputs(found.spec), problems) == ("main", "x: f32[B=4, 5]", [])


def test_the_most_complete_configuration_of_a_file_is_taken(workspace):
    put(
        workspace,
        {
            "configured.py": """
        from torch import nn

        class NetConfig:
            rate = 0.1
            def __init__(self, width, **kwargs):
                self.width = width

        class SmallConfig(NetConfig):
            depth = 3

        class Net(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.layers = nn.Sequential(*[nn.Linear(config.width, config.width) for _ in range(config.depth)])

            def forward(self, x):
                return self.layers(x)
    """
        },
    )
    (found,), problems = looked_at(workspace, "configured.py")
    assert (type(found.arguments["config"]).__name__, problems) == ("SmallConfig", [])
    assert len(found.model.layers) == 3


def test_what_a_try_left_in_a_model_is_gone_when_it_is_recorded(workspace):
    """The mask that the first forward keeps must be made again in the recorded one."""
    put(
        workspace,
        {
            "caching.py": """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.mask = nn.Linear(3, 3), None

            def forward(self, x):
                if self.mask is None:
                    mask = torch.ones(x.shape[0], x.shape[0]).tril()
                    self.mask = mask
                return self.mask @ self.layer(x)
    """
        },
    )
    path = workspace / "caching.py"
    payloads = []
    (workspace.parent / "scratch").mkdir()
    request = TraceRequest(str(path), str(workspace), "", 1, scratch=str(workspace.parent / "scratch"))
    trace(request, payloads.append)
    sites = payloads[-1]["payload"]["sites"]
    bound = {name for name, kind in zip(sites["name"], sites["kind"], strict=True) if KINDS[kind] == "binding"}
    assert "mask" in bound


def test_single_elements_stand_for_numbers_in_sizes_paddings_and_slices():
    with MetaMode(Shadows()):
        x = torch.nn.Conv2d(3, 8, 3)(torch.zeros(1, 3, 20, 20))
        extra = torch.tensor([x.size(2) - 11])
        padded = torch.nn.functional.pad(x, [extra // 2, extra - extra // 2, extra // 2, 0])
        assert padded.shape == (1, 8, 21, 25)
        assert x.view(1, 8, extra + 11, -1).shape == (1, 8, 18, 18)
        assert x[:, :, :extra].shape == (1, 8, 7, 18)


DOWNLOADING = """
from torch.hub import load_state_dict_from_url

class Pretrained(Net):
    def __init__(self):
        super().__init__()
        state = load_state_dict_from_url("https://example.invalid/net-0123.pth", progress=False)
        {use}

Pretrained()(torch.ones(3, 5))
"""
USES = {
    "as it is": "self.load_state_dict(state)",
    "a part of it": "self.load_state_dict({k: v for k, v in state['model'].items() if 'head' not in k})",
    "without an entry": "state.pop('body.bias'); self.load_state_dict(state, strict=False)",
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_published_weights_are_not_needed_for_shapes(workspace, use):
    put(workspace, {"pretrained.py": NET.format(body="nn.Linear(5, 2)") + DOWNLOADING.format(use=use)})
    (found,), problems = looked_at(workspace, "pretrained.py")
    assert (found.name, found.inputs_from, format_inputs(found.spec), problems) == (
        "Pretrained",
        "main",
        "x: f32[B=3, 5] ones",
        [],
    )


#: Networks that a repository on GitHub makes with torchvision, and the part of the call that says so.
HUB = {
    "torchvision": '"pytorch/vision:v0.10.0", name, pretrained=True',
    "with other weights": '"facebookresearch/semi-supervised-ImageNet1K-models", name + "_swsl"',
    "by keywords": 'repo_or_dir="pytorch/vision:main", model=name, weights=None',
}


@pytest.mark.parametrize("given", HUB.values(), ids=HUB)
def test_networks_of_torchvision_are_made_here_where_a_hub_would_download_them(workspace, given):
    put(
        workspace,
        {
            "hub.py": f"""
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, name="resnet18"):
        super().__init__()
        net = torch.hub.load({given})
        self.body = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool, net.layer1, net.layer2)

    def forward(self, x):
        return self.body(x)


Net()(torch.ones(2, 3, 32, 32))
"""
        },
    )
    (found,), problems = looked_at(workspace, "hub.py")
    assert found.name == "Net"
    assert not [problem for problem in problems if problem.severity == "error"], problems
    with loaded_where_present():
        assert runs_in_eager(found).shape == (2, 128, 4, 4)


def test_a_hub_that_makes_networks_of_its_own_is_still_refused(workspace):
    net = NET.format(body='torch.hub.load("example/net", "resnet18")')
    put(workspace, {"hub.py": f"{net}\nNet()(torch.ones(3, 5))\n"})
    found, problems = looked_at(workspace, "hub.py")
    assert found == []
    assert any("refused" in problem.message or "network" in problem.message for problem in problems), problems


def test_weights_of_another_shape_are_still_an_error(workspace):
    program = 'Net().load_state_dict({"body.weight": torch.ones(3, 3), "body.bias": torch.ones(2)})\n'
    put(workspace, {"mismatched.py": NET.format(body="nn.Linear(5, 2)") + program})
    _found, (problem,) = looked_at(workspace, "mismatched.py")
    assert problem.severity == "error"
    assert "size mismatch for body.weight" in problem.message or "load" in problem.message


def test_a_size_that_is_returned_beside_a_tensor_is_a_tuple():
    x = torch.ones(2, 3)
    number = Python("int")
    assert describe_value((x, x.shape)) == TupleOf((tensor_type(x), TupleOf((number, number))))


def test_advice_to_install_leaves_setuptools_in_the_place_of_distutils():
    """A fresh process, since asking for pip once would be enough."""
    program = """
from mase_server.tracing.importing.packages import install_command
assert install_command(["numpy"])["arguments"]
import torch.utils.cpp_extension
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_folder_may_have_the_name_of_the_file_in_it_that_imports_from_it(workspace):
    put(workspace, {"kit_model/backbone.py": NET.format(body="nn.Linear(3, 4)"), "kit_model/kit_model.py": """
from torch import nn
from kit_model.backbone import Net as Small


class Net(nn.Module):
    def __init__(self, backbone="small"):
        super().__init__()
        self.body = Small() if backbone == "small" else None

    def forward(self, x):
        return self.body(x)
""", "train.py": "from kit_model.kit_model import Net\n"})  # fmt: skip
    found, problems = looked_at(workspace, "kit_model/kit_model.py")
    assert problems == []
    assert runs_in_eager(found[0]).shape[-1] == 4
