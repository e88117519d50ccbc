"""Constructor arguments that nobody gave: the errors of a guess lead to arguments that the model accepts.

Ground truth: what is found runs in plain eager PyTorch, with the arguments that are told.
"""

import textwrap

import pytest
import torch
from searching import problems_in

from mase_server.protocol.request import TraceRequest
from mase_server.tracing.inputs.spec import inputs_at
from mase_server.tracing.models.clues import clue_of
from mase_server.tracing.models.find import find_models
from mase_server.tracing.models.found import Found, call_arguments, plain_hooks
from mase_server.tracing.models.names import other_arguments, usual_argument
from mase_server.tracing.models.repairs import propose_arguments
from mase_server.tracing.recording.shadow import Shadows

HEAD = "import torch\nfrom torch import nn\n\n\n"
#: What some of the constructors below name.
MORE = """import abc
import os
from enum import Enum
from typing import Literal, Optional


class Kind(Enum):
    PLAIN = 1
    STRIDED = 2


class Stem(nn.Module, abc.ABC):
    @property
    @abc.abstractmethod
    def planes(self):
        ...


class PlainStem(Stem):
    planes = 5

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 5, 3)

    def forward(self, x):
        return self.layer(x)


def part(planes, share=None):
    if share not in (None, "keys", "values"):
        raise ValueError(f"unknown sharing {share}")
    return nn.Conv2d(3, 3, 3 if share == "keys" else 1)


"""

