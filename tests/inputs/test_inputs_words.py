"""Shapes that a person wrote in words: docstrings, comments, annotations and suffixes of names.

Ground truth: what is found runs in plain eager PyTorch, with values of several seeds.
"""

import pytest

from mase_server.tracing.inputs.text import format_inputs
from mase_server.tracing.models.found import Found
from tests.inputs.test_inputs_kinds import MORE, found_in, runs_in_eager
from tests.inputs.test_inputs_repairs import HEAD, looked_at

#: Where it is written -> layers, parameters of forward, its body, the inputs.
SAID = {
    "an argument of a docstring": (
        "self.weight = 0.5",
        "outputs, targets",
        '"""The loss.\n\nArgs:\n    outputs (Tensor): Predicted values (B, T).\n'
        '    targets (LongTensor): Wanted ones (B, T).\n"""\n'
        "return self.weight * (outputs - targets.float()).abs().mean()",
        "outputs: f32[B=2, T=16]; targets: i64[B, T] < 10",
    ),
    "square brackets": (
        "self.scale = 2.0",
        "x",
        '"""x: [B, C, H, W]"""\nreturn x * self.scale',
        "x: f32[B=2, 3, H=32, W=32]",
    ),
    "words in place of letters": (
        "self.layer = nn.Linear(12, 8)",
        "x",
        '"""\n:param x: features of shape (batch, seq, dim)\n"""\nreturn self.layer(x)',
        "x: f32[B=2, T=16, 12]",
    ),
    "letters with an x between them": (
        "self.scale = 2.0",
        "target",
        '"""target : Tensor[N x 4 x L]\n    what is wanted\n"""\nreturn target / self.scale',
        "target: f32[B=2, 4, L=64]",
    ),
    "letters with spaces around an x": (
        "self.scale = 2.0",
        "y",
        '"""\nArgs:\n    y: N x 5 x T\n"""\nreturn y.mean(2) / self.scale',
        "y: f32[B=2, 5, T=16]",
    ),
    "words with an x between them": (
        "self.layer = nn.Linear(12, 50)",
        "hidden",
        '"""\nhidden :: [len*bsz x steps x d_model]\n"""\nreturn self.layer(hidden)',
        "hidden: f32[B=2, T=16, 12]",
    ),
    "a list of sizes without brackets": (
        "self.layer = nn.Linear(12, 8)",
        "x",
        '"""\nx: B, H*W, C\n"""\nreturn self.layer(x)',
        "x: f32[B=2, T=16, 12]",
    ),
    "hidden sizes that are no heights": (
        "self.layer = nn.Linear(12, 8)",
        "x",
        '"""\nParameters\n----------\nx: 3D tensor, [B, T, H]\n"""\nreturn self.layer(x)',
        "x: f32[B=2, T=16, 12]",
    ),
    "sizes in two words, and one whose word stands first": (
        "self.members, self.d_state, self.d_action = 5, 12, 3\nself.weight = nn.Parameter(torch.zeros(5, 15, 8))",
        "states, actions",
        '"""\nArgs:\n    states (torch tensor): (members, batch size, dim_state)\n'
        '    actions (torch tensor): (members, batch size, dim_action)\n"""\n'
        "return torch.bmm(torch.cat((states, actions), dim=2), self.weight)",
        "states: f32[5, B=2, 12]; actions: f32[5, B, 3]",
    ),
    "another word for a size": (
        "self.embedding_dim = 20",
        "x",
        '"""\nArgs:\n    x: 3D tensor of shape ``(batch_size, T, embedding_size)``\n"""\n'
        "return x.sum(1) * self.embedding_dim",
        "x: f32[B=2, T=16, 20]",
    ),
    "the input of a section of shapes": (
        "self.scale = 2.0",
        "x",
        '"""\nShape:\n    - Input: :math:`(N, 5, L)`\n    - Output: :math:`(N, 5)`\n"""\n'
        "return x.mean(-1) * self.scale",
        "x: f32[B=2, 5, L=64]",
    ),
    "an input shape on its own line": (
        "self.scale = 2.0",
        "X",
        '"""\nInput shape\n  - 3D tensor with shape: ``(batch_size, field_size, 6)``.\n\n'
        "Output shape\n  - 2D tensor with shape: ``(batch_size, 1)``.\n"
        '"""\nreturn X.mean(-1) * self.scale',
        "X: f32[B=2, T=16, 6]",
    ),
    "windows of a batch": (
        "self.layer = nn.Linear(12, 8)",
        "x",
        '"""\nArgs:\n    x: features with shape of (num_windows*B, N, C)\n"""\nreturn self.layer(x)',
        "x: f32[B=2, N=8, 12]",
    ),
    "a type that is no size": (
        "self.layer = nn.Linear(12, 8)",
        "x",
        '"""\nArgs:\n    x (Tensor, optional): what (it, is)\n"""\nreturn self.layer(x)',
        "x: f32[B=2, 12]",
    ),
    "NxCxHxW": (
        "self.scale = 2.0",
        "target",
        '"""\nArgs:\n    target: maps of NxCxHxW\n"""\nreturn target / self.scale',
        "target: f32[B=2, 3, H=32, W=32]",
    ),
    "a size of one": (
        "self.layer = nn.Linear(8, 1)",
        "inputs",
        '"""inputs: a list of two tensors\n\n- query is a 3D tensor with shape: ``(batch_size, 1, embedding_size)``\n'
        '- keys is a 3D tensor with shape: ``(batch_size, T, embedding_size)``\n"""\n'
        "query, keys = inputs\nreturn self.layer(query * keys).squeeze(-1)",
        "inputs: (f32[B=2, 1, 8], f32[B, T=16, 8])",
    ),
    "an attribute": (
        "self.width = 24",
        "x",
        '"""\nShape:\n    x: :math:`(N, T, width)`\n"""\nreturn x.mean(1) * self.width',
        "x: f32[B=2, T=16, 24]",
    ),
    "an attribute with self": (
        "self.width = 24",
        "x",
        "# x: (B, T, self.width)\nreturn x.mean(1) * self.width",
        "x: f32[B=2, T=16, 24]",
    ),
    "a comment behind": (
        "self.width = 24",
        "x",
        "y = x * 2  # x: (batch_size, seq_len, 7)\nreturn y.mean(1) * self.width",
        "x: f32[B=2, T=16, 7]",
    ),
    "names of a pattern in a comment": (
        "self.width = 24",
        "x",
        "# x: b c h w\nreturn x.mean(1) * self.width",
        "x: f32[B=2, 3, H=32, W=32]",
    ),
    "an annotation in quotes": (
        "self.width = 24",
        "x: 'Float[Tensor, \"b t 6\"]', ids: 'Int[Tensor, \"b t\"]'",
        "return (x.sum(-1) * ids) * self.width",
        "x: f32[B=2, T=16, 6]; ids: i64[B, T] < 10",
    ),
    "a suffix": (
        "self.layer, self.cond = nn.Linear(12, 8), nn.Linear(5, 8)",
        "x_BLC, cond_BD",
        "return self.layer(x_BLC) + self.cond(cond_BD)[:, None]",
        "x_BLC: f32[B=2, T=16, 12]; cond_BD: f32[B, 5]",
    ),
    "labels that are classes": (
        "self.count = 5",
        "apart, given",
        '"""\n:param apart: distances with shape :math:`B \\\\times C`.\n'
        ':param given: ground truth labels with shape (batch_size).\n"""\n'
        "known = given >= 0\nif known.any():\n    apart, given = apart[known], given[known]\n"
        "hot = given[:, None].eq(torch.arange(self.count))\nreturn (apart.min() * hot.float()).mean()",
        "apart: f32[B=2, 64]; given: i64[B] < 10",
    ),
    "a size with its number": (
        "self.layer = nn.Linear(2, 8)",
        "x",
        "# x: (batch_size, steps, num_nodes, width+hour=3)\nreturn self.layer(x[..., :2]) * x[..., 2:]",
        "x: f32[B=2, T=16, S=12, 3]",
    ),
    "time in front": (
        "self.layer = nn.Linear(12, 8)",
        "src",
        '"""\nArgs:\n    src: the sequence, shape [seq_len, batch_size, 12]\n"""\nreturn self.layer(src)',
        "src: f32[T=16, B=2, 12]",
    ),
}


