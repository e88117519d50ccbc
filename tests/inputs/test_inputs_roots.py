"""Which models of a file are shown: every class, roots first; what functions build, what variables hold, what wraps
others; and nothing that is left to others."""

import re
import sys
import textwrap

import pytest
import torch
from searching import problems_in
from torch import nn

from mase_server.protocol.request import TraceRequest
from mase_server.tracing.inputs.spec import inputs_at
from mase_server.tracing.inputs.text import format_inputs
from mase_server.tracing.models.classes import entry_of, find_root_classes, further_entry, model_classes
from mase_server.tracing.models.find import find_models
from mase_server.tracing.models.found import Found, call_arguments, plain_hooks
from mase_server.tracing.recording.shadow import Shadows
from tests.worker.jobs import Job

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
NET = """
class Net(nn.Module):
    def __init__(self, width=5):
        super().__init__()
        self.fc = nn.Linear(width, 3)

    def forward(self, x):
        y = self.fc(x)
        return y
"""


def shown(folder, source):
    """What is found in a file, by name; and its problems."""
    path = folder / "models.py"
    path.write_text(HEAD + textwrap.dedent(source))
    request = TraceRequest(str(path), str(folder), "", 1, scratch=str(folder))
    items = list(find_models(request, path.read_text(), plain_hooks(Shadows())))
    found = [item for item in items if isinstance(item, Found)]
    return found, list(problems_in(items))


def inputs(found):
    return {each.name: format_inputs(each.spec) for each in found}


# ------------------------------------------------------------------------------------------------------- functions

BUILDERS = {
    "a sequence": "def build(width=5, classes=3):\n    return nn.Sequential(nn.Linear(width, classes))\n",
    "through a name and a move": (
        "def build(width=5):\n    model = nn.Sequential(nn.Linear(width, 3))\n    return model.to('cuda')\n"
    ),
    "through another function": (
        "def block(i, o):\n    return nn.Sequential(nn.Linear(i, o), nn.ReLU())\n"
        "def build(width=5):\n    net = nn.Sequential(block(width, 8), block(8, 3))\n    net.eval()\n    return net\n"
    ),
}


@pytest.mark.parametrize("source", BUILDERS.values(), ids=BUILDERS)
def test_a_function_that_builds_a_model_is_a_root(source, tmp_path):
    found, problems = shown(tmp_path, source)
    assert inputs(found) == {"build": "input: f32[B=2, 5]"}
    assert problems == []


def test_a_function_is_called_with_usual_arguments_and_says_so(tmp_path):
    [found], problems = shown(
        tmp_path, "def make_mlp(in_dim, num_classes):\n    return nn.Sequential(nn.Linear(in_dim, num_classes))\n"
    )
    assert problems == []
    assert found.arguments_from == "search"
    assert "its builder's arguments are guessed from their names" in found.found
    call = ", ".join(f"{name}={value}" for name, value in found.arguments.items())
    assert found.comment.text == f"mase: make_mlp({call}); {format_inputs(found.spec)}"


def test_a_comment_gives_the_arguments_of_a_function(tmp_path):
    [found], problems = shown(
        tmp_path,
        "# mase: build(7); input: f32[B=4, 7]\ndef build(width):\n    return nn.Sequential(nn.Linear(width, 3))\n",
    )
    assert problems == []
    assert (found.arguments_from, found.inputs_from) == ("comment", "comment")
    assert (found.model[0].in_features, format_inputs(found.spec)) == (7, "input: f32[B=4, 7]")


def test_the_comment_of_a_function_reproduces_what_was_assumed(tmp_path):
    source = "def build(embed_dim):\n    return nn.Sequential(nn.Linear(embed_dim, 3))\n"
    [found], _ = shown(tmp_path, source)
    [again], _ = shown(tmp_path, f"# {found.comment.text}\n{source}")
    assert (again.inputs_from, again.arguments_from) == ("comment", "comment")
    assert (str(again.model), format_inputs(again.spec)) == (str(found.model), format_inputs(found.spec))


def test_a_function_that_builds_several_models_shows_each(tmp_path):
    source = """
        def networks():
            generator = nn.Sequential(nn.Linear(16, 64))
            return generator, nn.Sequential(nn.Linear(64, 1))
        """
    found, problems = shown(tmp_path, source)
    assert inputs(found) == {"networks[0]": "input: f32[B=2, 16]", "networks[1]": "input: f32[B=2, 64]"}
    assert problems == []
    assert found[1].comment.text == "mase: networks[1]: input: f32[B=2, 64]"


