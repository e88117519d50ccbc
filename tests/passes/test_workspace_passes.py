"""Passes that a workspace's files define, in projects written out here."""

import sys
import textwrap

import pytest
import torch
from torch import nn

from mase_server import MaseGraph
from mase_server.passes import workspace
from mase_server.passes.registry import PassFailedError, apply_declared_pass, built_in, passes_for
from mase_server.passes.workspace import workspace_passes
from mase_server.protocol.arguments import Argument, ArgumentError

TUTORIAL = """
from torch import nn

def count_dropout_analysis_pass(mg, pass_args={}):
    '''Count the dropouts.

    Nothing more.
    '''
    found = [node for node in mg.fx_graph.nodes if node.op == "call_module"
             and isinstance(mg.modules[node.target], nn.Dropout)]
    return mg, {"dropout_count": len(found)}

def drop_dropout_transform_pass(mg, pass_args={}):
    for node in mg.fx_graph.nodes:
        if node.op == "call_module" and isinstance(mg.modules[node.target], nn.Dropout):
            node.replace_all_uses_with(node.args[0])
            mg.fx_graph.erase_node(node)
    return mg, {}
"""


@pytest.fixture(autouse=True)
def modules_kept(monkeypatch):
    """What a pass imports does not stay."""
    before, path = dict(sys.modules), list(sys.path)
    yield
    assert sys.path == path
    for name in sys.modules.keys() - before.keys():
        del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture
def project(tmp_path):
    """A function that writes files, and gives the passes found for `model.py`."""

    def write(**sources):
        for name, source in sources.items():
            file = tmp_path / f"{name}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(source))
        return workspace_passes(str(tmp_path), str(tmp_path / "model.py"), built_in())

    return write


@pytest.fixture
def graph():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.ReLU(), nn.Dropout()).eval()
    return MaseGraph(model, {"input": torch.randn(2, 4)})


def only(found):
    [one] = found.values()
    return one


def test_the_tutorials_passes_are_found_and_run(project, graph):
    found = project(mine=TUTORIAL)
    assert [(each.name, each.title, each.kind) for each in found.values()] == [
        ("count_dropout", "Count dropout", "analysis"),
        ("drop_dropout", "Drop dropout", "transform"),
    ]
    assert found["count_dropout"].help == "Count the dropouts."
    assert apply_declared_pass(graph, found["count_dropout"], {})[1] == {"dropout_count": 2}
    apply_declared_pass(graph, found["drop_dropout"], {})
    assert apply_declared_pass(graph, found["count_dropout"], {})[1] == {"dropout_count": 0}


def test_finding_a_pass_runs_nothing(project, tmp_path):
    ran = tmp_path / "ran"
    found = project(mine=f"open({str(ran)!r}, 'w').close()\n{TUTORIAL}")
    assert set(found) == {"count_dropout", "drop_dropout"}
    assert only({"a": found["count_dropout"]}).to_wire()["source"] == str(tmp_path / "mine.py")
    assert not ran.exists()


@pytest.mark.parametrize(
    "source",
    [
        "def _hidden_transform_pass(mg, pass_args={}): pass",
        "def transform_pass(mg, pass_args={}): pass",
        "def no_graph_transform_pass(): pass",
        "def too_many_transform_pass(mg, pass_args, more): pass",
        "def keyword_transform_pass(mg, *, more): pass",
        "class A:\n    def method_transform_pass(self, mg): pass",
        "async def waiting_transform_pass(mg, pass_args={}): pass",
        "x_transform_pass = 3",
        "def a_transform_pass(mg, pass_args={}: pass",
        "\0def a_transform_pass(mg): pass",
        "# -*- coding: nothing -*-\ndef a_transform_pass(mg): pass",
        "def a_transform_pass(mg): " + "(" * 2000,
    ],
)
def test_what_is_no_pass_is_passed_over(project, source):
    assert project(mine=source) == {}


def test_tests_installed_packages_and_hidden_folders_are_passed_over(project):
    names = ("test_mine", "site-packages/mine", ".hidden/mine", "build/mine")
    assert project(**dict.fromkeys(names, TUTORIAL)) == {}


def test_a_search_is_bounded(project, monkeypatch):
    monkeypatch.setattr(workspace, "MAX_FILES", 3)
    assert project(**{f"a{number}": "" for number in range(4)}, z=TUTORIAL) == {}
    assert len(project(model=TUTORIAL)) == 2
    monkeypatch.setattr(workspace, "MAX_SECONDS", -1)
    assert {each.source.rpartition("/")[2] for each in project(model=TUTORIAL).values()} == {"model.py"}
    monkeypatch.setattr(workspace, "MAX_BYTES", 10)
    assert project(model=TUTORIAL) == {}


def test_the_models_own_file_comes_first_and_namesakes_bear_their_files_name(project):
    one = "def mine_transform_pass(mg, pass_args={}): return mg, {}"
    lora = "def insert_lora_adapter_transform_pass(mg): return mg, {}"
    found = project(**{"a": one, "model": one, "deep/b": one, "lora": lora})
    assert {name: each.source.rpartition("/")[2] for name, each in found.items()} == {
        "mine": "model.py", "a_mine": "a.py", "b_mine": "b.py",
        "lora_insert_lora_adapter": "lora.py",
    }  # fmt: skip