@pytest.mark.parametrize("kind", SAID)
def test_what_is_written_of_a_shape_comes_first(workspace, kind):
    *code, expected = SAID[kind]
    found = found_in(workspace, *code)
    assert runs_in_eager(found)
    assert format_inputs(found.spec) == expected


@pytest.mark.parametrize(
    ("of_class", "of_init"), [("x (Tensor): (B, T, width)", ""), ("", "The input x has shape (batch, time, width).")]
)
def test_the_docstrings_of_the_class_and_its_constructor_are_read(workspace, of_class, of_init):
    code = (
        f'{HEAD}{MORE}\nclass Net(nn.Module):\n    """A net.\n\n    {of_class}\n    """\n\n'
        f'    def __init__(self, width=18):\n        """Make it.\n\n        {of_init}\n        """\n'
        "        super().__init__()\n        self.width = width\n\n"
        "    def forward(self, x):\n        return x.mean(1)\n"
    )
    (found,) = looked_at(workspace, code)
    assert isinstance(found, Found), found.message
    assert format_inputs(found.spec) == "x: f32[B=2, T=16, 18]"


def test_the_docstring_of_the_class_that_an_input_is_handed_to_is_read(workspace):
    code = (
        f'{HEAD}{MORE}\nclass Reader(nn.Module):\n    """Read.\n\n    frames --- [N, T/r, bands]  mels\n    """\n\n'
        "    def __init__(self, bands=20):\n        super().__init__()\n        self.bands = bands\n\n"
        "    def forward(self, frames):\n        return frames.flatten(1)\n\n\n"
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.reader = Reader()\n\n"
        "    def forward(self, x):\n        return self.reader(x) * 2\n"
    )
    (found,) = [each for each in looked_at(workspace, code) if isinstance(each, Found) and each.name == "Net"]
    assert format_inputs(found.spec) == "x: f32[B=2, T=16, 20]"


