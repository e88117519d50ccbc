"""Which files are run at all is decided from syntax alone."""

from pathlib import Path

import pytest

from mase_server.daemon import discovery
from mase_server.daemon.discovery import Discoverer, discover_model

MODELS = {
    "plain": "import torch.nn as nn\nclass Net(nn.Module): pass",
    "from import": "from torch import nn\nclass Net(nn.Module): pass",
    "full name": "import torch\nclass Net(torch.nn.Module): pass",
    "bare name": "from torch.nn import Module as M\nclass Net(M): pass",
    "other layer": "from torch import nn\nclass Mine(nn.Linear): pass",
    "lightning": "import lightning as L\nclass Net(L.LightningModule): pass",
    "hugging face": "from transformers import PreTrainedModel\nclass Net(PreTrainedModel): pass",
    "hugging face model": "from transformers import BertModel\nclass Net(BertModel): pass",
    "generic base": "from base import Base\nclass Net(Base[int]):\n    def forward(self, x): return x",
    "workspace base": "from .blocks import Block\nclass Net(Block):\n    def forward(self, x): return x",
    "sequential": "from torch import nn\nmodel = nn.Sequential(nn.Linear(2, 2))",
    "bare sequential": "from torch.nn import Linear, Sequential\nmodel = Sequential(Linear(2, 2))",
    "auto model": "from transformers import AutoModel, AutoConfig\nm = AutoModel.from_config(AutoConfig())",
    "from pretrained": "from transformers import AutoModelForCausalLM as A\nm = A.from_pretrained('x')",
    "model of config": "import transformers\nm = transformers.LlamaForCausalLM(transformers.LlamaConfig())",
    "torchvision": "import torchvision\nmodel = torchvision.models.resnet18()",
    "timm": "import timm\nmodel = timm.create_model('vit')",
    "in a function": "def build():\n    from torch import nn\n    class Net(nn.Module): pass\n    return Net()",
    "names of a star import": "from .parts import *\nclass Net(nn.Module):\n    def forward(self, x): return x",
    "layer of a star import": "from torch.nn import *\nmodel = Linear(2, 2)",
    "comment": "import torch\ndef f(x): return x + 1  # mase: x = f32[1]",
}
OTHERS = {
    "empty": "",
    "script": "import torch\nx = torch.zeros(3)\nprint(x)",
    "own Module": "class Module: pass\nclass Net(Module): pass",
    "mentions": "TEXT = 'class Net(nn.Module): pass  # mase: x'",
    "functional": "import torch.nn.functional as F\nimport torch\ny = F.relu(torch.zeros(2))",
    "data loading": "from torch.utils.data import Dataset\nclass D(Dataset):\n    def __len__(self): return 1",
    "parameter": "from torch import nn\nimport torch\np = nn.Parameter(torch.zeros(2))",
    "init": "from torch import nn\ndef f(w): nn.init.zeros_(w)",
    "annotation": "from torch import nn\ndef f(model: nn.Module) -> nn.Module: return model.eval()",
    "optimizer": "import torch\ndef f(ps): return torch.optim.Adam(ps)",
    "own Module beside a star import": "from math import *\nclass Module: pass\nclass Net(Module): pass",
    "exception beside a star import": "from torch.nn import *\nraise ValueError('x')",
    "plain class": "import os\nclass A:\n    def forward(self): os.remove('x')",
}


@pytest.mark.parametrize("source", MODELS.values(), ids=MODELS)
def test_what_defines_or_builds_a_module_is_found(source):
    assert discover_model("f.py", source.encode()).has_model


@pytest.mark.parametrize("source", OTHERS.values(), ids=OTHERS)
def test_what_does_not_is_left_alone(source):
    found = discover_model("f.py", source.encode())
    assert not found.has_model
    assert found.problem is None


ERRORS = {
    "x = (1,\n": (1, 4),
    "def f(:\n    pass\n": (1, 6),
    "x = 1\n  y = 2\n": (2, 2),
    "é = '\U0001f600' +\n": (1, 9),
}


@pytest.mark.parametrize(("source", "place"), ERRORS.items(), ids=range(len(ERRORS)))
def test_a_syntax_error_is_a_problem_where_python_puts_it(source, place):
    problem = discover_model("/w/f.py", source.encode()).problem
    with pytest.raises(SyntaxError) as told:
        compile(source, "f", "exec")
    assert (problem.line, problem.column) == (told.value.lineno, told.value.offset - 1)
    assert (problem.line, abs(problem.column - place[1]) <= 1) == (place[0], True)
    assert (problem.end_line, problem.end_column) > (problem.line, problem.column)
    assert (
        problem.message
        == f"{told.type.__name__}: {told.value.msg}. The file is traced again as soon as it can be read."
    )


