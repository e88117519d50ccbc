"""Models that are made of other models, by their own methods, or by calls that are known only in part.

Ground truth: what is found runs in plain eager PyTorch, with shapes that are worked by hand from the source.
"""

import ast
import sys

import pytest
import torch
from torch import nn

from mase_server.tracing.models.constructions import Surroundings
from mase_server.tracing.models.evaluation import UnknownNameError, evaluate_call, evaluate_partly
from mase_server.tracing.models.found import Found
from mase_server.tracing.models.guesses import STAND_IN, _find_classes_setting, parts_for
from mase_server.tracing.recording.shadow import Shadows
from tests.inputs.searching import problems_in
from tests.inputs.test_inputs_repairs import HEAD, looked_at, runs_in_eager
from tests.inputs.test_inputs_workspace import put


def found_of(name, items):
    return next(item for item in items if isinstance(item, Found) and item.name == name)


ENCODER = """
class SmallEncoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.features = 12
        assert width % 3 == 0, "width must be divisible by three"
        self.body = nn.Sequential(nn.Conv2d(3, width, 3), nn.Conv2d(width, self.features, 3))

    def forward(self, x):
        return self.body(x)


"""
#: How a wrapper takes its encoder -> its body; every one is a 1x1 convolution from 12 channels to 5.
WRAPPERS = {
    "by annotation": "def __init__(self, inner: SmallEncoder):",
    "by name": "def __init__(self, encoder):\n        inner = encoder",
    "by an assertion": "def __init__(self, part):\n        assert isinstance(part, SmallEncoder)\n        inner = part",
}  # fmt: skip


@pytest.mark.parametrize("head", WRAPPERS.values(), ids=WRAPPERS)
def test_a_model_that_is_handed_over_is_made_as_it_would_be_by_itself(workspace, head):
    text = (
        HEAD
        + ENCODER
        + f"""class Whole(nn.Module):
    {head}
        super().__init__()
        self.inner, self.head = inner, nn.Conv2d(inner.features, 5, 1)

    def forward(self, x):
        return self.head(self.inner(x))
"""
    )
    whole = found_of("Whole", looked_at(workspace, text))
    assert whole.arguments_from == "search"
    assert runs_in_eager(whole).shape[1] == 5
    assert not any(parameter.is_meta for parameter in whole.construct().parameters())


def test_a_model_of_which_nothing_is_known_is_a_small_network(workspace):
    text = (
        HEAD
        + """class Probe(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone

    def forward(self, x):
        return self.backbone(x).softmax(-1)
"""
    )
    (found,) = looked_at(workspace, text)
    assert runs_in_eager(found).shape == (2, 64)


def test_a_model_that_wants_itself_ends(workspace):
    text = (
        HEAD
        + """class Loop(nn.Module):
    def __init__(self, inner: "Loop"):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)
"""
    )
    assert not [item for item in looked_at(workspace, text) if isinstance(item, Found)]


#: Methods that give an instance -> the decorator and its body.
MAKERS = {
    "a class method": "@classmethod\n    def small(cls):\n        return cls(6, 7)",
    "a static method": (
        "@staticmethod\n    def small(pretrained=True):\n        assert not pretrained\n        return Net(6, 7)"
    ),
    "one that hands on": (
        "@staticmethod\n    def _make(*sizes):\n        return Net(*sizes)\n\n"
        "    @staticmethod\n    def small():\n        return Net._make(6, 7)"
    ),
}


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_a_class_is_made_by_its_own_methods(workspace, maker):
    text = (
        HEAD
        + f"""class Net(nn.Module):
    def __init__(self, entrance, outcome):
        super().__init__()
        self.layer = nn.Linear(entrance, outcome)

    {maker}

    def forward(self, x):
        return self.layer(x)
"""
    )
    found = found_of("Net", looked_at(workspace, text))
    assert (found.arguments["entrance"], found.arguments["outcome"]) == (6, 7)
    assert runs_in_eager(found).shape[-1] == 7