def test_a_function_that_only_computes_or_trains_is_left_alone(tmp_path):
    source = f"""
        ran = []
        def loss(x):
            ran.append(x)
            y = F.relu(x)
            return y
        def train():
            ran.append(0)
            model = Net()
            return 0.5
        {textwrap.indent(NET, " " * 8)}
        """
    found, problems = shown(tmp_path, source)
    assert inputs(found) == {"Net": "x: f32[B=2, 5]"}
    assert problems == []


def test_a_function_whose_class_is_shown_already_shows_nothing_more(tmp_path):
    found, _ = shown(tmp_path, NET + "def build():\n    return Net()\n")
    assert [each.name for each in found] == ["Net"]


def test_a_class_inside_a_function_is_shown_as_the_function_makes_it(tmp_path):
    source = "def make(width=6):\n" + textwrap.indent(NET.replace("Net", "Local"), "    ") + "    return Local(width)\n"
    found, problems = shown(tmp_path, source)
    assert inputs(found) == {"Local": "x: f32[B=2, 6]"}
    assert problems == []


def test_who_builds_a_class_knows_its_arguments_better_than_a_guess(tmp_path):
    source = NET.replace("width=5", "width") + "def net_tiny(width=9):\n    model = Net(width)\n    return model\n"
    [found], problems = shown(tmp_path, source)
    assert problems == []
    assert (found.name, found.arguments, found.arguments_from) == ("Net", {"width": 9}, "usage")
    assert "built by net_tiny" in found.found
    assert found.comment.text == "mase: Net(width=9); x: f32[B=2, 9]"


def test_of_several_builders_the_one_that_the_file_tries_out_comes_first(tmp_path):
    """As `test()` at the end of many model files does, which is not called."""
    builders = "".join(f"def net{width}():\n    return Net({width})\n\n\n" for width in (6, 9, 12))
    test = "def test():\n    net = net9()\n    print(net(torch.randn(1, 9)).size())\n"
    for text, width in ((builders + test, 9), (builders, 6)):
        [found], problems = shown(tmp_path, NET.replace("width=5", "width") + text)
        assert problems == []
        assert (found.name, found.arguments) == ("Net", {"width": width})


def test_functions_that_make_the_same_kind_of_model_are_shown_once_and_sequences_each(tmp_path):
    library = tmp_path / "site-packages" / "timm"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text(HEAD + NET + "def create(width):\n    return Net(width)\n")
    source = f"""
        import sys
        sys.path.insert(0, {str(library.parent)!r})
        import timm
        def small():
            return timm.create(4)
        def large():
            return timm.create(8)
        def one():
            return nn.Sequential(nn.Linear(3, 2))
        def two():
            return nn.Sequential(nn.Linear(5, 2))
        """
    found, problems = shown(tmp_path, source)
    sys.modules.pop("timm", None)
    assert problems == []
    assert inputs(found) == {"small": "x: f32[B=2, 4]", "one": "input: f32[B=2, 3]", "two": "input: f32[B=2, 5]"}


def test_what_a_function_built_can_be_built_again_with_values(tmp_path):
    source = """
        def networks(width=4):
            return {"a": nn.Sequential(nn.Linear(width, 2)), "b": nn.Sequential(nn.Linear(2, 1))}
        """
    found, _ = shown(tmp_path, source)
    for each in found:
        args, kwargs = call_arguments(each.model, inputs_at(each.spec))
        assert each.construct()(*args, **kwargs).shape[-1] == each.model[0].out_features


# ------------------------------------------------------------------------------------------------------- variables


def test_every_model_that_a_variable_a_list_or_a_dict_holds_is_shown(tmp_path):
    source = """
        first = nn.Sequential(nn.Linear(4, 2))
        second = nn.Sequential(nn.Linear(6, 2))
        several = {"small": nn.Sequential(nn.Linear(8, 2)), "more": [nn.Sequential(nn.Linear(9, 2))]}
        """
    found, problems = shown(tmp_path, source)
    assert inputs(found) == {
        "first": "input: f32[B=2, 4]",
        "second": "input: f32[B=2, 6]",
        "several['small']": "input: f32[B=2, 8]",
        "several['more'][0]": "input: f32[B=2, 9]",
    }
    assert problems == []