@pytest.mark.parametrize("source", [b"(" * 5000, b"x = " + b"-" * 20000 + b"1"])
def test_what_the_parser_gives_up_on_is_a_problem_too(source):
    problem = discover_model("/w/f.py", source).problem
    assert problem.code == "syntax-error"
    assert problem.line >= 1


def test_a_binary_file_is_called_one():
    problem = discover_model("/w/f.py", b"x = 1\n\0\xff").problem
    assert (problem.code, problem.line) == ("not-text", 1)
    assert problem.message.startswith("This is a binary file, not text.")


@pytest.mark.parametrize("head", ["", "# coding: ascii\n", "# coding: utf-8\n"])
def test_a_byte_of_another_encoding_is_shown_where_it_stands(head):
    source = head.encode() + b"import torch\nname = 'caf\xe9'\n"
    problem = discover_model("/w/f.py", source).problem
    line = head.count("\n") + 2
    assert (problem.code, problem.line, problem.column, problem.end_column) == ("unknown-encoding", line, 11, 12)
    assert "0xe9" in problem.message
    assert "# -*- coding: latin-1 -*-" in problem.message


def test_an_encoding_that_does_not_exist_is_named():
    problem = discover_model("/w/f.py", b"# coding: klingon\nimport torch\n").problem
    assert (problem.code, problem.line) == ("unknown-encoding", 1)
    assert "'klingon'" in problem.message


def test_an_encoding_cookie_and_a_byte_order_mark_are_honoured():
    assert discover_model(
        "f.py", "# coding: latin-1\nimport torch.nn as nn\nclass É(nn.Module): pass".encode("latin-1")
    ).has_model
    assert discover_model("f.py", b"\xef\xbb\xbfimport torch.nn as nn\nclass E(nn.Module): pass").has_model


async def test_the_same_content_is_parsed_once(monkeypatch):
    calls = []
    monkeypatch.setattr(
        discovery, "discover_model", lambda path, source: calls.append(path) or discover_model(path, source)
    )
    discoverer = Discoverer()
    for _ in range(3):
        assert (await discoverer.discover("a.py", MODELS["plain"].encode(), "1")).has_model
    await discoverer.discover("a.py", b"", "2")
    assert (await discoverer.discover("big.py", b"# x\n" * 40000 + MODELS["plain"].encode(), "3")).has_model
    assert calls == ["a.py", "a.py"], "a big one is parsed by a process of its own"


def test_the_examples_are_models_and_the_servers_own_files_are_not():
    root = Path(__file__).parents[2]
    for path in sorted((root / "examples").glob("*.py")):
        assert discover_model(str(path), path.read_bytes()).has_model, path
    for path in sorted((root / "mase_server" / "daemon").glob("*.py")):
        assert not discover_model(str(path), path.read_bytes()).has_model, path


MODULE = """\
import os
from torch import nn

WIDTH = 8


def build(width=WIDTH, *, deep=False) -> nn.Module:
    return Net(width)


@nn.jit
class Net(nn.Module):
    scale: int = 2
    table = make()

    def __init__(self, width):
        self.width = width


if __name__ == "__main__":
    build()
"""
#: Edits that change nothing of what runs when the file is imported or started.
DEFINING = {
    "a body": ("return Net(width)", "return Net(width * 2)"),
    "a method's body": ("self.width = width", "self.width = os.remove(width)"),
    "a new function": ("def build", "def other(x, y=(1, -2), z=WIDTH):\n    os.abort()\n\n\ndef build"),
    "a function's name and parameters": ("def build(width=WIDTH, *", "def construct(width=3, more=os.sep, *"),
    "a new class": ("@nn.jit", "class Small(nn.Module):\n    'Small.'\n    size = 3\n\n\n@nn.jit"),
    "a constant of a class": ("scale: int = 2", "scale: float = 2.5"),
    "a docstring and comments": ("import os\n", "'About.'\nimport os  # for build\n\n"),
}
#: Edits that change it.
RUNNING = {
    "an import": ("import os\n", "import os, sys\n"),
    "a statement": ("WIDTH = 8", "WIDTH = 9"),
    "a new statement": ("WIDTH = 8", "WIDTH = 8\nos.remove('x')"),
    "a decorator": ("@nn.jit", "@nn.jit.script"),
    "a new decorator": ("def build", "@os.register\ndef build"),
    "a call as a default value": ("deep=False", "deep=os.abort()"),
    "a call as an annotation": ("-> nn.Module", "-> os.abort()"),
    "a call in a class": ("table = make()", "table = make(1)"),
    "a new call in a class": ("scale: int = 2", "scale: int = os.abort()"),
    "a call as a base": ("class Net(nn.Module)", "class Net(os.base())"),
    "a class under a decorator": ("class Net(nn.Module)", "class Net(nn.Linear)"),
    "the program": ("    build()\n", "    build(3)\n"),
    "a condition": ('if __name__ == "__main__":', "if True:"),
    "a handler": ('if __name__ == "__main__":\n    build()', "try:\n    build()\nexcept OSError:\n    pass"),
}
BLOCKS = """\
try:
    import os
    def f(): return 1
except ImportError:
    g(3)
else:
    h(4)
match x:
    case 5: k(6)
"""


