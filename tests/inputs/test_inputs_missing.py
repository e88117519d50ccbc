"""Files that import what is not installed: what does without it is shown, and nothing is made up for the rest."""

import importlib.util
import re
import sys
import textwrap
from pathlib import Path

import pytest

from mase_server.protocol.request import TraceRequest
from mase_server.protocol.snapshot import KINDS
from mase_server.tracing.importing.missing import MissingImports
from mase_server.tracing.importing.placeholders import MissingPackageError, stands_in
from mase_server.worker.job import trace

HEAD = "import torch\nfrom torch import nn\n"
BODY = """
class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layer = nn.Linear(width, 5)

    def forward(self, x):
        h = self.layer(x)
        return h
"""


def traced(root: Path, files: dict[str, str], name: str = "net.py") -> dict:
    """The last payload of a real trace of one of these files."""
    for each, text in files.items():
        path = root / "workspace" / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    (root / "scratch").mkdir(exist_ok=True)
    before = set(sys.modules)
    path, sent = root / "workspace" / name, []
    try:
        trace(TraceRequest(str(path), str(root / "workspace"), "", 1, scratch=str(root / "scratch")), sent.append)
    finally:
        for each in set(sys.modules) - before:
            if str(getattr(sys.modules[each], "__file__", "")).startswith(str(root)):
                del sys.modules[each]
    return next(message["payload"] for message in reversed(sent) if "payload" in message)


def bound(payload: dict) -> dict[str, list[int]]:
    """name -> the shape that it was bound to, in the file itself."""
    sites, rows = payload["sites"], payload["rows"]
    found = {}
    for site, value in zip(rows["site"], rows["value"], strict=True):
        if KINDS[sites["kind"][site]] == "binding" and sites["file"][site] == 0:
            value = payload["values"][value]
            found[sites["name"][site]] = value[1] if isinstance(value, list) else value
    return found


def told(payload: dict) -> list[tuple[str, str, int]]:
    return [(each["severity"], each["code"], each["line"]) for each in payload["problems"]]


IMPORTS = {
    "a module": "import absent_one\n",
    "a submodule": "import absent_one.inner.most as deep\nassert deep.thing\n",
    "a name": "from absent_one.inner import thing, other as more\n",
    "all names": "from absent_one import *\n",
    "a submodule of an installed package": "from torch._absent import inf\n",
    "a submodule of an installed package, by itself": "import torch._absent\nassert torch.nn is nn\n",
    "a decorator": "from absent_one import jit\n\n@jit\ndef double(x):\n    return 2 * x\nassert double(2) == 4\n",
    "a decorator with arguments": (
        "import absent_one\n\n@absent_one.jit(nopython=True)\ndef double(x):\n    return 2 * x\nassert double(2) == 4\n"
    ),
    "an annotation": (
        "from absent_one import Array, Config\nfrom typing import Optional, Union\n\n"
        "def f(x: Array | None, y: Optional[Config], z: Union[Array, Config, int], w: Array['b c']) -> 'Array':\n"
        "    return x\n"
    ),
    "a check of types": (
        "from absent_one import Array\nassert not isinstance(3, Array)\nassert not isinstance(3, (Array, str))\n"
        "assert isinstance(None, Array | None)\nassert not issubclass(int, Array)\n"
    ),
    "a base class": "from absent_one import Data\n\nclass Images(Data, root='.'):\n    pass\n",
    "a mixin": (
        "from absent_one import Hub\n\nclass Base(nn.Module, Hub, url='x'):\n    pass\n\nassert Base().training\n"
    ),
    "a logger": "import absent_one\nlog = absent_one.get_logger(__name__)\nlog.info('ready')\nabsent_one.rc['x'] = 1\n",
    "a context": "import absent_one\nwith absent_one.quiet() as q:\n    q.set(3)\n",
    "a parser, at the end": BODY + "import absent_one\nif __name__ == '__main__':\n    absent_one.cli(Net)\n",
}


@pytest.mark.parametrize("text", IMPORTS.values(), ids=IMPORTS)
def test_what_does_without_a_missing_package_is_shown_with_a_warning_at_the_import(tmp_path, text):
    payload = traced(tmp_path, {"net.py": HEAD + text + BODY})
    assert bound(payload)["h"] == [2, 5]
    source = (HEAD + text + BODY).splitlines()
    (problem,) = payload["problems"]
    assert (problem["severity"], problem["code"]) == ("warning", "missing-package")
    assert "import" in source[problem["line"] - 1]
    assert "absent" in source[problem["line"] - 1]


PREPARED = {
    "ImportError": "try:\n    import absent_one\nexcept ImportError:\n    absent_one = None\n",
    "one of several": "try:\n    import absent_one\nexcept (ValueError, ModuleNotFoundError):\n    absent_one = None\n",
    "everything": "try:\n    import absent_one\nexcept:\n    absent_one = None\n",
    "any exception": "try:\n    from absent_one import x\nexcept Exception as error:\n    absent_one = None\n",
    "suppress": "import contextlib\nabsent_one = None\nwith contextlib.suppress(ImportError):\n    import absent_one\n",
    "in a function": (
        "def available():\n    import absent_one\n    return True\n\n"
        "try:\n    absent_one = available()\nexcept ImportError:\n    absent_one = None\n"
    ),
    "find_spec": "import importlib.util\nabsent_one = importlib.util.find_spec('absent_one')\n",
}


@pytest.mark.parametrize("text", PREPARED.values(), ids=PREPARED)
def test_who_is_prepared_for_a_missing_package_learns_that_it_is(tmp_path, text):
    payload = traced(tmp_path, {"net.py": HEAD + text + "assert absent_one is None\n" + BODY})
    assert (bound(payload)["h"], payload["problems"]) == ([2, 5], [])


def test_a_module_that_is_imported_by_a_prepared_one_fails_as_ever(tmp_path):
    text = HEAD + "try:\n    import fast\nexcept ImportError:\n    fast = None\nassert fast is None\n" + BODY
    for fast in ("import absent_one\n", NEEDY):
        payload = traced(tmp_path, {"net.py": text, "fast.py": fast})
        assert (bound(payload)["h"], payload["problems"]) == ([2, 5], [])


def test_code_in_a_handler_is_not_guarded_by_it(tmp_path):
    text = HEAD + "try:\n    import absent_one\nexcept ImportError:\n    import absent_two\n" + BODY
    payload = traced(tmp_path, {"net.py": text})
    assert told(payload) == [("warning", "missing-package", 6)]
    assert bound(payload)["h"] == [2, 5]