def test_a_comment_may_name_a_variable(tmp_path):
    source = "first = nn.Sequential(nn.Linear(4, 2))\n# mase: nets[1]: input: f32[B=3, T=7, 6]\n"
    found, _ = shown(tmp_path, source + "nets = [first, nn.Sequential(nn.Linear(6, 2))]\n")
    assert inputs(found) == {"first": "input: f32[B=2, 4]", "nets[1]": "input: f32[B=3, T=7, 6]"}


def test_the_constructor_call_of_a_comment_beats_a_model_that_the_file_holds(tmp_path):
    [found], problems = shown(
        tmp_path, NET.replace("class Net", "# mase: Net(9); x: f32[B=2, 9]\nclass Net") + "a = Net(4)\n"
    )
    assert problems == []
    assert (found.arguments_from, format_inputs(found.spec)) == ("comment", "x: f32[B=2, 9]")
    assert found.arguments == {"width": 9}


def test_two_models_of_one_class_are_both_shown_and_two_equal_ones_once(tmp_path):
    found, _ = shown(tmp_path, NET + "a = Net(width=7)\nb = Net(width=9)\nteacher = Net(width=9)\n")
    assert [(each.name, format_inputs(each.spec)) for each in found] == [
        ("Net", "x: f32[B=2, 7]"),
        ("Net", "x: f32[B=2, 9]"),
    ]


# -------------------------------------------------------------------------------------------------------- wrappers

WRAPPED = {
    "DataParallel": "model = nn.DataParallel(Net(7))",
    "DistributedDataParallel": "torch.distributed.init_process_group('nccl')\n"
    "model = nn.parallel.DistributedDataParallel(Net(7), device_ids=[torch.distributed.get_rank()])",
    "both": "model = nn.DataParallel(torch.compile(Net(7)))",
    "sharded": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nmodel = FSDP(Net(7))",
    "fully sharded": "from torch.distributed.fsdp import fully_shard\nmodel = fully_shard(Net(7))",
    "compiled": "model = torch.compile(Net(7), mode='max-autotune')",
    "scripted": "model = torch.jit.script(Net(7))",
    "traced": "model = torch.jit.trace(Net(7), torch.ones(4, 7))",
}


@pytest.mark.parametrize("made", WRAPPED.values(), ids=WRAPPED)
def test_a_wrapped_model_that_is_called_is_the_model_inside(made, tmp_path):
    [found], problems = shown(tmp_path, f"{NET}\n{made}\nout = model(torch.ones(4, 7))\n")
    assert problems == []
    assert (found.name, found.inputs_from, format_inputs(found.spec)) == ("Net", "main", "x: f32[B=4, 7] ones")


@pytest.mark.parametrize("made", [made for name, made in WRAPPED.items() if name != "traced"])
def test_a_wrapped_model_that_is_only_kept_is_shown_too(made, tmp_path):
    [found], problems = shown(tmp_path, f"{NET}\n{made}\n")
    assert problems == []
    assert (found.name, format_inputs(found.spec)) == ("Net", "x: f32[B=2, 7]")


def test_what_wraps_a_model_still_gives_it(tmp_path):
    source = (
        f"{NET}\nmodel = nn.parallel.DistributedDataParallel(Net(7))\ninner = model.module\ninner(torch.ones(2, 7))\n"
    )
    [found], problems = shown(tmp_path, source)
    assert problems == []
    assert found.inputs_from == "main"


# --------------------------------------------------------------------------------------------------------- classes


def test_a_class_that_main_does_not_reach_is_shown_alone(tmp_path):
    other = NET.replace("Net", "Other").replace("width=5", "width=9")
    found, problems = shown(tmp_path, f"{NET}{other}\nif __name__ == '__main__':\n    Net()(torch.ones(4, 5))\n")
    assert {each.name: (each.inputs_from, format_inputs(each.spec)) for each in found} == {
        "Net": ("main", "x: f32[B=4, 5] ones"),
        "Other": ("search", "x: f32[B=2, 9]"),
    }
    assert problems == []