def module_code(source):
    return discover_model("f.py", source.encode()).module_code


@pytest.mark.parametrize(("old", "new"), DEFINING.values(), ids=DEFINING)
def test_what_only_defines_can_be_typed(old, new):
    assert old in MODULE
    assert module_code(MODULE.replace(old, new)) == module_code(MODULE)


@pytest.mark.parametrize(("old", "new"), RUNNING.values(), ids=RUNNING)
def test_what_runs_at_import_is_told_apart(old, new):
    assert old in MODULE
    assert module_code(MODULE.replace(old, new)) != module_code(MODULE)


def test_code_inside_blocks_of_a_module_is_told_apart_too():
    assert module_code(BLOCKS) == module_code(BLOCKS.replace("return 1", "return 2"))
    for old, new in (
        ("import os", "import sys"),
        ("ImportError", "OSError"),
        ("3", "0"),
        ("4", "0"),
        ("5", "0"),
        ("6", "0"),
    ):
        assert module_code(BLOCKS) != module_code(BLOCKS.replace(old, new)), old


WORKSPACE = {
    "net.py": "from torch import nn\nclass Net(nn.Module):\n    pass\nclass Options:\n    pass\n",
    "parts/__init__.py": "from .blocks import Block as Piece\nfrom .rings import *\n",
    "parts/blocks.py": "from net import Net\nclass Block(Net): ...\n",
    "parts/rings.py": "from . import make\n\ndef make():\n    return make()\n",
    "parts/factory.py": "from .blocks import Block\ndef build(n):\n return _build()\ndef _build():\n return Block()\n",
    "broken.py": "import torch\nclass Net(nn.Module:\n",
}


@pytest.mark.parametrize(
    ("script", "builds"),
    [
        ("from net import Net\nnet = Net()\n", True),
        ("import net\nmodel = net.Net.from_pretrained('.')\n", True),
        ("from parts import Piece\nPiece()\n", True),
        ("from parts import factory\nmodel = factory.build('block')\n", True),
        (
            "from parts.factory import build\ndef main():\n build('block')\nif __name__ == '__main__':\n    main()\n",
            True,
        ),
        ("from net import Net\nclass Mine(Net):\n    pass\nMine()\n", True),
        ("from broken import Net\nNet()\n", True),
        ("from net import Net\ndef test_net():\n    assert Net()\n", False),
        ("from net import Options\nOptions()\n", False),
        ("from parts import make\nmake()\n", False),
        ("from net import Net\n", False),
        ("import numpy as np\nnp.zeros(3)\n", False),
        ("from ...far import Net\nNet()\n", False),
    ],
)
async def test_a_model_that_a_script_imports_and_builds_is_found(tmp_path, script, builds):
    for name, text in WORKSPACE.items():
        tmp_path.joinpath(name).parent.mkdir(exist_ok=True)
        tmp_path.joinpath(name).write_text(text)
    script_file = str(tmp_path / "use.py")
    assert (await Discoverer().discover(script_file, script.encode(), "1")).has_model == builds


async def test_an_imported_class_that_becomes_a_model_is_found_without_a_change_of_the_script(tmp_path):
    tmp_path.joinpath("net.py").write_text("class Net:\n    pass\n")
    discoverer, script = Discoverer(), b"from net import Net\nNet()\n"
    assert not (await discoverer.discover(str(tmp_path / "use.py"), script, "1")).has_model
    tmp_path.joinpath("net.py").write_text(WORKSPACE["net.py"])
    assert (await discoverer.discover(str(tmp_path / "use.py"), script, "1")).has_model