USES = {
    "called in forward": ("import absent_one", "h = absent_one.fused(self.layer(x))"),
    "a layer called in forward": ("import absent_one", "h = self.extra(x)"),
    "an operand": ("from absent_one import SCALE", "h = self.layer(x) * SCALE"),
    "an argument of torch's": ("import absent_one", "h = torch.cat([x, absent_one.more])"),
    "a size": ("import absent_one", "h = x.new_zeros(absent_one.size)"),
    "a condition": ("import absent_one", "h = x if absent_one.FLAG else self.layer(x)"),
    "a context": ("import absent_one", "with absent_one.fast():\n            h = x"),
    "imported in forward": ("", "from absent_one import fused; h = fused(x)"),
}


@pytest.mark.parametrize("use", USES)
def test_what_a_forward_uses_of_a_missing_package_is_an_error_where_it_is_used(tmp_path, use):
    imported, line = USES[use]
    body = BODY.replace("        h = self.layer(x)\n", f"        g = self.layer(x)\n        {line}\n")
    body = body.replace("nn.Linear(width, 5)\n", "nn.Linear(width, 5)\n        self.extra = absent_one.Extra(width)\n")
    if "extra" not in line:
        body = body.replace("        self.extra = absent_one.Extra(width)\n", "")
    text = f"{HEAD}{imported}\n{body}"
    payload = traced(tmp_path, {"net.py": text})
    (error,) = [each for each in payload["problems"] if each["severity"] == "error"]
    assert (error["code"], text.splitlines()[error["line"] - 1].strip()) == ("missing-package", line.partition("\n")[0])
    assert "absent_one cannot be imported" in error["message"]
    assert bound(payload)["g"] == [2, 5], "what comes before it is shown"
    assert bound(payload).get("h") is None, "nothing is made up"


CONSTRUCTORS = {
    "a width": "self.layer = nn.Linear(absent_one.width(), 5)",
    "a computed width": "self.layer = nn.Linear(absent_one.width() * 2, 5)",
    "a constant": "self.layer = nn.Linear(absent_one.WIDTH, 5)",
    "a layer in a container": "self.layer = nn.Sequential(absent_one.Layer(4), nn.Linear(4, 5))",
    "a parameter": "self.layer = nn.Parameter(torch.zeros(3, absent_one.WIDTH))",
    "a decision": "self.layer = nn.Linear(4 if absent_one.is_on() else 3, 5)",
    "a comparison": "self.layer = nn.Linear(4 if absent_one.mode() == 'x' else 3, 5)",
    "a loop": "self.layer = nn.ModuleList(nn.Linear(n, n) for n in absent_one.sizes)",
    "a check of types": "self.layer = nn.Linear(4 if isinstance(absent_one.pair(4), tuple) else 3, 5)",
}


@pytest.mark.parametrize("line", CONSTRUCTORS.values(), ids=CONSTRUCTORS)
def test_a_constructor_that_wants_to_know_something_of_a_missing_package_is_not_shown(tmp_path, line):
    text = f"{HEAD}import absent_one\n{BODY.replace('self.layer = nn.Linear(width, 5)', line)}"
    payload = traced(tmp_path, {"net.py": text})
    assert told(payload) == [("warning", "missing-package", 3)]
    assert [(each["name"], each["line"]) for each in payload["unshown"]] == [("Net", 5)]
    assert "It needs absent_one, which cannot be imported" in payload["unshown"][0]["why"]
    assert payload["models"] == []


def test_a_size_that_the_module_itself_takes_from_a_missing_package_is_an_error(tmp_path):
    body = BODY.replace("width=4", "width=WIDTH")
    payload = traced(tmp_path, {"net.py": f"{HEAD}import absent_one\nWIDTH = int(absent_one.width)\n{body}"})
    assert told(payload) == [("error", "missing-package", 3)], "once, at the import"
    (problem,) = payload["problems"]
    assert "absent_one.width is needed at line 4." in problem["message"]
    assert [each["line"] for each in problem["related"]] == [4]
    assert problem["related"][0]["message"] == "absent_one.width is needed here"
    assert payload["models"] == []


def test_what_the_file_s_own_run_needs_of_a_missing_package_is_told_at_its_import_beside_the_shown_model(tmp_path):
    text = f"{HEAD}import absent_one\nfor batch in absent_one.loader(3):\n    pass\n{BODY}\nn = int(absent_one.width)\n"
    payload = traced(tmp_path, {"net.py": text})
    assert told(payload) == [("warning", "missing-package", 3)]
    assert bound(payload)["h"] == [2, 5]


def test_a_neighbour_that_needs_a_missing_package_is_told_once_and_the_file_is_shown(tmp_path):
    files = {
        "net.py": HEAD + "import absent_one\nimport helpers\n" + BODY,
        "helpers.py": "import absent_one\nWIDTH = 2 * int(absent_one.__version__)\n",
    }
    payload = traced(tmp_path, files)
    (problem,) = payload["problems"]
    assert (problem["code"], problem["line"]) == ("missing-package", 3)
    places = [(Path(each["file"]).name, each["line"]) for each in problem["related"]]
    assert places == [("helpers.py", 1)]
    assert bound(payload)["h"] == [2, 5]


def test_a_run_that_needs_a_missing_package_is_no_error(tmp_path):
    main = (
        "if __name__ == '__main__':\n    config = absent_one.load('x.yaml')\n    Net(config.width)(torch.randn(3, 4))\n"
    )
    payload = traced(tmp_path, {"net.py": f"{HEAD}import absent_one\n{BODY}{main}"})
    assert (bound(payload)["h"], told(payload)) == ([2, 5], [("warning", "missing-package", 3)])


def test_a_neighbour_s_missing_package_is_told_at_the_import_that_leads_to_it(tmp_path):
    files = {"net.py": HEAD + "from helpers import double\n" + BODY, "helpers.py": "\nimport absent_one\ndouble = 2\n"}
    payload = traced(tmp_path, files)
    assert bound(payload)["h"] == [2, 5]
    places = [(Path(each["file"]).name, each["line"], each["severity"]) for each in payload["problems"]]
    assert places == [("net.py", 3, "warning")]
    (mine,) = payload["problems"]
    assert [(Path(each["file"]).name, each["line"]) for each in mine["related"]] == [("helpers.py", 2)]


NEEDY = "import absent_one\nMODERN = float(absent_one.__version__[:3]) > 0.7\ndouble = 2\n"


@pytest.mark.parametrize("needy", ["helpers.py", "kit/__init__.py"], ids=["a neighbour", "its package"])
def test_what_follows_a_statement_that_needs_a_missing_package_in_another_file_is_there(tmp_path, needy):
    folder = "kit/" if needy.startswith("kit") else ""
    files = {needy: NEEDY, f"{folder}net.py": HEAD + ("" if folder else "from helpers import double\n") + BODY}
    payload = traced(tmp_path, files, f"{folder}net.py")
    assert bound(payload)["h"] == [2, 5]
    assert [code for _, code, _ in told(payload)] == ["missing-package"]