def test_the_parts_of_a_class_that_cannot_be_made_are_shown_alone_and_only_it_is_told(tmp_path):
    source = f"""{NET}
class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Net(4)
        raise RuntimeError("no licence")

    def forward(self, x):
        return self.part(x)
"""
    found, problems = shown(tmp_path, source)
    assert inputs(found) == {"Net": "x: f32[B=2, 4]"}
    assert [problem.code for problem in problems] == ["constructor-error"]


def test_an_alternative_that_no_instance_uses_is_shown_alone_and_silent_where_it_fails(tmp_path):
    source = f"""{NET}
class Wide(nn.Module):
    def __init__(self, width=5):
        super().__init__()
        self.fc = nn.Linear(width, 11)

    def forward(self, x):
        return self.fc(x)

class Impossible(nn.Module):
    def __init__(self, secret):
        super().__init__()
        raise ValueError(secret)

    def forward(self, x):
        return x

class Whole(nn.Module):
    def __init__(self, wide=False, impossible=False):
        super().__init__()
        self.part = Wide() if wide else Impossible(3) if impossible else Net()

    def forward(self, x):
        return self.part(x)
"""
    found, problems = shown(tmp_path, source)
    assert {each.name: each.rest for each in found} == {"Whole": False, "Wide": True}
    assert problems == []


def test_classes_inside_classes_and_under_conditions_are_found(tmp_path):
    inner = textwrap.indent(NET.replace("Net", "Inner"), "    ")
    found, problems = shown(tmp_path, f"class Holder:\n{inner}\nif torch:\n{inner.replace('Inner', 'Guarded')}")
    assert {each.name for each in found} == {"Inner", "Guarded"}
    assert problems == []


OPEN = {
    "raises": "def forward(self, x):\n        raise NotImplementedError",
    "raises with words": 'def forward(self, x):\n        """Left open."""\n        raise NotImplementedError("do it")',
    "does nothing": "def forward(self, x): ...",
    "abstract": "@abc.abstractmethod\n    def forward(self, x):\n        return x",
    "has none": "def encode(self, x):\n        return x",
}


@pytest.mark.parametrize("method", OPEN.values(), ids=OPEN)
def test_a_base_that_leaves_its_forward_to_others_is_nothing_to_tell(method, tmp_path):
    base = f"import abc\nclass Base(nn.Module, abc.ABC):\n    {method}\n"
    found, problems = shown(tmp_path, base + NET.replace("nn.Module", "Base"))
    assert [each.name for each in found] == ["Net"]
    assert problems == []


def test_a_base_whose_forward_a_shown_class_runs_is_not_shown_again(tmp_path):
    found, _ = shown(tmp_path, NET + "class More(Net):\n    def __init__(self):\n        super().__init__(8)\n")
    assert inputs(found) == {"More": "x: f32[B=2, 8]"}


def test_a_base_that_the_repository_builds_is_a_model_of_its_own(tmp_path):
    more = "class More(Net):\n    def forward(self, x, low):\n        return super().forward(torch.cat([x, low], 1))\n"
    found, _ = shown(tmp_path, NET + more)
    assert [each.name for each in found if not each.rest] == ["More"]
    (tmp_path / "build.py").write_text("from models import Net\n\n\ndef build():\n    return Net()\n")
    found, _ = shown(tmp_path, NET + more)
    assert [each.name for each in found if not each.rest] == ["Net", "More"]


def test_generic_classes_and_mixins_do_not_matter(tmp_path):
    source = "from typing import Generic, TypeVar\nT = TypeVar('T')\n"
    source += "class Mixin:\n    def double(self, x):\n        return 2 * x\n"
    net = NET.replace("nn.Module", "nn.Module, Mixin, Generic[T]").replace("self.fc(x)", "self.double(self.fc(x))")
    found, problems = shown(tmp_path, source + net)
    assert inputs(found) == {"Net": "x: f32[B=2, 5]"}
    assert problems == []


def test_a_class_of_a_librarys_name_is_not_taken_for_a_part_of_who_uses_the_librarys():
    source = "class Linear(nn.Module):\n    def forward(self, x):\n        return x\n" + NET
    namespace = {"torch": torch, "nn": nn}
    exec(source, namespace)
    tree = __import__("ast").parse(source)
    assert find_root_classes(model_classes(namespace, tree), tree) == ["Linear", "Net"]