#: What a constructor insists on -> its body; each takes an image of three channels.
INSISTING = {
    "no classes": """
        def __init__(self, num_classes):
            super().__init__()
            assert num_classes == 0
            self.layer = nn.Conv2d(3, 4, 1)
    """,
    "a tensor": """
        def __init__(self, bias):
            super().__init__()
            self.bias, self.layer = nn.Parameter(bias.unsqueeze(1)), nn.Conv2d(3, 4, 1)
    """,
    "a key of its keywords": """
        def __init__(self, **kwargs):
            super().__init__()
            self.layer = nn.Conv2d(3, kwargs.pop("planes"), 3)
    """,
    "a size where its name means several": """
        def __init__(self, encoder_dims):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(8, encoder_dims))
            self.layer = nn.Conv2d(3, self.weight.shape[1], 3)
    """,
    "a list of pairs": """
        def __init__(self, sa_sizes):
            super().__init__()
            width = 0
            for states, actions in sa_sizes:
                width += states + actions
            self.layer = nn.Conv2d(3, width, 3)
    """,
    "a size of a data set": """
        def __init__(self, args, data):
            super().__init__()
            self.dropout, self.hidden = args.dropout, args.hidden
            self.columns = data.columns
            self.layer = nn.Conv2d(3, self.columns + self.hidden, 3)
    """,
    "entries by a variable key": """
        def __init__(self, heads):
            super().__init__()
            self.heads = heads
            width = 0
            for head in sorted(self.heads):
                width += self.heads[head] + len(head)
            self.layer = nn.Conv2d(3, width, 3)
    """,
    "items": """
        def __init__(self, shapes):
            super().__init__()
            self.layer = nn.Conv2d(3, sum(size for name, size in shapes.items() if name), 3)
    """,
    "a list in a pair": """
        def __init__(self, feature_dims, emb_dim):
            super().__init__()
            self.count = len(feature_dims[0])
            self.rest = feature_dims[1] + emb_dim
            self.tables = nn.ModuleList(nn.Embedding(size, emb_dim) for size in feature_dims[0])
            self.layer = nn.Conv2d(3, self.rest, 1)
    """,
    "a list that others are added to": """
        def __init__(self, hidden):
            super().__init__()
            sizes = [3] + hidden + [5]
            pairs = zip(sizes, sizes[1:])
            self.layer = nn.Sequential(*(nn.Conv2d(one, other, 3) for one, other in pairs))
    """,
    "a width that its heads divide": """
        def __init__(self, planes, splits=5):
            super().__init__()
            assert planes % splits == 0, "planes must be divisible by splits"
            self.layer = nn.Conv2d(3, planes, 3)
    """,
    "a size computed from an argument": """
        def __init__(self, image_size, patch=6):
            super().__init__()
            height, width = image_size, image_size
            if height % patch != 0:
                raise ValueError("the image cannot be cut")
            self.layer = nn.Conv2d(3, 8, patch)
    """,
    "a tuple of three": """
        def __init__(self, depth):
            super().__init__()
            assert isinstance(depth, tuple) and len(depth) == 3, "depth must be a tuple of 3"
            self.layer = nn.Sequential(nn.Conv2d(3, 8, 3), *(nn.Conv2d(8, 8, 1) for _ in range(sum(depth))))
    """,
    "something that has a length": """
        def __init__(self, planes):
            super().__init__()
            self.layer = nn.Sequential(*(nn.Conv2d(3, planes[0], 3) for _ in range(1 if len(planes) else 0)))
    """,
    "lists of the same length": """
        def __init__(self, depths, dims=(8, 16, 32)):
            super().__init__()
            assert len(depths) == len(dims), "one depth for each dim"
            self.layer = nn.Conv2d(3, dims[0], 3)
    """,
    "a word that it compares with": """
        def __init__(self, flavour):
            super().__init__()
            if flavour == "plain":
                self.layer = nn.Conv2d(3, 8, 3)
            elif flavour == "strided":
                self.layer = nn.Conv2d(3, 8, 3, stride=2)
            else:
                raise NotImplementedError(flavour)
    """,
    "a key of its table": """
        def __init__(self, variant):
            super().__init__()
            self.layer = nn.Conv2d(3, {"tiny": 8, "small": 16}[variant], 3)
    """,
    "a key that its table is asked for": """
        def __init__(self, variant):
            super().__init__()
            make = {"plain": nn.Conv2d, "turned": nn.ConvTranspose2d}.get(variant)
            self.layer = make(3, 8, 3)
    """,
    "an option that is none by default": """
        def __init__(self, planes=None):
            super().__init__()
            assert planes is not None, "planes must be supplied"
            self.layer = nn.Conv2d(3, planes, 3)
    """,
    "one of two ways to say it": """
        def __init__(self, planes=None, info=None):
            super().__init__()
            if info is not None and planes is not None:
                raise TypeError("both ways at once")
            if planes is None:
                raise ValueError("planes could not be inferred. Either specify planes or info.")
            self.layer = nn.Conv2d(3, planes, 3)
    """,
    "one of the texts of its annotation": """
        def __init__(self, kind: Literal["plain", "strided"]):
            super().__init__()
            self.layer = nn.Conv2d(3, 8, 3, stride={"plain": 1, "strided": 2}[kind])
    """,
    "one of the texts of an annotation that allows none": """
        def __init__(self, kind: Optional[Literal["plain", "strided"]]):
            super().__init__()
            self.layer = nn.Conv2d(3, 8, 3, stride={"plain": 1, "strided": 2}[kind])
    """,
    "a member of an enumeration": """
        def __init__(self, kind: Kind):
            super().__init__()
            self.layer = nn.Conv2d(3, 8, 3, stride=kind.value)
    """,
    "a text that is only told": """
        def __init__(self, title: str, planes: int):
            super().__init__()
            self.title = title.capitalize()
            self.layer = nn.Conv2d(3, planes, 3)
    """,
    "a text in the name of a layer": """
        def __init__(self, activation):
            super().__init__()
            wide = 2 if activation.endswith("glu") else 1
            self.layer = nn.Sequential(nn.Conv2d(3, 8 * wide, 3), nn.GELU())
    """,
    "the name of a function of torch": """
        def __init__(self, act_func):
            super().__init__()
            self.layer = nn.Conv2d(3, 8, 3)
            self.act = getattr(nn.functional, act_func)
    """,
    "the name of a class of torch": """
        def __init__(self, nonlinearity: str):
            super().__init__()
            self.layer = nn.Sequential(nn.Conv2d(3, 8, 3), getattr(nn, nonlinearity)())
    """,
    "a text that has another one inside": """
        def __init__(self, variant):
            super().__init__()
            if "small" in variant:
                self.layer = nn.Conv2d(3, 8, 3)
            elif "large" in variant:
                self.layer = nn.Conv2d(3, 16, 3)
            else:
                raise ValueError(variant)
    """,
    "an entry of a dictionary that goes into another": """
        def __init__(self, params):
            super().__init__()
            self.options = {"bias": True, **params}
            self.layer = nn.Conv2d(3, self.options["planes"], 3, bias=self.options["bias"])
    """,
    "a part of an abstract class": """
        def __init__(self, stem: Stem):
            super().__init__()
            self.layer = nn.Sequential(stem, nn.Conv2d(stem.planes, 8, 1))
    """,
    "a logger": """
        def __init__(self, planes, logger):
            super().__init__()
            logger.info("made")
            logger.log(10, "with %d", planes)
            self.layer = nn.Conv2d(3, planes, 3)
    """,
    "a switch by its name": """
        def __init__(self, planes, with_norm, has_head, bidirectional):
            super().__init__()
            self.norm = nn.BatchNorm2d(3) if with_norm is True else 0
            self.layer = nn.Sequential(self.norm, nn.Conv2d(3, planes, 3))
            self.rnn = nn.GRU(4, planes // (1 + has_head), bidirectional=bidirectional)
    """,
    "one of the classes of its annotation": """
        def __init__(self, block: type[nn.Conv2d | nn.ConvTranspose2d], planes: int = 8):
            super().__init__()
            self.layer = nn.Sequential(block(3, planes, 3), nn.ReLU())
    """,
    "a folder": """
        def __init__(self, planes, root):
            super().__init__()
            if not os.path.exists(root):
                os.makedirs(root)
            self.file = os.path.join(root, "net.pt")
            self.layer = nn.Conv2d(3, planes, 3)
    """,
    "a list where a tuple will not do": """
        def __init__(self, cardinality):
            super().__init__()
            count = len(cardinality)
            self.register_buffer("offsets", torch.tensor([0] + cardinality[:-1]).cumsum(0))
            self.layer = nn.Conv2d(3, count, 1)
    """,
    "one of the values that a part of it allows": """
        def __init__(self, block_share, planes):
            super().__init__()
            self.layer = nn.Sequential(part(planes, share=block_share), part(planes, share=block_share))
    """,
    "a vocabulary that is not known yet": """
        def __init__(self, planes=-1):
            super().__init__()
            self.layer = nn.Conv2d(3, planes, 3)
    """,
    "an instance of a class": """
        def __init__(self, sides):
            super().__init__()
            if not isinstance(sides, tuple):
                raise TypeError("wrong type")
            self.layer = nn.Conv2d(3, 4, sides[:2])
    """,
    "a normalisation of channels": """
        def __init__(self, norm):
            super().__init__()
            self.layer = nn.Sequential(nn.Conv2d(3, 8, 3), norm(8))
    """,
    "arguments that go on to another constructor": """
        def __init__(self, **kwargs):
            super().__init__()
            self.layer = nn.Conv2d(**kwargs)
    """,
    "a class to make its normalisation of": """
        def __init__(self, norm):
            super().__init__()
            self.layer = nn.Conv2d(3, 8, 3)
            self.norm = norm(8)
    """,
    "widths that agree in its forward": """
        def __init__(self, planes, skipped=20):
            super().__init__()
            self.layer = nn.Sequential(nn.Conv2d(3, planes, 3), nn.Conv2d(skipped, 4, 1))
    """,
}