def test_a_size_that_a_neighbour_takes_from_a_missing_package_stays_unknown(tmp_path):
    helpers = "import absent_one\nWIDTH = int(absent_one.width)\n"
    text = HEAD + "from helpers import WIDTH\n" + BODY.replace("width=4", "width=WIDTH")
    payload = traced(tmp_path, {"net.py": text, "helpers.py": helpers})
    assert payload["models"] == []
    assert [one["name"] for one in payload["unshown"]] == ["Net"]


def test_a_package_that_many_neighbours_want_is_told_once(tmp_path):
    files = {f"part_{name}.py": f"import absent_one.{name}\n" for name in "abc"}
    text = HEAD + "import part_a, part_b\nimport part_c\n" + BODY
    payload = traced(tmp_path, {"net.py": text, **files})
    places = [(Path(each["file"]).name, each["line"]) for each in payload["problems"]]
    assert places == [("net.py", 3)]
    related = [Path(each["file"]).name for each in payload["problems"][0]["related"]]
    assert related == ["part_a.py", "part_b.py", "part_c.py"]


def test_a_package_that_is_installed_and_broken_is_stood_in_for_too(tmp_path):
    site = tmp_path / "workspace" / ".venv" / "site-packages"
    (site / "broken_one").mkdir(parents=True)
    (site / "broken_one" / "__init__.py").write_text("raise OSError('libGL.so.1: cannot open shared object file')\n")
    text = f"import sys\nsys.path.append({str(site)!r})\nimport broken_one\n{HEAD}{BODY}"
    payload = traced(tmp_path, {"net.py": text})
    assert (bound(payload)["h"], told(payload)) == ([2, 5], [("warning", "missing-package", 3)])
    assert "libGL.so.1" in payload["problems"][0]["message"]


def test_an_error_in_a_neighbour_is_not_stood_in_for(tmp_path):
    files = {"net.py": HEAD + "import helpers\n" + BODY, "helpers.py": "1 / 0\n"}
    payload = traced(tmp_path, files)
    assert [each["code"] for each in payload["problems"]] == ["import-error"]
    assert bound(payload)["h"] == [2, 5], "what does without it is shown"


#: A package that refuses to be imported -> its `__init__.py`.
REFUSING = {
    "an error of its own": "import absent_one\nif getattr(absent_one, '__version__', None) is None:\n"
    "    raise ImportError('kit_b needs a newer absent_one')\n",
    "a file that is not here": "names = open('/nowhere/labels.txt').read()\n",
}


@pytest.mark.parametrize("text", REFUSING.values(), ids=REFUSING)
def test_a_package_that_cannot_be_imported_does_not_hide_a_file_that_needs_nothing_of_it(tmp_path, text):
    files = {"kit_b/__init__.py": text + "\ndouble = 2\n", "kit_b/net.py": HEAD + "from . import double\n" + BODY}
    payload = traced(tmp_path, files, "kit_b/net.py")
    assert bound(payload)["h"] == [2, 5]
    assert payload["problems"], "why the package cannot be imported is told"


def test_what_fails_in_a_package_of_which_a_file_imports_nothing_is_no_error_of_the_file(tmp_path):
    files = {"kit_c/__init__.py": REFUSING["a file that is not here"], "kit_c/net.py": HEAD + BODY}
    payload = traced(tmp_path, files, "kit_c/net.py")
    assert bound(payload)["h"] == [2, 5]
    assert [(severity, code) for severity, code, _ in told(payload)] == [("information", "missing-resource")]


def test_an_error_of_a_neighbour_is_told_at_the_import_although_what_follows_it_is_used(tmp_path):
    helpers = "import os\n\nLABELS = [].pop()\nWIDTH = 6\n"
    text = HEAD + "from helpers import WIDTH\n" + BODY.replace("width=4", "width=WIDTH")
    payload = traced(tmp_path, {"net.py": text, "helpers.py": helpers})
    assert bound(payload)["h"] == [2, 5]
    assert told(payload) == [("error", "import-error", 3)]
    (problem,) = payload["problems"]
    assert [(Path(each["file"]).name, each["line"]) for each in problem["related"]] == [("helpers.py", 3)]


def test_a_name_that_a_neighbour_could_not_bind_is_told_with_the_neighbour_s_line(tmp_path):
    text = HEAD + "from helpers import WIDTH\n" + BODY.replace("width=4", "width=WIDTH")
    payload = traced(tmp_path, {"net.py": text, "helpers.py": "\nWIDTH = len(open('/nowhere/labels.txt').read())\n"})
    assert payload["models"] == []
    (unshown,) = payload["unshown"]
    said = " ".join([unshown["why"], *(each["message"] for each in payload["problems"])])
    assert "line 2 of helpers.py raised FileNotFoundError" in said


def test_a_handler_that_only_raises_again_does_not_expect_a_missing_package(tmp_path):
    text = "try:\n    import absent_one\n    import torch\n    from torch import nn\n"
    text += "except ImportError as error:\n    print(error)\n    raise ImportError\n"
    payload = traced(tmp_path, {"net.py": text + BODY})
    assert (bound(payload)["h"], told(payload)) == ([2, 5], [("warning", "missing-package", 2)])


@pytest.mark.parametrize("place", ["class", "method"])
def test_a_decorator_that_fails_is_an_error_and_what_it_decorates_is_shown_without_it(tmp_path, place):
    decorated = {
        "class": BODY.replace("class Net", "@doc(\n    tokenizer='x',\n)\nclass Net"),
        "method": BODY.replace("    def forward", "    @doc(tokenizer='x')\n    def forward"),
    }
    text = HEAD + "def doc(*, checkpoint):\n    return lambda function: function\n" + decorated[place]
    payload = traced(tmp_path, {"net.py": text})
    assert bound(payload)["h"] == [2, 5]
    (problem,) = payload["problems"]
    assert problem["severity"] == "error"
    assert "is shown without this decorator" in problem["message"]


@pytest.mark.parametrize("star", ["", "*, "])
def test_a_class_is_shown_although_the_default_of_a_parameter_needs_a_file(tmp_path, star):
    text = HEAD + "def read(path):\n    return len(open(path).read())\n"
    text += "class Net(nn.Module):\n"
    text += f"    def __init__(self, {star}inner=read('/nowhere/sizes.txt'), width=4):\n"
    text += "        super().__init__()\n"
    text += "        self.layers = nn.Sequential(nn.Linear(width, inner), nn.Linear(inner, 5))\n"
    text += "    def forward(self, x):\n        h = self.layers(x)\n        return h\n"
    payload = traced(tmp_path, {"net.py": text})
    assert bound(payload)["h"] == [2, 5]
    assert [(each["code"], each["line"]) for each in payload["problems"]] == [("missing-resource", 4)]