def test_a_default_of_the_constructor_is_the_size_that_a_docstring_names(workspace):
    code = (
        f"{HEAD}{MORE}\nclass Net(nn.Module):\n    def __init__(self, embedding_dim=20):\n        super().__init__()\n"
        "        self.parts = nn.ModuleList([nn.Linear(4 * embedding_dim, 8)])\n\n"
        "    def forward(self, query, keys):\n"
        '        """- query is a 3D tensor with shape: ``(batch_size, 1, embedding_size)``\n'
        '        - keys is a 3D tensor with shape: ``(batch_size, T, embedding_size)``\n        """\n'
        "        query = query.expand(-1, keys.size(1), -1)\n"
        "        x = torch.cat([query, keys, query - keys, query * keys], -1)\n"
        "        for part in self.parts:\n            x = part(x)\n        return x\n"
    )
    (found,) = looked_at(workspace, code)
    assert isinstance(found, Found), found.message
    assert format_inputs(found.spec) == "query: f32[B=2, 1, 20]; keys: f32[B, T=16, 20]"


def test_the_reason_names_what_was_read(workspace):
    found = found_in(workspace, "self.scale = 2.0", "x", '"""x (Tensor): values (B, T)."""\nreturn x * self.scale')
    assert "x = its docstring says (B, T)" in found.found


def test_words_that_do_not_run_lose(workspace):
    found = found_in(
        workspace,
        "self.conv = nn.Conv2d(3, 8, 3)",
        "x",
        '"""x (Tensor): values (B, T)."""\nreturn self.conv(x)',
    )
    assert runs_in_eager(found)
    assert format_inputs(found.spec) == "x: f32[B=2, 3, H=32, W=32]"