def test_the_passes_of_this_package_are_not_the_workspaces(tmp_path):
    package = workspace._OWN.rstrip("/")
    assert workspace_passes(package, f"{package}/passes/bits.py", {}) == {}


def test_a_file_has_the_built_in_passes_and_its_own(project, tmp_path):
    project(mine=TUTORIAL)
    assert set(passes_for(str(tmp_path), str(tmp_path / "model.py"))) == {*built_in(), "count_dropout", "drop_dropout"}


# Arguments


def declared(project, code, extra=""):
    return only(project(mine=f"{extra}\n{code}"))


def test_arguments_are_read_from_the_default_map(project):
    found = declared(
        project,
        """def a_transform_pass(mg, pass_args={"n": 3, "share": 0.5, "on": True, "way": "all", "format": "fixed(8,4)",
            "layers": ["a"], "map": {"x": 1}, "nothing": None}): return mg, {}""",
    )
    kinds = {each.name: (each.kind, each.default) for each in found.arguments}
    assert kinds == {
        "n": ("integer", 3), "share": ("number", 0.5), "on": ("boolean", True), "way": ("text", "all"),
        "format": ("format", "fixed(8,4)"), "layers": ("texts", ["a"]), "map": ("map", {"x": 1}),
        "nothing": ("value", None),
    }  # fmt: skip
    assert found.others is None
    assert found.checked({"n": "4", "nothing": "[1, 2]"})["nothing"] == [1, 2]
    with pytest.raises(ArgumentError, match="a: n is 'four', expected a whole number"):
        found.checked({"n": "four"})


def test_arguments_are_read_from_a_named_default_and_from_what_the_body_asks(project):
    found = declared(
        project,
        '''def a_transform_pass(mg, args=DEFAULTS):
    """Do it.

    Args:
        n (int): how many. And more.
        way: by what
    :param share: of zeros
    """
    n, share = args["n"], args.get("share", 0.5)
    if "way" in args:
        print(args["way"])
    return mg, {"x": args["must"]}''',
        extra="DEFAULTS = {'n': 3}",
    )
    assert [(each.name, each.kind, each.default, each.required, each.help) for each in found.arguments] == [
        ("share", "number", 0.5, False, "of zeros"),
        ("way", "value", None, False, "by what"),
        ("n", "integer", 3, False, "how many"),
        ("must", "value", None, True, "see a_transform_pass"),
    ]
    with pytest.raises(ArgumentError, match="a needs must"):
        found.checked({})


def test_a_pass_that_gives_its_map_on_takes_any_key(project):
    found = declared(project, "def a_transform_pass(mg, pass_args=None): return helper(mg, **pass_args)")
    assert found.checked({"x": "3"}) == {"x": 3}
    closed = declared(project, "def a_transform_pass(mg, pass_args={}): return mg, {}")
    with pytest.raises(ArgumentError, match=r"a has no argument 'x'; it takes none"):
        closed.checked({"x": 1})


def test_a_pass_gets_what_was_given_and_its_defaults(project, graph):
    found = declared(project, "def a_analysis_pass(mg, pass_args={'n': 3, 'm': 4}): return mg, dict(pass_args)")
    assert apply_declared_pass(graph, found, {"n": "5"})[1] == {"n": 5, "m": 4}


def test_a_pass_may_take_the_graph_alone(project, graph):
    assert apply_declared_pass(graph, declared(project, "def a_analysis_pass(mg): return mg, {'n': 1}"), {})[1] == {
        "n": 1
    }


@pytest.mark.parametrize(
    ("body", "reads"),
    [
        ("len(mg.nodes)", False),
        ("mg.modules['a'].weight.abs()", True),
        ("helper(mg)", True),
        ("other(mg)", False),
        ("getattr(mg, 'x')", True),
        ("mg.model(x)", True),
    ],
)
def test_weights_are_needed_where_values_are_read(project, body, reads):
    extra = "def helper(mg): return list(mg.root.parameters())\ndef other(mg): return other(mg)"
    found = declared(project, f"def a_analysis_pass(mg, pass_args={{}}): return mg, {{'x': {body}}}", extra)
    assert found.needs == ({"metadata", "weights"} if reads else {"metadata"})


def test_metadata_is_there_before_the_pass(project):
    code = "def a_analysis_pass(mg): return mg, {n.name: n.meta['mase']['common']['mase_op'] for n in mg.nodes}"
    graph = MaseGraph(nn.Sequential(nn.ReLU()), {"input": torch.randn(2)}, skip_init_metadata=True)
    assert apply_declared_pass(graph, declared(project, code), {})[1]["_0"] == "relu"


# Where they are imported from