def test_a_package_that_a_file_would_install_is_missing(tmp_path):
    text = "import os\ntry:\n    import absent_one\nexcept ImportError:\n"
    text += "    os.system('pip install absent_one')\n    import absent_one\n"
    text += "from absent_one.checks import plot\n"
    payload = traced(tmp_path, {"net.py": text + HEAD + BODY})
    assert bound(payload)["h"] == [2, 5]
    assert {each["code"] for each in payload["problems"]} == {"missing-package"}


def test_a_module_that_is_not_in_its_package_is_an_error_and_the_rest_is_shown(tmp_path):
    files = {"kit_a/__init__.py": "", "kit_a/net.py": HEAD + "from .blocs import Block\n" + BODY}
    payload = traced(tmp_path, files, "kit_a/net.py")
    assert (bound(payload)["h"], told(payload)) == ([2, 5], [("error", "import-error", 3)])


@pytest.mark.parametrize("name", ["_C", "deform_conv_cuda", "messages_pb2", "_version"])
def test_a_module_that_only_an_installation_builds_is_a_warning(tmp_path, name):
    files = {"kit_b/__init__.py": "", "kit_b/net.py": f"{HEAD}from .{name} import thing\n{BODY}"}
    payload = traced(tmp_path, files, "kit_b/net.py")
    assert (bound(payload)["h"], told(payload)) == ([2, 5], [("warning", "missing-package", 3)])


@pytest.mark.parametrize(
    ("taken", "called"),
    [("from torch.utils.cpp_extension import load", "load"), ("from torch.utils import cpp_extension as c", "c.load")],
)
def test_an_extension_that_a_neighbour_would_build_is_unknown_where_it_is_needed(tmp_path, taken, called):
    ops = f"{taken}\nops = {called}(name='ops', sources=['ops.cpp'])\ndouble = ops.double\n"
    model = (
        "class Big(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layer = nn.Linear(4, 5)\n\n    def forward(self, x):\n        return double(self.layer(x))\n"
    )
    net = f"{HEAD}from .ops import double\n{BODY}{model}"
    payload = traced(tmp_path, {"kit_x/__init__.py": "", "kit_x/ops.py": ops, "kit_x/net.py": net}, "kit_x/net.py")
    assert bound(payload)["h"] == [2, 5]
    assert told(payload) == [("warning", "missing-package", 3), ("error", "missing-package", 19)]
    assert [p["message"] for p in payload["problems"] if "builds no extension" not in p["message"]] == []


#: A package of another version than the code was written for.
PACKAGE = """
from torch import nn

__version__ = "3.1"


class Block(nn.Module):
    def __init__(self, dim, norm_layer=nn.LayerNorm):
        super().__init__()
        self.norm = norm_layer(dim)

    def forward(self, x):
        return self.norm(x)


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        if not hasattr(self, "plan"):
            raise ValueError(f"{type(self).__name__} has no plan")


class Planned(nn.Module):
    def __init__(self):
        super().__init__()
        self.count = len(self.all_plans)


class Reader:
    words = 7

    def __getattr__(self, name):
        raise AttributeError(f"no {name}")
"""
#: What code takes from it, and of what its forward uses of that -> the problem in the line of the constructor.
TAKEN = {
    "an argument of None": ("Block(5, scale=None)", "self.kept(h)", ("warning", "missing-package")),
    "an argument of a name": (
        "[Block(5, scale=scale) for _ in 'a'][0]",
        "self.kept(h)",
        ("warning", "missing-package"),
    ),
    "an argument of a base": ("Own(5)", "self.kept(h)", ("warning", "missing-package")),
    "a class that its base refuses": ("Refused()", "h", ("warning", "missing-package")),
    "a class without what its base reads": ("Unplanned()", "h", ("warning", "missing-package")),
    "an argument with a value": ("Block(5, scale=2)", "h", ("warning", "missing-package")),
    "a misspelt argument": ("Block(5, norm_layr=None)", "h", ("error", "type-error")),
    "an attribute": ("Reader().special_words", "h", ("warning", "missing-package")),
    "an attribute of the class": ("Reader.special_words", "h", ("warning", "missing-package")),
    "a misspelt attribute": ("Reader().wrds", "h", ("error", "attribute-error")),
}


@pytest.mark.parametrize("taken", TAKEN.values(), ids=TAKEN)
def test_what_another_version_of_a_package_has_is_no_mistake(tmp_path, monkeypatch, taken):
    made, applied, expected = taken
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "kit_v.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path / "site")
    own = "class Own(Block):\n    def __init__(self, dim):\n        super().__init__(dim, scale=None)\n\n"
    own = own if "Own" in made else "class Refused(Base):\n    pass\n\n" if "Refused" in made else ""
    own = "class Unplanned(Planned):\n    pass\n\n" if "Unplanned" in made else own
    text = (
        f"{HEAD}from kit_v import Base, Block, Planned, Reader\n\n{own}"
        "class Big(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n        self.layer, scale = nn.Linear(4, 5), None\n        self.kept = {made}\n\n"
        f"    def forward(self, x):\n        h = self.layer(x)\n        return {applied}\n"
    )
    try:
        payload = traced(tmp_path, {"net.py": text})
    finally:
        sys.modules.pop("kit_v", None)
    assert [each[:2] for each in told(payload)] == [expected]
    goes_on = expected[0] == "warning" and "scale=2" not in made and made not in ("Refused()", "Unplanned()")
    assert bound(payload) == ({"h": [2, 5]} if goes_on else {})
    if expected[0] == "warning":
        assert "kit_v 3.1 of" in payload["problems"][0]["message"]


def test_an_attribute_that_no_constructor_of_the_file_makes_is_a_mistake(tmp_path):
    text = f"{HEAD}{BODY.replace('return h', 'return self.missing(h)')}\n\nNet()(torch.zeros(2, 4))\n"
    payload = traced(tmp_path, {"net.py": text})
    assert told(payload) == [("error", "attribute-error", 11)]
    assert "It has the layers layer" in payload["problems"][0]["message"]


#: What a file binds in place of something that it cannot import -> the use of it, in a class that is a model.
GIVEN_UP = {
    "a base": ("object", "class Warp(Op):\n    def forward(self, x):\n        return x\n", "Warp(4)", "self.op(h)"),
    "a base of no arguments": ("object", "class Warp(Op):\n    pass\n", "nn.Sequential(Warp())", "h"),
    "a function": ("None", "", "3", "Op(h)"),
    "a module": ("None", "", "3", "Op.warp(h)"),
}


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in the file", "in a neighbour"])
@pytest.mark.parametrize("use", GIVEN_UP.values(), ids=GIVEN_UP)
def test_what_a_file_puts_in_the_place_of_a_missing_name_is_missing(tmp_path, use, elsewhere):
    value, extra, made, applied = use
    guarded = f"try:\n    from absent_one import Op\nexcept ImportError:\n    print('no Op')\n    Op = {value}\n{extra}"
    taken = "from kit_u.ops import Op" + (", Warp\n" if extra else "\n")
    model = (
        "class Big(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.layer, self.op = nn.Linear(4, 5), {made}\n\n"
        f"    def forward(self, x):\n        h = self.layer(x)\n        return {applied}\n"
    )
    files = {
        "kit_u/__init__.py": "",
        "kit_u/ops.py": HEAD + guarded,
        "kit_u/net.py": HEAD + (taken if elsewhere else guarded) + BODY + model,
    }
    payload = traced(tmp_path, files, "kit_u/net.py")
    (problem,) = payload["problems"]
    assert (bound(payload)["h"], problem["code"]) == ([2, 5], "missing-package")
    assert "absent_one" in problem["message"]