def test_a_class_that_is_handed_over_by_name_is_a_part_and_what_needs_no_guess_comes_first(tmp_path):
    source = f"""{NET.replace("Net", "Other").replace("width=5", "width")}{NET.replace("Net", "WideBlock")}
class Whole(nn.Module):
    def __init__(self, block_fn=nn.Identity):
        super().__init__()
        self.fc, self.block = nn.Linear(6, 5), block_fn()

    def forward(self, x):
        return self.block(self.fc(x))

def wide():
    return build(Whole, dict(block_fn=WideBlock))
"""
    found, _ = shown(tmp_path, source)
    assert [(each.name, each.rest) for each in found] == [("Whole", False), ("Other", False), ("WideBlock", True)]


def test_a_model_without_inputs_is_shown(tmp_path):
    source = NET.replace("def forward(self, x):", "def forward(self):").replace("self.fc(x)", "self.fc.weight * 2")
    found, problems = shown(tmp_path, source)
    assert (inputs(found), problems) == ({"Net": ""}, [])


def test_arguments_that_a_forward_only_hands_on_are_no_mistake_of_its_own(tmp_path):
    """Captioning models choose a method by a name, and hand all their arguments on to it."""
    source = NET.replace(
        "def forward(self, x):",
        """def forward(self, *args, **kwargs):
        return getattr(self, "_" + kwargs.pop("mode", "forward"))(*args, **kwargs)

    def _forward(self, regions, tokens, lengths, mask=None, **kwargs):
        x = regions.flatten(0, -2)[tokens] * lengths[mask]""",
    )
    [found], problems = shown(tmp_path, source)
    assert (len(found.args), problems) == (3, [])


# --------------------------------------------------------------------------------------------------------- entries

CALLED = NET.replace("def forward", "def __call__")
LIGHTNING = """
class LightningModule(nn.Module):
    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs)

    def training_step(self, *args, **kwargs):
        pass
"""
STEP = """
class Lit(LightningModule):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 3)
{forward}
    def training_step(self, features, batch_idx):
        hidden = self.fc(features)
        return hidden.square().mean()
"""


def test_a_call_of_its_own_is_what_a_model_runs(tmp_path):
    [found], problems = shown(tmp_path, CALLED)
    assert problems == []
    assert format_inputs(found.spec) == "x: f32[B=2, 5]"
    args, kwargs = call_arguments(found.model, inputs_at(found.spec))
    assert found.construct()(*args, **kwargs).shape == (2, 3)


def test_a_lightning_module_without_forward_is_run_by_its_training_step(tmp_path):
    found, problems = shown(tmp_path, LIGHTNING + STEP.format(forward=""))
    assert problems == []
    assert [each.name for each in found] == ["Lit"]
    assert format_inputs(found[0].spec).startswith("features: f32[B=2, 5]")


def test_a_training_step_beside_a_forward_is_shown_too(tmp_path):
    forward = "\n    def forward(self, x):\n        return self.fc(x)\n"
    found, problems = shown(tmp_path, LIGHTNING + STEP.format(forward=forward))
    assert problems == []
    assert [(each.name, each.rest) for each in found] == [("Lit", False), ("Lit.training_step", True)]


def test_a_training_step_that_calls_the_model_itself_runs_its_forward(tmp_path):
    forward = "\n    def forward(self, x):\n        own = self.fc(x)\n        return own\n"
    source = LIGHTNING + STEP.format(forward=forward).replace("self.fc(features)", "self(features)")
    found, problems = shown(tmp_path, source)
    assert problems == []
    assert [each.name for each in found] == ["Lit", "Lit.training_step"]
    job = Job(tmp_path, source)
    assert not job.problems
    assert job.value("own") == ["f32", [2, 3], ["B", "3"]]
    assert job.value("hidden")[1][-1] == 3


def test_the_names_of_a_training_step_get_shapes(tmp_path):
    job = Job(tmp_path, LIGHTNING + STEP.format(forward=""))
    assert job.value("hidden") == ["f32", [2, 3], ["B", "3"]]


def test_which_method_runs_a_class():
    class Plain(nn.Module):
        def forward(self, x):
            return x

    class Called(nn.Module):
        def __call__(self, x):
            return x

    class Stepped(Plain):
        def training_step(self, batch):
            return batch

    assert [entry_of(kind) for kind in (Plain, Called, Stepped, nn.Module)] == ["forward", "__call__", "forward", None]
    assert [further_entry(kind) for kind in (Plain, Called, Stepped)] == [None, None, "training_step"]