def test_what_a_builder_leaves_open_is_guessed_and_said(workspace):
    text = (
        HEAD
        + """class Net(nn.Module):
    def __init__(self, stem, num_classes):
        super().__init__()
        self.layer = nn.Sequential(nn.Conv2d(3, stem, 3), nn.Conv2d(stem, num_classes, 3))

    def forward(self, x):
        return self.layer(x)


def lite(**options):
    return Net(stem=13, **options)
"""
    )
    found = found_of("Net", looked_at(workspace, text))
    assert found.arguments["stem"] == 13
    assert "built as its file builds it, with num_classes guessed" in found.found
    assert runs_in_eager(found).shape[1] == found.arguments["num_classes"]


MIXER = """class Mixer(nn.Module):
    def __init__(self, entrance, inner):
        super().__init__()
        self.layer = nn.Linear(entrance, inner)

    def forward(self, x):
        return self.layer(x)


"""
#: Calls whose arguments are known in part, or only through what surrounds them -> text; entrance is 11 in each.
CALLS = {
    "a value of a program": "import sys\n\ndef run():\n    return Mixer(11, sys.stdin.unknown_size)\n",
    "a parameter of a test": (
        "import pytest\n\n@pytest.mark.parametrize('wide, deep', [(11, 2), (3, 4)])\n"
        "def check(wide, deep):\n    assert Mixer(wide, deep)\n"
    ),
    "one parameter of a test": (
        "import pytest\n\n@pytest.mark.parametrize('wide', [pytest.param(11), 3])\n"
        "def check(wide):\n    assert Mixer(wide, 2)\n"
    ),
    "an argument of another call": "def make(wide):\n    return Mixer(wide, 5)\n\ndef run():\n    return make(11)\n",
    "a command line": (
        "p = ArgumentParser()\np.add_argument('--wide', default=11)\nargs = p.parse_args()\nm = Mixer(args.wide, 4)\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("usage", CALLS.values(), ids=CALLS)
def test_a_call_elsewhere_is_followed_as_far_as_it_can_be_told(workspace, usage):
    put(workspace, "use.py", f"from net import Mixer\n{usage}")
    found = found_of("Mixer", looked_at(workspace, HEAD + MIXER))
    assert found.arguments["entrance"] == 11
    assert "built as use.py builds it" in found.found
    assert runs_in_eager(found).shape[-1] == found.arguments["inner"]


def test_a_table_that_is_only_chosen_from_gives_its_first_entry(workspace):
    usage = """SIZES = {"tiny": 11, "huge": 99}


def build(name):
    return Mixer(SIZES[name], 4)
"""
    found = found_of("Mixer", looked_at(workspace, HEAD + MIXER + usage))
    assert found.arguments == {"entrance": 11, "inner": 4}


def test_a_program_that_makes_a_model_and_trains_it_is_not_called_as_a_builder(workspace):
    canary = workspace / "ran"
    usage = f"""def main():
    model = Mixer(11, 4)
    open({str(canary)!r}, "w").close()
    while True:
        pass
"""
    found = found_of("Mixer", looked_at(workspace, HEAD + MIXER + usage))
    assert found.arguments == {"entrance": 11, "inner": 4}
    assert not canary.exists()


# ------------------------------------------------------------------------------------------------------- the pieces


def call_in(code):
    tree = ast.parse(code)
    return next(node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "f"), tree


def f(one, two=2, *, three=3):
    return one, two, three


def test_the_arguments_of_a_call_are_told_one_by_one():
    call, tree = call_in("a = 4\nf(a + 1, unheard_of, three=other())")
    assert evaluate_partly(call, {}, tree, f) == ({"one": 5}, ["two", "three"])


def test_a_call_that_does_not_fit_its_function_tells_nothing():
    call, tree = call_in("f(1, 2, 3, 4)")
    assert evaluate_partly(call, {}, tree, f) == ({}, [])


def test_a_name_without_a_value_is_an_error_before_anything_runs():
    call, tree = call_in("f(print('ran'), unheard_of)")
    with pytest.raises(UnknownNameError, match="'unheard_of'"):
        evaluate_call(call, {"f": f}, tree)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two files, of which one holds a class that sets `rows`."""
    folder = tmp_path / "shelves"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "wide.py").write_text(
        "from torch import nn\n\nclass Wide(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.rows: int = 3\n"
    )
    (folder / "other.py").write_text(
        "from torch import nn\n\nclass Other(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        assert self.rows == 3\n\nclass NoModule:\n    def __init__(self):\n        self.rows = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import shelves.other
    import shelves.wide

    yield shelves
    for name in [name for name in sys.modules if name.partition(".")[0] == "shelves"]:
        del sys.modules[name]


def test_classes_having_an_attribute_are_those_of_the_package_that_set_it(package):
    around = {"__package__": "shelves"}
    assert [kind.__name__ for kind in _find_classes_setting("rows", around)] == ["Wide"]
    assert list(_find_classes_setting("columns", around)) == []


def test_a_class_that_is_imported_by_several_files_is_found_once(package):
    around = {"__package__": "shelves", "Wide": package.wide.Wide, "Again": package.wide.Wide}
    assert list(_find_classes_setting("rows", around)) == [package.wide.Wide]


def test_torchs_own_classes_are_not_looked_through(package):
    assert all(
        not kind.__module__.startswith("torch.")
        for kind in _find_classes_setting("weight", {"__package__": "shelves", **vars(nn)})
    )


def test_a_part_that_lacks_an_attribute_becomes_one_that_has_it(package):
    around = Surroundings({"__package__": "shelves"}, ast.parse(""), Shadows())
    first = next(parts_for("thing", "rows", around))
    assert type(first.make()).__name__ == "Wide"


def test_the_stand_in_takes_an_image_and_gives_features():
    with torch.no_grad():
        assert STAND_IN.make()(torch.zeros(2, 3, 32, 32)).shape == (2, 64)


DOWNLOADING = """
import hashlib
import os
import urllib.request

import torch
from torch import nn


def fetch(url, path):
    with urllib.request.urlopen(url) as page, open(path, "wb") as file:
        file.write(page.read())


def find_weights(name, root="weights"):
    path = os.path.join(root, f"{name}.pth")
    if not os.path.exists(path):
        fetch(f"http://example.invalid/{name}.pth", path)
        with open(path, "rb") as file:
            assert hashlib.md5(file.read()).hexdigest() == "0123"
    return path


class Distance(nn.Module):
    def __init__(self, dropout=True):
        super().__init__()
        self.layer = nn.Conv2d(3, 8, 3)
        self.load_from_pretrained()
        self.head = nn.Conv2d(8, 1, 1)

    def load_from_pretrained(self, name="distance"):
        self.load_state_dict(torch.load(find_weights(name)), strict=False)
        print("loaded")

    def forward(self, image):
        return self.head(self.layer(image))


class Tokenizer(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.encode, self.distance = nn.Conv2d(3, width, 1), Distance().eval()
        self.decode = nn.Conv2d(width, 3, 1)

    def forward(self, image):
        return self.distance(self.decode(self.encode(image)))


class Built(nn.Module):
    def __init__(self):
        super().__init__()
        self.load_layers()

    def load_layers(self):
        self.layer = nn.Linear(len(find_weights("built")), 3)

    def forward(self, x):
        return self.layer(x)
"""


def test_a_model_is_made_without_the_weights_that_it_downloads_itself(workspace):
    items = looked_at(workspace, DOWNLOADING)
    found = {each.name: each for each in items if isinstance(each, Found)}
    assert set(found) == {"Tokenizer"}, "Distance is part of it, and Built gets a layer by loading"
    for each in found.values():
        assert each.model(torch.ones(1, 3, 9, 9, device="meta")).shape == (1, 1, 7, 7)


#: Classes whose argument has the name of the class itself, or of another class that needs such a one.
OWN_NAMES = {
    "itself": {"Tagger": "tagger"},
    "each other": {"Left": "right", "Right": "left"},
    "one in a circle": {"Tagger": "left", "Left": "right", "Right": "left"},
}


@pytest.mark.parametrize("names", OWN_NAMES.values(), ids=OWN_NAMES)
def test_no_class_is_an_argument_of_itself(workspace, names):
    text = HEAD + "".join(
        f"class {kind}(nn.Module):\n    def __init__(self, {part}):\n        super().__init__()\n"
        f"        self.{part} = {part}\n        self.fc = nn.Linear(8, 8)\n\n"
        f"    def forward(self, x):\n        return self.fc(self.{part}(x))\n\n\n"
        for kind, part in names.items()
    )
    whole = found_of(next(iter(names)), looked_at(workspace, text))
    parts = [type(part).__name__ for part in whole.model.modules()]
    assert [parts.count(kind) for kind in names] == [1] * len(names)
    assert runs_in_eager(whole).shape[-1] == 8


CALLED = """
class Diffusion(nn.Module):
    def __init__(self, ARGUMENT, steps=100):
        super().__init__()
        self.inner = ARGUMENT
        self.steps = steps
        self.register_buffer("scale", torch.linspace(0.1, 0.2, steps))

    def forward(self, image):
        t = torch.randint(self.steps, (image.shape[0],))
        noisy = image * self.scale[t].view(-1, 1, 1, 1)
        return self.inner(noisy, t) - image
"""
#: One that takes a value less than the class gives it comes first by its name.
BESIDE = """
class Denoiser(nn.Module):
    def forward(self, x):
        return x


class FineDenoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.times = nn.Embedding(100, 3)

    def forward(self, x, t):
        return self.conv(x) + self.times(t)[:, :, None, None]
"""


@pytest.mark.parametrize("name", ["model", "denoiser", "fn"])
def test_a_module_that_is_called_with_several_values_takes_them(workspace, name):
    whole = found_of("Diffusion", looked_at(workspace, HEAD + CALLED.replace("ARGUMENT", name)))
    assert len(whole.spec.entries["image"].dims) == 4
    assert runs_in_eager(whole).shape == whole.args[0].shape


def test_a_class_for_a_called_argument_takes_as_many_values(workspace):
    put(workspace, "denoisers.py", HEAD + BESIDE)
    whole = found_of("Diffusion", looked_at(workspace, HEAD + CALLED.replace("ARGUMENT", "denoiser")))
    assert type(whole.model.inner).__name__ == "FineDenoiser"
    assert runs_in_eager(whole).shape == whole.args[0].shape


CLASSIFIER = """
class Classifier(nn.Module):
    def __init__(self, bert, width=6):
        super().__init__()
        self.bert = bert
        self.fc = nn.Linear(width, 3)

    def forward(self, ids, segments):
        PART = self.bert(ids, kinds=segments)MEMBER
        return self.fc(pooled)
"""


def test_what_stands_in_for_a_module_gives_one_tensor(workspace):
    text = HEAD + CLASSIFIER.replace("PART", "pooled").replace("MEMBER", ".contiguous()")
    assert runs_in_eager(found_of("Classifier", looked_at(workspace, text))).shape[-1] == 3


@pytest.mark.parametrize(("part", "member"), [("_, pooled", ""), ("pooled", "[1]"), ("pooled", ".pooler_output")])
def test_nothing_stands_in_for_a_module_that_gives_several_values(workspace, part, member):
    items = looked_at(workspace, HEAD + CLASSIFIER.replace("PART", part).replace("MEMBER", member))
    assert not [item for item in items if isinstance(item, Found)]
    (problem,) = problems_in(items)
    assert "'bert' is a module that gives several values" in problem.message


def test_what_a_base_keeps_of_the_arguments_is_known_for_its_subclass(workspace):
    text = HEAD + (
        "class Base(nn.Module):\n    def __init__(self, f, width):\n        super().__init__()\n"
        "        self.f, self.out = None, nn.Linear(width, 7)\n        self.f = f\n\n\n"
        "class Net(Base):\n    def __init__(self, f, width):\n        super().__init__(f, width)\n"
        "        self.last = nn.Linear(7, 5)\n\n"
        "    def forward(self, x):\n        return self.last(self.out(self.f(x)))\n"
    )
    found = next(item for item in looked_at(workspace, text) if isinstance(item, Found))
    assert found.name == "Net"
    assert isinstance(found.arguments["f"], nn.Module)
    assert runs_in_eager(found).shape[-1] == 5


def test_a_number_that_a_product_takes_becomes_a_matrix(workspace):
    text = HEAD + (
        "class Net(nn.Module):\n    def __init__(self, shift, n_nodes):\n        super().__init__()\n"
        "        self.shift, self.weight = shift, nn.Parameter(torch.ones(n_nodes, 5))\n\n"
        "    def forward(self, x):\n        return torch.einsum('nm,btm->btn', self.shift, x) @ self.weight\n"
    )
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert found.arguments["shift"].shape == (found.arguments["n_nodes"],) * 2
    assert runs_in_eager(found).shape[-1] == 5
