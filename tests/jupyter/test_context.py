"""What a cell needs of the cells before it: the statements that make its names, and no others."""

import pytest

from mase_server.jupyter.magics import context_of

TRY = "try:\n    import a\nexcept ImportError:\n    a = None"
NET = "class Net(nn.Module):\n    def forward(self, x):\n        return x * SCALE\n"


@pytest.mark.parametrize(
    ("earlier", "cell", "context"),
    [
        ([], "x = 1", ""),
        (["import torch", "y = 2"], "x = torch.ones(2)", "import torch\n"),
        # What a needed statement needs is needed.
        (["from torch import nn", "SCALE = 2\nother = 3", NET], "Net()", f"from torch import nn\nSCALE = 2\n{NET}"),
        # In the order in which they ran, a name that was made twice both times: the second may use the first.
        (["n = 1", "n = n + 1"], "n", "n = 1\nn = n + 1\n"),
        # What runs for its effect is left out.
        (["net = 1\ntrain(net)\nfor i in range(3):\n    net.step()"], "net", "net = 1\n"),
        # Imports inside of others, dotted names, tuples, walrus, decorators.
        ([f"{TRY}\nb = 1"], "a", f"{TRY}\n"),
        (["import torch.nn.functional as F\nimport torch.nn"], "torch.relu", "import torch.nn\n"),
        (["p, (q, r) = 1, (2, 3)"], "r", "p, (q, r) = 1, (2, 3)\n"),
        (["from functools import cache", "@cache\ndef f():\n    return 1\n"], "f()", "from functools import cache\n"
         "@cache\ndef f():\n    return 1\n"),
        (["a = 1; b = 2"], "b", "b = 2\n"),
        (["text = '''one\n  two'''"], "text", "text = '''one\n  two'''\n"),
        # Magics, and cells that do not parse, make nothing.
        (["files = get_ipython().getoutput('ls')", "x = ", "y = 1"], "files, x, y", "y = 1\n"),
        (["x = 1"], "x = ", ""),
    ],
)  # fmt: skip
def test_the_statements_that_make_its_names(earlier, cell, context):
    assert context_of(cell, earlier) == context