# ------------------------------------------------------------------------------------------------- rows and problems


SPARE = """
def widen(x):
    doubled = torch.cat([x, x], -1)
    return doubled

class Spare(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        spare = widen(self.fc(x))
        return spare

class Net(nn.Module):
    def __init__(self, spare=False):
        super().__init__()
        self.fc = Spare() if spare else nn.Linear(7, 5)

    def forward(self, x):
        y = widen(self.fc(x))
        return y

if __name__ == "__main__":
    Net()(torch.ones(4, 7))
"""


def test_what_is_shown_only_for_want_of_better_says_nothing_where_a_root_does(tmp_path):
    job = Job(tmp_path, SPARE)
    assert job.value("doubled") == ["f32", [4, 10], ["B", "10"]]
    assert job.value("spare") == ["f32", [2, 8], ["B", "8"]]


def test_a_model_nobody_can_make_has_a_fix_that_writes_the_comment_to_fill_in(tmp_path):
    source = """
def same(kind):
    return kind

@same
class Net(nn.Module):
    def __init__(self, embed_dim, path: str):
        super().__init__()
        self.fc = nn.Linear(embed_dim, len(open(path).read()))

    def forward(self, x):
        return self.fc(x)
"""
    _, [problem] = shown(tmp_path, source)
    assert problem.code == "no-arguments"
    [fix] = problem.fixes
    [edit] = fix["edits"]
    assert re.fullmatch(r"# mase: Net\(embed_dim=\.\.\., path=\.\.\.\)\n", edit["new_text"])
    assert (HEAD + source).splitlines()[edit["line"] - 1] == "@same"


def test_a_model_nobody_can_call_has_one_too(tmp_path):
    forward = 'def forward(self, x):\n        raise ValueError("not " + str(x.shape))\n'
    source = "class Net(nn.Module):\n    def __init__(self, dim):\n        super().__init__()\n    " + forward
    _, [problem] = shown(tmp_path, source)
    assert problem.code == "no-inputs"
    [fix] = problem.fixes
    assert fix["edits"][0]["new_text"].startswith("# mase: x: ")


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("Net(dim=..., path='a')", "fill in dim in place of `...`, each with a Python value"),
        ("Net(...)", "fill in the arguments in place of `...`, each with a Python value"),
        ("x: ...", "fill in x in place of `...`, each with a type and its sizes or with a constant"),
        ("x: f32[2, 3]; y: ?", "fill in y in place of `?`, each with a type and its sizes or with a constant"),
    ],
)
def test_a_template_is_answered_with_what_to_fill_in(tmp_path, comment, expected):
    body = "    def __init__(self, dim, path: str):\n        super().__init__()\n        open(path)\n\n"
    body += "    def forward(self, x):\n        return x\n"
    _, [problem, other] = shown(tmp_path, f"# mase: {comment}\nclass Net(nn.Module):\n{body}")
    assert (problem.severity, problem.code) == ("information", "bad-comment")
    assert problem.message.startswith(f"This comment is a template: {expected}")
    assert "mase: " in other.message
    assert other.fixes == [], "the template stands there already"


# ---------------------------------------------------------------------------------------- what classes do by themselves


def test_a_model_whose_own_train_fails_is_shown_all_the_same(tmp_path):
    source = (
        NET
        + """
    def train(self, mode=True):
        super().train(mode)
        self.cached = self.fc.weight + torch.zeros(7, 7)
        return self
"""
    )
    found, problems = shown(tmp_path, source)
    assert (inputs(found), problems) == ({"Net": "x: f32[B=2, 5]"}, [])
    assert not found[0].training


def test_a_default_that_is_empty_says_that_something_has_to_be_given(tmp_path):
    source = """
    class Heads(nn.Module):
        def __init__(self, classes=80, widths=(), rule=None):
            super().__init__()
            self.out = nn.Linear(widths[0], rule.count(classes))

        def forward(self, x):
            return self.out(x)
    """
    _, problems = shown(tmp_path, source)
    assert [problem.severity for problem in problems if problem.severity == "error"] == []