def file_of(init, forward="return self.layer(x)"):
    body = textwrap.indent(textwrap.dedent(init).strip(), "    ")
    more = MORE if any(word in init for word in ("os.", "Literal", "Kind", "Stem", "part(")) else ""
    return f"{HEAD}{more}class Net(nn.Module):\n{body}\n\n    def forward(self, x):\n        {forward}\n"


def looked_at(folder, text, name="net.py", seconds=30.0):
    path = folder / name
    path.write_text(text)
    scratch = str(folder.parent / "scratch")
    request = TraceRequest(str(path), str(folder), "", 1, scratch=scratch, seconds=seconds)
    shadows = Shadows()
    return list(find_models(request, text, plain_hooks(shadows)))


def runs_in_eager(found):
    torch.manual_seed(0)
    model = found.construct().eval()
    args, kwargs = call_arguments(model, inputs_at(found.spec))
    with torch.no_grad():
        return model(*args, **kwargs)


@pytest.mark.parametrize("init", INSISTING.values(), ids=INSISTING)
def test_what_a_constructor_insists_on_is_learned_from_its_errors(workspace, init):
    found = next(each for each in looked_at(workspace, file_of(init)) if each.name == "Net")
    assert isinstance(found, Found), found
    assert found.arguments_from == "search"
    assert runs_in_eager(found).shape[0] == 2


def test_an_argument_that_cannot_be_written_ends_no_search(workspace):
    text = f"""{HEAD}class NetConfig:
    def __init__(self, planes):
        self.planes = planes

    def __repr__(self):
        raise TypeError("a module is not JSON serializable")


class Net(nn.Module):
    def __init__(self, config, head):
        super().__init__()
        assert head % 7 == 0
        self.layer = nn.Conv2d(3, head, 3)

    def forward(self, x):
        return self.layer(x)
"""
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert runs_in_eager(found).shape[0] == 2


def test_steps_of_upsampling_stay_small(workspace):
    text = file_of("""
        def __init__(self, upsample_factors, width):
            super().__init__()
            self.layer, self.scale = nn.Conv1d(width, 4, 3), 1
            for factor in upsample_factors:
                self.scale *= factor
    """, "return self.layer(x).repeat_interleave(self.scale, 2)")  # fmt: skip
    (found,) = looked_at(workspace, text)
    assert runs_in_eager(found).dim() == 3
    assert set(found.arguments["upsample_factors"]) == {2}