LIGHTNING = """
import torch
from torch import nn
import pytorch_lightning as pl
import torchmetrics

class Net(pl.LightningModule):
    def __init__(self, width=4, classes: int = 7):
        super().__init__()
        self.save_hyperparameters()
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=classes)
        self.layer = nn.Linear(self.hparams.width, self.hparams["classes"])

    def forward(self, x):
        h = self.layer(x.to(self.device, self.dtype))
        return h

    def training_step(self, batch, index):
        loss = self(batch).mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

if __name__ == "__main__":
    pl.seed_everything(3)
    pl.Trainer(max_epochs=3).fit(Net())
"""


def test_a_lightning_module_without_lightning_is_a_module(tmp_path):
    if importlib.util.find_spec("pytorch_lightning") or importlib.util.find_spec("torchmetrics"):
        pytest.skip("Lightning is installed")
    payload = traced(tmp_path, {"net.py": LIGHTNING})
    assert bound(payload)["h"] == [2, 7]
    assert [each[:2] for each in told(payload)] == [("warning", "missing-package")] * 2
    assert "MASE treats its LightningModule as a plain nn.Module." in payload["problems"][0]["message"]


def test_a_class_whose_missing_base_may_be_a_model_is_shown_as_a_module_and_told(tmp_path):
    other = "class Other(Layer):\n    @torch.no_grad()\n    def forward(self, x):\n        return x\n"
    text = f"{HEAD}from absent_one import Layer\n{BODY}\n{other}"
    payload = traced(tmp_path, {"net.py": text})
    assert bound(payload)["h"] == [2, 5]
    assert told(payload) == [("warning", "missing-package", 3)]
    assert "MASE treats its Layer as a plain nn.Module." in payload["problems"][0]["message"]
    assert ("Other" in [model["name"] for model in payload["models"]], payload["unshown"]) == (True, [])


def test_libraries_see_that_a_package_is_missing(tmp_path):
    missing = MissingImports(str(Path(__file__).parent))
    with missing.tolerated():
        import absent_one.inner

        assert stands_in(absent_one)
        assert importlib.util.find_spec("absent_one") is None
        assert not [name for name in sys.modules if name.startswith("absent_one")]
    with pytest.raises(MissingPackageError, match=r"absent_one\.inner\.size is needed here"):
        int(absent_one.inner.size)


def test_a_name_that_another_version_of_a_package_had_is_stood_in_for(tmp_path):
    text = HEAD + "from torch.optim import Adam, Shampooed\nfrom json import loads, gone\n" + BODY
    payload = traced(tmp_path, {"net.py": text + "assert issubclass(Adam, object) and loads('3') == 3\n"})
    assert bound(payload)["h"] == [2, 5]
    assert told(payload) == [("warning", "missing-package", 3), ("warning", "missing-package", 4)]
    assert "cannot import name 'Shampooed' from 'torch.optim'" in payload["problems"][0]["message"]


def test_a_name_that_moved_within_its_package_is_taken_from_there(tmp_path):
    text = (
        HEAD
        + "from torch.optim import UninitializedBuffer\n"
        + BODY
        + "assert issubclass(UninitializedBuffer, torch.Tensor)\n"
    )
    payload = traced(tmp_path, {"net.py": text})
    assert bound(payload)["h"] == [2, 5]
    assert told(payload) == [("warning", "missing-package", 3)]
    assert payload["problems"][0]["message"].startswith(
        "cannot import name 'UninitializedBuffer' from 'torch.optim', so a run ends here. "
        "MASE goes on with `torch.nn.parameter.UninitializedBuffer`."
    )


def test_a_compiled_model_that_would_be_downloaded_is_a_missing_file_and_no_mistake(tmp_path):
    text = """import os
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        path = os.path.join(torch.hub.get_dir(), "far.pt")
        torch.hub.download_url_to_file("https://example.org/far.pt", path)
        self.model = torch.jit.load(path)

    def forward(self, x):
        return self.model(x)
"""
    (problem,) = traced(tmp_path, {"net.py": text})["problems"]
    assert (problem["severity"], "far.pt" in problem["message"]) == ("warning", True)


def test_the_addresses_of_weights_that_torchvision_no_longer_tells_are_read_as_texts(tmp_path):
    text = """import torch
from torch import nn
from torch.utils import model_zoo
from torchvision.models.resnet import BasicBlock, ResNet, model_urls

model_urls["wide"] = model_urls["resnet18"].replace("https://", "http://")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=7)
        self.body.load_state_dict(model_zoo.load_url(model_urls["wide"], model_dir="."))

    def forward(self, x):
        h = self.body(x)
        return h
"""
    payload = traced(tmp_path, {"net.py": text})
    assert bound(payload)["h"] == [2, 7]
    assert ("warning", "missing-package", 4) in told(payload)


def test_a_module_that_moved_within_its_package_is_taken_from_there(tmp_path):
    text = HEAD + "from transformers.modeling_bert import BertConfig, BertSelfAttention\n" + BODY
    payload = traced(tmp_path, {"net.py": text + "BertSelfAttention(BertConfig(hidden_size=12))\n"})
    assert bound(payload)["h"] == [2, 5]
    assert told(payload) == [("warning", "missing-package", 3)]
    assert "MASE goes on with `transformers.models.bert.modeling_bert`." in payload["problems"][0]["message"]


def test_a_long_name_that_only_resembles_another_is_of_another_version(tmp_path):
    text = HEAD + "from torch.nn import AdaptiveSoftMaxPool2d\n" + BODY
    payload = traced(tmp_path, {"net.py": text})
    assert (bound(payload)["h"], told(payload)) == ([2, 5], [("warning", "missing-package", 3)])


def test_a_public_name_that_has_become_private_is_of_another_version(tmp_path):
    import torch.utils.data.dataloader as home

    assert hasattr(home, "_T_co")
    assert not hasattr(home, "T_co")
    payload = traced(tmp_path, {"net.py": HEAD + "from torch.utils.data.dataloader import T_co\n" + BODY})
    assert (bound(payload)["h"], told(payload)) == ([2, 5], [("warning", "missing-package", 3)])