def test_a_pass_meets_the_models_own_classes(project, tmp_path):
    """Importing the file again would make other classes of the same names."""
    project(
        model="""
        from torch import nn
        class Layer(nn.Module):
            def forward(self, x): return x.relu()
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = Layer()
            def forward(self, x): return self.layer(x)
        def own_analysis_pass(mg, pass_args={}):
            return mg, {"found": sum(isinstance(each, Layer) for each in mg.root.modules())}
        """,
        mine="""
        from model import Layer
        def other_analysis_pass(mg, pass_args={}):
            return mg, {"found": sum(isinstance(each, Layer) for each in mg.root.modules())}
        """,
    )
    names = {"__name__": "__main__", "__file__": str(tmp_path / "model.py")}
    exec(compile((tmp_path / "model.py").read_text(), names["__file__"], "exec"), names)
    graph = MaseGraph(names["Net"](), {"x": torch.randn(2)})
    found = passes_for(str(tmp_path), names["__file__"])
    assert apply_declared_pass(graph, found["own"], {})[1] == {"found": 1}
    assert apply_declared_pass(graph, found["other"], {})[1] == {"found": 1}


def test_a_pass_in_a_package_may_import_its_neighbours(project, graph):
    code = "from .helper import N\nfrom pack.helper import N as M\ndef a_analysis_pass(mg): return mg, {'n': N + M}"
    found = project(**{"pack/__init__": "", "pack/helper": "N = 3", "pack/mine": code})
    assert apply_declared_pass(graph, found["a"], {})[1] == {"n": 6}


def test_a_pass_beside_others_may_import_them(project, graph):
    code = "import helper\ndef a_analysis_pass(mg): return mg, {'n': helper.N}"
    found = project(**{"deep/helper": "N = 3", "deep/mine": code})
    assert apply_declared_pass(graph, found["a"], {})[1] == {"n": 3}


def test_a_file_with_the_name_of_a_library_is_itself(project, graph):
    found = project(json="def a_analysis_pass(mg):\n    import json\n    return mg, {'n': json.dumps([1])}")
    assert apply_declared_pass(graph, found["a"], {})[1] == {"n": "[1]"}


# What goes wrong


ARGS = "def a_transform_pass(mg, pass_args={}):\n"
PLAIN = "def a_transform_pass(mg):\n"


@pytest.mark.parametrize(
    ("source", "line", "text"),
    [
        (f"{ARGS}    x = 1\n    return mg, {{'x': x / 0}}", 3, "ZeroDivisionError: division by zero"),
        (f"{ARGS}    raise SystemExit(3)", 2, "SystemExit: 3"),
        (f"{ARGS}    mg.fx_graph.erase_node(mg.nodes[0])", 2, "RuntimeError: Tried to erase"),
        (f"import nothing_of_this_name\n{ARGS}    return mg, {{}}", 1, "ModuleNotFoundError: No module named"),
        (f"x = 1\n{ARGS}    pass", 2, "a_transform_pass gives None; a pass gives its graph and a dict"),
        (f"{PLAIN}    return mg", 1, "a_transform_pass gives MaseGraph; a pass gives"),
        (f"{PLAIN}    return mg, 3", 1, "a_transform_pass gives (MaseGraph, int); a pass gives"),
        (f"{PLAIN}    return {{}}, mg", 1, "a_transform_pass gives (dict, MaseGraph); a pass gives"),
        (f"{PLAIN}    def f(): f()\n    f()", 2, "RecursionError: maximum recursion depth"),
        (f"{PLAIN}    raise ValueError", 2, "ValueError"),
        (f"{PLAIN}    raise ValueError('x' * 9999)", 2, "ValueError: xxx"),
        (
            f"{PLAIN}    mg.nodes[1].args = (3,)\n    return mg, {{}}",
            1,
            "after a_transform_pass the graph does not run",
        ),
    ],
)
def test_what_goes_wrong_is_told_at_the_persons_line(project, graph, tmp_path, source, line, text):
    found = only(project(mine=source))
    with pytest.raises(PassFailedError) as error:
        apply_declared_pass(graph, found, {})
    assert (error.value.file, error.value.line) == (str(tmp_path / "mine.py"), line)
    assert str(error.value).startswith(f"{tmp_path}/mine.py:{line}: {text}")
    assert len(str(error.value)) < 500


def test_a_pass_that_leaves_nothing_to_run_is_told(project, graph):
    code = """
    def a_transform_pass(mg):
        mg.nodes[1].target = "not_there"
        return mg, {}
    """
    with pytest.raises(PassFailedError, match=r"after a_transform_pass the graph does not run: .*not_there"):
        apply_declared_pass(graph, only(project(mine=code)), {})


def test_a_built_in_pass_raises_its_own_errors(graph):
    with pytest.raises(ArgumentError, match="insert_lora_adapter: rank is 0"):
        apply_declared_pass(graph, built_in()["insert_lora_adapter"], {"rank": 0})
    with pytest.raises(ValueError, match="only names 'fc1'"):
        apply_declared_pass(graph, built_in()["insert_lora_adapter"], {"only": ["fc1"]})


def test_arguments_speak_of_what_they_mean(project):
    found = declared(project, "def a_transform_pass(mg, pass_args={'n': 3}): return mg, {}")
    assert found.arguments == (Argument("n", "integer", "see a_transform_pass", default=3),)