def test_of_two_plurals_only_the_one_that_is_used_as_a_list_is_one(workspace):
    init = """
        def __init__(self, layers, heads):
            super().__init__()
            self.heads = heads
            self.layer = nn.Conv2d(3, 8 * layers[0] + 4 * layers[1], 3)
    """
    (found,) = looked_at(workspace, file_of(init, "return self.layer(x).unflatten(1, (self.heads, -1))"))
    assert isinstance(found, Found), found
    assert runs_in_eager(found).shape[1] == found.arguments["heads"]


def test_of_several_plurals_none_is_a_list_if_one_is_the_size_of_a_layer(workspace):
    """The others only go on to parts, where nothing of this class tells what they are."""
    parts = "\n".join(
        f"class Part{letter}(nn.Module):\n    def __init__(self, width, wide):\n        super().__init__()\n"
        "        self.layer = nn.Linear(width, wide)\n        self.back = nn.Linear(wide, width)\n\n"
        "    def forward(self, x):\n        return self.back(self.layer(x))\n"
        for letter in "AB"
    )
    init = """
        def __init__(self, encoder_dims, decoder_dims, lstm_dims, postnet_dims, num_chars):
            super().__init__()
            self.table = nn.Embedding(num_chars, encoder_dims)
            self.one, self.two = PartA(encoder_dims, decoder_dims), PartB(encoder_dims, lstm_dims)
            self.layer = nn.Linear(encoder_dims, postnet_dims * 2)
    """
    text = file_of(init, "return self.layer(self.two(self.one(self.table(x))))").replace(HEAD, f"{HEAD}{parts}\n\n")
    found = next(each for each in looked_at(workspace, text) if each.name == "Net")
    assert isinstance(found, Found), found
    assert all(isinstance(size, int) for size in found.arguments.values())
    assert runs_in_eager(found).shape[-1] == 2 * found.arguments["postnet_dims"]


@pytest.mark.parametrize(
    ("name", "given"),
    [("embedding_matrix", "torch.tensor(embedding_matrix, dtype=torch.float)"), ("pretrained", "pretrained")],
)
def test_pretrained_vectors_are_a_matrix_as_wide_as_the_configuration_says(workspace, name, given):
    text = f"""{HEAD}class Tagger(nn.Module):
    def __init__(self, {name}, opt):
        super().__init__()
        self.embed = nn.Embedding.from_pretrained({given})
        self.fc = nn.Linear(opt.embed_dim, opt.classes)

    def forward(self, tokens):
        return self.fc(self.embed(tokens))
"""
    (workspace / "train.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--embed_dim', default=30, type=int)\n"
        "parser.add_argument('--classes', default=3, type=int)\n"
    )
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert (found.model.embed.embedding_dim, found.model.fc.out_features) == (30, 3)
    assert runs_in_eager(found).shape[-1] == 3


def test_a_key_that_nobody_gave_is_no_mistake_of_a_class_that_takes_any_keyword(workspace):
    init = """
        def __init__(self, **kwargs):
            super().__init__()
            self.layer = nn.Conv2d(3, kwargs["planes"].channels.most, 3)
    """
    items = looked_at(workspace, file_of(init))
    assert [problem.code for problem in problems_in(items)] == ["no-arguments"]


@pytest.mark.parametrize("start", ['"<start>"', "START"])
def test_words_that_the_forward_looks_up_are_in_the_map_that_the_constructor_is_given(workspace, start):
    init = """
        def __init__(self, word_map):
            super().__init__()
            self.word_map, self.count = word_map, len(word_map)
            self.table, self.layer = nn.Embedding(self.count, 6), nn.Linear(6, 6)
    """
    forward = f"""start = torch.full((len(x),), self.word_map[{start}])
        end = torch.full((len(x),), self.word_map["<end>"])
        return self.layer(x) + self.table(start) + self.table(end)"""
    text = file_of(init, forward).replace(HEAD, f"{HEAD}START = '<start>'\n\n\n")
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert runs_in_eager(found).shape[-1] == 6
    words = found.arguments["word_map"]
    assert {"<start>", "<end>"} <= words.keys()
    assert sorted(words.values()) == list(range(10))


def test_what_the_forward_calls_is_a_module_and_no_number(workspace):
    init = """
        def __init__(self, head):
            super().__init__()
            self.layer, self.head = nn.Conv2d(3, 8, 3), head
    """
    (found,) = looked_at(workspace, file_of(init, "return self.head(self.layer(x))"))
    assert isinstance(found, Found), found
    assert runs_in_eager(found).shape[:2] == (2, 8)