def test_a_name_that_is_spelt_wrong_is_an_error(tmp_path):
    payload = traced(tmp_path, {"net.py": HEAD + "from torch.nn import Linaer\n" + BODY})
    assert (bound(payload)["h"], told(payload)) == ([2, 5], [("error", "import-error", 3)])


def test_a_name_that_a_neighbour_takes_from_another_version_of_a_package_is_no_misspelling(tmp_path):
    files = {"net.py": HEAD + "import helpers\n" + BODY, "helpers.py": "from random import gausss\n"}
    payload = traced(tmp_path, files)
    assert (bound(payload)["h"], told(payload)) == ([2, 5], [("warning", "missing-package", 3)])


def test_what_a_missing_compiler_makes_of_a_kernel_is_unknown_and_the_rest_is_shown(tmp_path):
    kernels = (
        "import triton\n\n@triton.autotune(configs=[])\n@triton.jit\ndef kernel(x):\n    pass\n\n"
        "LEAST = [each.num_warps for each in kernel.configs]\n"
    )
    files = {"net.py": HEAD + "import kernels\n" + BODY, "kernels.py": kernels}
    payload = traced(tmp_path, files)
    assert (bound(payload)["h"], told(payload)) == ([2, 5], [("warning", "missing-package", 3)])


def test_a_name_that_a_neighbour_lacks_is_an_error(tmp_path):
    payload = traced(tmp_path, {"net.py": HEAD + "from near_one import gone\n" + BODY, "near_one.py": "here = 3\n"})
    assert (bound(payload)["h"], told(payload)) == ([2, 5], [("error", "import-error", 3)])


WIDTH = "WIDTH = 6\n"
WIDE = HEAD + "from {module} import WIDTH\n" + BODY.replace("width=4", "width=WIDTH")
PLACES = {
    "a sibling folder": ("scripts/net.py", "library_a/sizes.py", "library_a.sizes"),
    "a folder of its own, imported by its inside": ("scripts/net.py", "library_b/sizes_b.py", "sizes_b"),
    "a src layout": ("tests/net.py", "src/library_c/sizes.py", "library_c.sizes"),
    "a src layout in a part of the workspace": ("kit/tests/net.py", "kit/src/library_d/sizes.py", "library_d.sizes"),
    "the folder above": ("deep/down/net.py", "deep/sizes_e.py", "sizes_e"),
    "a namespace package": ("net.py", "python/space_f/inner/sizes.py", "space_f.inner.sizes"),
}


@pytest.mark.parametrize("place", PLACES)
def test_modules_are_found_wherever_the_workspace_has_them(tmp_path, place):
    name, module, dotted = PLACES[place]
    before = list(sys.path)
    payload = traced(tmp_path, {name: WIDE.format(module=dotted), module: WIDTH}, name)
    inputs = payload["models"][0]["inputs"]
    assert (inputs["x"][1], payload["problems"], sys.path) == ([2, 6], [], before)


def test_of_two_modules_of_one_name_the_nearer_one_is_meant(tmp_path):
    files = {f"{kit}/lib/sizes_g.py": f"WIDTH = {width}\n" for kit, width in (("a", 3), ("b", 7), ("c", 9))}
    payload = traced(tmp_path, {**files, "b/net.py": WIDE.format(module="sizes_g")}, "b/net.py")
    assert payload["models"][0]["inputs"]["x"][1] == [2, 7]


def test_a_folder_that_happens_to_bear_a_missing_package_s_name_is_not_that_package(tmp_path):
    files = {"net.py": HEAD + "import absent_one.core\n" + BODY, "data/absent_one/picture.txt": "", "a/core.py": ""}
    payload = traced(tmp_path, files)
    assert (bound(payload)["h"], told(payload)) == ([2, 5], [("warning", "missing-package", 3)])


NAMESAKES = {
    "a folder inside of the package that uses it": (
        "kit/ops/net.py",
        {
            "kit/__init__.py": "",
            "kit/ops/__init__.py": "",
            "kit/ops/{name}/__init__.py": "",
            "kit/ops/{name}/own.py": "",
        },
    ),
    "a module of the same name that wraps it": (
        "net.py",
        {"kit/__init__.py": "", "kit/{name}.py": "import {name} as package\n\n\ndef wrapped():\n    package.jit()\n"},
    ),
    "a module that imports it": ("kit/{name}.py", {"kit/__init__.py": ""}),
    "a folder with code of its own": ("net.py", {"tests/{name}/kernels.py": "a = 1\n"}),
    "a folder at the top": ("net.py", {"{name}/kernels.py": "a = 1\n"}),
}
USED = """import {name}
import {name}.language as tl
from {name}.testing import do_bench


@{name}.jit
def kernel(a):
    return tl.load(a)


"""


@pytest.mark.parametrize("case", NAMESAKES)
def test_a_package_is_not_what_has_its_name_in_the_workspace(tmp_path, case):
    file, others = NAMESAKES[case]
    name = f"absent_{list(NAMESAKES).index(case)}"
    files = {path.format(name=name): text.format(name=name) for path, text in others.items()}
    file = file.format(name=name)
    payload = traced(tmp_path, {**files, file: HEAD + USED.format(name=name) + BODY}, file)
    assert bound(payload)["h"] == [2, 5]
    assert {each[:2] for each in told(payload)} == {("warning", "missing-package")}
    assert "in this workspace" not in str(payload["problems"])


def test_a_package_that_is_installed_is_found_behind_what_has_its_name_in_the_package(tmp_path, monkeypatch):
    installed = tmp_path / "installed" / "hidden_one"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("WIDTH = 6\n")
    monkeypatch.syspath_prepend(str(installed.parent))
    files = {"kit/__init__.py": "", "kit/hidden_one/__init__.py": "", "kit/net.py": WIDE.format(module="hidden_one")}
    payload = traced(tmp_path, files, "kit/net.py")
    assert (payload["models"][0]["inputs"]["x"][1], payload["problems"]) == ([2, 6], [])


def test_a_folder_of_the_inner_project_is_found_behind_that_of_the_outer_one(tmp_path):
    files = {"layers/other.py": "a = 1\n", "inner/layers/wide.py": "WIDTH = 6\n"}
    net = {"inner/layers/net.py": WIDE.format(module="layers.wide")}
    payload = traced(tmp_path, {**files, **net}, "inner/layers/net.py")
    assert (payload["models"][0]["inputs"]["x"][1], payload["problems"]) == ([2, 6], [])