def test_a_module_handed_over_is_one_of_the_file_and_is_made_anew_with_values(workspace):
    text = f"""{HEAD}class TinyEncoder(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.width = 12
        self.body = nn.Conv2d(channels, self.width, 3)

    def forward(self, x):
        return self.body(x)


class Wrapper(nn.Module):
    def __init__(self, *, encoder):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.width, 5)

    def forward(self, x):
        return self.head(self.encoder(x).mean((2, 3)))
"""
    wrapper = next(item for item in looked_at(workspace, text) if isinstance(item, Found) and item.name == "Wrapper")
    assert runs_in_eager(wrapper).shape == (2, 5)
    assert not any(parameter.is_meta for parameter in wrapper.construct().parameters())


def test_a_list_of_modules_may_be_asked_for_where_one_is_guessed(workspace):
    text = f"""{HEAD}class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 1)

    def forward(self, x):
        return self.layer(x)


class Net(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.width = encoder, encoder.layer.in_channels
        assert isinstance(encoder, (list, tuple))

    def forward(self, x):
        return self.encoder(x)
"""
    found = looked_at(workspace, text)
    assert {"Encoder"} <= {each.name for each in found if isinstance(each, Found)}


def test_a_constructor_that_nothing_satisfies_ends_soon_with_its_problem(workspace):
    init = """
        def __init__(self, width):
            super().__init__()
            raise ValueError(f"no width will do, not even {width}")
    """
    (problem,) = problems_in(looked_at(workspace, file_of(init)))
    assert (problem.code, problem.severity) == ("no-arguments", "warning")


@pytest.mark.parametrize("name", ["planes", "dim", "heads", "patch_size", "image_size", "vocab_size"])
def test_other_values_of_a_name_are_whole_positive_and_not_the_usual_one(name):
    others = other_arguments(name)
    assert others
    assert all(isinstance(value, int) and value > 0 for value in others)
    assert usual_argument(name) not in others or len(set(others)) > 1


def raised_by(kind, **arguments):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is the test's parameter
        kind(**arguments)
    return clue_of(caught.value, kind, arguments)


class _Heads:
    def __init__(self, width, heads, spare=3):
        inner = width * 2
        assert inner % heads == 0


class _Pair:
    def __init__(self, size):
        self.high, self.wide = size


def test_the_arguments_behind_an_assertion_are_found_through_local_names():
    clue = raised_by(_Heads, width=5, heads=4)
    assert set(clue.culprits) >= {"width", "heads"}
    assert "spare" not in clue.culprits


def test_what_is_proposed_for_a_remainder_leaves_none():
    clue = raised_by(_Heads, width=5, heads=4)
    first = propose_arguments(clue)[0]
    assert first["width"] * 2 % first["heads"] == 0


def test_what_has_to_be_unpacked_is_proposed_as_so_many():
    clue = raised_by(_Pair, size=(1, 2, 3))
    assert {"size": (1, 2)} in propose_arguments(clue)


def test_nothing_is_proposed_twice_in_place_of_what_failed():
    clue = raised_by(_Heads, width=5, heads=4)
    assert {"width": 5, "heads": 4} not in propose_arguments(clue)


def test_reading_an_error_calls_nothing_of_the_person_again():
    calls = []

    def noted(value):
        calls.append(value)
        return value

    class Counting:
        def __init__(self, width):
            assert noted(width) % 7 == 0

    propose_arguments(raised_by(Counting, width=5))
    assert calls == [5]


def test_a_residual_that_does_not_fit_makes_the_channels_agree(workspace):
    init = """
        def __init__(self, in_channels, hidden_channels, out_channels, kernel_size, dilation_rate):
            super().__init__()
            self.layers = nn.ModuleList()
            for index in range(3):
                dilation = dilation_rate**index
                padding = (kernel_size - 1) * dilation // 2
                width = hidden_channels if index else in_channels
                self.layers.append(nn.Conv1d(width, hidden_channels, kernel_size, dilation=dilation, padding=padding))
            self.proj = nn.Conv1d(hidden_channels, out_channels, 1)
    """
    forward = """
            kept = x
            for layer in self.layers:
                x = layer(x * x_mask).relu()
            x = kept + self.proj(x)
            return x * x_mask
    """
    text = file_of(init, textwrap.dedent(forward).strip().replace("\n", "\n        ")).replace(
        "self, x)", "self, x, x_mask)"
    )
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert found.arguments["in_channels"] == found.arguments["out_channels"]
    assert runs_in_eager(found).dim() == 3