def test_a_script_in_a_package_finds_its_neighbours_and_a_slip_in_their_names_is_an_error(tmp_path):
    files = {"kit/__init__.py": "", "kit/near_two.py": "def load_all():\n    return 4\n\n\ndef save():\n    pass\n"}
    use = "import near_two\n\nnear_two.load_all(), near_two.save\n"
    payload = traced(tmp_path, {**files, "kit/net.py": f"{HEAD}{use}{BODY}"}, "kit/net.py")
    assert (bound(payload)["h"], payload["problems"]) == ([2, 5], [])
    wrong = "from near_two import laod_all\n"
    payload = traced(tmp_path, {**files, "kit/net.py": f"{HEAD}{wrong}{BODY}"}, "kit/net.py")
    assert told(payload)[0][:2] == ("error", "import-error")


REQUIREMENTS = {
    "requirements.txt": "# for training\n-r more.txt\nabsent-one[extra]>=2,<3  # newer ones fail\ntorch\n",
    "parts/requirements-dev.txt": "Absent_One == 1.0\n",
    "environment.yml": "name: net\ndependencies:\n  - python=3.11\n  - pip:\n    - absent_one==1\n",
    "pyproject.toml": "[project]\nname = 'net'\n[project.optional-dependencies]\nall = ['absent.one>1']\n",
    "setup.py": "raise SystemExit\nsetup(extras_require={'all': ['absent_one>1']})\n",
}


@pytest.mark.parametrize("file", REQUIREMENTS)
def test_what_the_requirements_name_is_what_is_advised_to_be_installed(tmp_path, file):
    payload = traced(tmp_path, {"net.py": f"{HEAD}import absent_one\n{BODY}", file: REQUIREMENTS[file]})
    (problem,) = payload["problems"]
    name = re.search(r"(?i)absent[-_.]one", REQUIREMENTS[file])[0]
    assert problem["message"].endswith(f"-m pip install {name}")


#: module -> the package that has it; None where its name is no package's, or another one's.
ADVICE = {
    "tap": "typed-argument-parser",
    "pkg_resources": "'setuptools<81'",
    "cv2": "opencv-python",
    "einops": "einops",
    "apex": None,
    "utils": None,
    "absent_one": None,
}


@pytest.mark.parametrize("module", ADVICE)
def test_only_a_package_that_is_known_to_have_a_module_is_advised(tmp_path, module):
    payload = traced(tmp_path, {"net.py": f"{HEAD}import {module}\n{BODY}"})
    (problem,) = payload["problems"]
    command = f"{sys.executable} -m pip install {ADVICE[module]}"
    assert (command in problem["message"], "pip install" in problem["message"]) == (bool(ADVICE[module]),) * 2


def test_a_constructor_that_hands_a_layer_of_a_missing_package_to_torch_names_the_package(tmp_path):
    text = f"""{HEAD}from no_such_package.layers import Rearrange


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Sequential(Rearrange("b c -> c b"), nn.Linear(4, 4))

    def forward(self, x):
        return self.layer(x)
"""
    payload = traced(tmp_path, {"net.py": text})
    assert [each["code"] for each in payload["problems"]] == ["missing-package"]
    assert "It needs no_such_package, which cannot be imported" in payload["unshown"][0]["why"]


def test_what_code_in_c_was_given_of_a_missing_package_is_named(tmp_path):
    line = "self.window = torch.from_numpy(window)"
    body = BODY.replace(
        "        self.layer", f"        window = absent_one.window(4)\n        {line}\n        self.layer"
    )
    payload = traced(tmp_path, {"net.py": f"{HEAD}import absent_one\n{body}"})
    assert {each["code"] for each in payload["problems"]} == {"missing-package"}


def test_a_module_beside_sources_that_are_compiled_is_a_warning(tmp_path):
    files = {"align/__init__.py": "from .align.core import path\n", "align/core.pyx": "", "align/setup.py": ""}
    payload = traced(tmp_path, {"net.py": HEAD + "import align\n" + BODY, **files})
    assert (bound(payload)["h"], {each[:2] for each in told(payload)}) == ([2, 5], {("warning", "missing-package")})


def test_an_import_that_leads_above_the_workspace_is_no_package_to_install(tmp_path):
    """A folder's name may be some package's name: to advise its installation would have foreign code installed."""
    base = "class Deep(Base):\n    def forward(self, x):\n        return x\n"
    payload = traced(
        tmp_path,
        {"part/__init__.py": "", "part/net.py": f"{HEAD}from ...models import Base\n{BODY}\n\n{base}"},
        "part/net.py",
    )
    assert bound(payload)["h"][-1] == 5
    texts = [each["message"] for each in payload["problems"]]
    assert len(texts) == 1
    assert "in this workspace" in texts[0]
    assert "MASE treats its Base as a plain nn.Module." in texts[0]
    assert "install" not in texts[0]


def test_an_error_of_the_package_that_a_file_is_in_is_told_at_an_import_of_the_file(tmp_path):
    files = {
        "kit_c/__init__.py": "from .other import three\n",
        "kit_c/parts.py": "FOUR = 4\n",
        "kit_c/other.py": "from .parts import FOUR\nthree = [].pop()\n",
        "kit_c/net.py": HEAD + "from .parts import FOUR\n" + BODY,
    }
    payload = traced(tmp_path, files, "kit_c/net.py")
    (problem,) = payload["problems"]
    assert (Path(problem["file"]).name, problem["line"], problem["code"]) == ("net.py", 3, "import-error")
    assert problem["message"].startswith("kit_c/other.py, line 2: Importing this file raised IndexError")
    first = problem["related"][0]
    assert (Path(first["file"]).name, first["line"]) == ("other.py", 2)
    files["kit_c/net.py"] = HEAD + BODY
    payload = traced(tmp_path / "again", files, "kit_c/net.py")
    assert [(Path(each["file"]).name, each["line"]) for each in payload["problems"]] == [("net.py", 1)]


def test_a_missing_package_that_the_package_around_needs_is_told_once_and_the_file_is_shown(tmp_path):
    files = {
        "kit_d/__init__.py": "import absent_one\nWIDTH = int(absent_one.WIDTH)\n",
        "kit_d/net.py": HEAD + BODY,
    }
    payload = traced(tmp_path, files, "kit_d/net.py")
    (problem,) = payload["problems"]
    assert (Path(problem["file"]).name, problem["line"], problem["code"]) == ("net.py", 1, "missing-package")
    assert bound(payload)["h"] == [2, 5]


def test_a_part_of_a_package_that_breaks_is_missing(tmp_path, monkeypatch):
    """As a torchvision of another build than torch's: a RuntimeError at each import of the package or of a part."""
    installed = tmp_path / "installed" / "broken_vision_p"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("raise RuntimeError('operator nms does not exist')\n")
    (installed / "models.py").write_text("")
    monkeypatch.syspath_prepend(str(installed.parent))
    text = f"{HEAD}import broken_vision_p.models as models\n{BODY}\n\ndef resnet():\n    return models.resnet18()\n"
    payload = traced(tmp_path, {"net.py": text})
    assert (bound(payload)["h"], told(payload)) == ([2, 5], [("warning", "missing-package", 3)])
    assert "operator nms does not exist" in payload["problems"][0]["message"]


def test_a_file_that_bears_the_name_of_the_package_that_it_imports_is_not_that_package(tmp_path):
    helper = "from settings_p import initialize\n\n\ndef start():\n    return initialize()\n"
    text = f"{HEAD}from helpers.settings_p import start\n{BODY}"
    payload = traced(tmp_path, {"net.py": text, "helpers/settings_p.py": helper})
    assert (bound(payload)["h"], told(payload)) == ([2, 5], [("warning", "missing-package", 3)])


OLD_NUMPY = """
import numpy as np


class Net(nn.Module):
    def __init__(self, branches=(2, 4)):
        super().__init__()
        width = np.int(np.sum(branches))
        self.layer = nn.Linear(width, np.product([5]))
        self.least = -np.{limit}

    def forward(self, x):
        h = self.layer(x)
        return h
"""


def test_a_name_that_numpy_removed_is_told_and_stood_for(tmp_path):
    payload = traced(tmp_path, {"net.py": HEAD + OLD_NUMPY.format(limit="inf")})
    assert (bound(payload)["h"][1:], told(payload)) == ([5], [("warning", "missing-package", 10)])
    (problem,) = payload["problems"]
    assert "has no `np.int`, so a run ends here. MASE goes on with `int`" in problem["message"]
    assert "has no `np.product`, so a run ends here. MASE goes on with `np.prod`" in problem["message"]


def test_a_name_that_numpy_never_had_is_an_error(tmp_path):
    payload = traced(tmp_path, {"net.py": HEAD + OLD_NUMPY.replace("np.int(", "int(").format(limit="unlimited")})
    assert "has no attribute 'unlimited'" in " ".join(each["message"] for each in payload["problems"])


PREPARED_FOR_NUMPY = """
import numpy as np

if not hasattr(np, "int"):
    np_int = int
try:
    limit = np.Inf
except AttributeError:
    limit = 3


class Net(nn.Module):
    def __init__(self, width=2 * limit):
        super().__init__()
        self.layer = nn.Linear(np_int(width), 5)

    def forward(self, x):
        h = self.layer(x)
        return h
"""


def test_code_that_expects_a_name_of_numpy_to_be_missing_gets_the_error(tmp_path):
    payload = traced(tmp_path, {"net.py": HEAD + PREPARED_FOR_NUMPY})
    assert (bound(payload)["h"][1:], told(payload)) == ([5], [])


@pytest.mark.parametrize("statement", ["from ._bin import lib", "from . import _bin"])
def test_a_compiled_module_that_cannot_be_loaded_is_told_and_hides_nothing(tmp_path, statement):
    code = "import torch\nfrom torch import nn\nimport ext\n\n\nclass Net(nn.Module):\n"
    code += "    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(8, 4)\n\n"
    code += "    def forward(self, x):\n        return self.fc(x)\n"
    (tmp_path / "workspace" / "ext").mkdir(parents=True)
    (tmp_path / "workspace" / "ext" / "_bin.so").write_bytes(b"of another system")
    payload = traced(tmp_path, {"ext/__init__.py": f"{statement}\n", "net.py": code})
    assert [each["name"] for each in payload["models"]] == ["Net"]
    [problem] = payload["problems"]
    assert (problem["severity"], problem["code"], problem["line"]) == ("warning", "missing-package", 3)
    assert "_bin.so" in problem["message"]


def test_an_operation_that_an_installed_package_could_not_load_is_no_mistake_of_the_file(tmp_path, monkeypatch):
    """torchvision is imported without its compiled part, and says so at the first use of an operation."""
    (tmp_path / "site" / "torchvision").mkdir(parents=True)
    (tmp_path / "site" / "torchvision" / "__init__.py").write_text("")
    (tmp_path / "site" / "torchvision" / "ops.py").write_text(
        "def nms(boxes, scores, threshold):\n"
        '    raise RuntimeError("Couldn\'t load custom C++ ops. This can happen if versions are incompatible.")\n'
    )
    monkeypatch.syspath_prepend(tmp_path / "site")
    text = f"""
from torchvision.ops import nms
{HEAD}
class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, images):
        maps = self.conv(images)
        boxes = maps.flatten(2)[0].t()
        kept = nms(boxes, boxes[:, 0], 0.5)
        chosen = boxes[kept]
        return chosen
"""
    payload = traced(tmp_path, {"net.py": text})
    assert bound(payload)["maps"][1] == 4
    assert told(payload) == [("warning", "missing-package", text[: text.index("kept")].count("\n") + 1)]
    assert "compiled part of torchvision" in payload["problems"][0]["message"]


#: A file of a package with the name of an optional library, which it imports by a call.
OPTIONAL = """
import importlib

import torch
from torch import nn

try:
    fast = importlib.import_module("fast_weights")
except Exception:
    fast = None


class Loss(nn.Module):
    def forward(self, x):
        if fast is not None:
            x = fast.weigh(x)
        return x.sum()
"""


def test_no_file_is_the_library_of_its_name_that_it_imports(tmp_path):
    found = traced(tmp_path, {"losses/__init__.py": "", "losses/fast_weights.py": OPTIONAL}, "losses/fast_weights.py")
    assert [model["name"] for model in found["models"]] == ["Loss"]
    assert not [problem for problem in found["problems"] if problem["severity"] == "error"]


#: A test file that pytest skips while it is imported, and whose functions build the model.
SKIPPED = """
import pytest

from net import Net

absent_package = pytest.importorskip("absent_package")


def make_width():
    return 4


def test_shape():
    assert Net(make_width()).layer.out_features == 5
"""


def test_a_test_file_that_pytest_skips_hides_no_model(tmp_path, monkeypatch):
    # No trace runs inside of pytest, whose own importer would take the file.
    finders = [each for each in sys.meta_path if not type(each).__module__.startswith("_pytest")]
    monkeypatch.setattr(sys, "meta_path", finders)
    files = {"net.py": HEAD + BODY.replace("width=4", "width"), "tests/test_net.py": SKIPPED}
    assert [model["name"] for model in traced(tmp_path, files)["models"]] == ["Net"]


@pytest.mark.parametrize("statement", ['pytest.importorskip("absent_package")', 'pytest.fail("not here")'])
@pytest.mark.parametrize("place", ["net.py", "parts.py"])
def test_what_pytest_skips_in_a_traced_or_imported_file_hides_no_model(tmp_path, place, statement):
    skipped = f"import pytest\n\n{statement}\nWIDTH = 4\n"
    model = HEAD + BODY
    files = {"net.py": "try:\n    import parts\nexcept Exception:\n    parts = None\n" + model, "parts.py": ""}
    files[place] = skipped + files[place]
    assert [model["name"] for model in traced(tmp_path, files)["models"]] == ["Net"]
