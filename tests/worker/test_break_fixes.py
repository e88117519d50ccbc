"""What is advised at a graph break, and the edits that are tried: by the source alone.

tests/cli/test_compile.py compiles models with them. Here each edit's text is worked out by hand.
"""

import textwrap

import pytest

from mase_server.worker.transforms.break_fixes import BreakScene

HEAD = "import copy\nimport logging\nimport math\n\nimport numpy as np\nimport torch\n\n\ndef forward(h, seen):\n"
BRANCH, NUMBER, HIDDEN = "The branch depends on values", "A number of Python needs the tensor's value", "Nothing can be"
#: The body, PyTorch's reason, the beginning of the advice, and the body after one of the edits; None without an edit.
CASES = {
    "print": ('print("here", h)', "Failed to trace builtin operator", HIDDEN,
              'if not torch.compiler.is_compiling():\n    print("here", h)'),
    "logging": ("logging.info('%s', h)", "logging", HIDDEN,
                "if not torch.compiler.is_compiling():\n    logging.info('%s', h)"),
    "assert": ("assert h.sum() > 0", "Data-dependent branching", "The check depends on values",
               "if not torch.compiler.is_compiling():\n    assert h.sum() > 0"),
    "raise": ("if h.isnan().any():\n    raise ValueError('nan')", "Data-dependent branching",
              "The check depends on values",
              "if not torch.compiler.is_compiling() and (h.isnan().any()):\n    raise ValueError('nan')"),
    "asked": ("torch._dynamo.graph_break()", "Call to `torch._dynamo.graph_break()`", "The break is asked for", "pass"),
    "returns": ("if h.sum() > 0:\n    return h + 1\nreturn h - 1", "Data-dependent branching", BRANCH,
                "return torch.where(h.sum() > 0, h + 1, h - 1)"),
    "both return": ("if h.sum() > 0:\n    return h + 1\nelse:\n    return h", "Data-dependent branching", BRANCH,
                    "return torch.where(h.sum() > 0, h + 1, h)"),
    "assigns": ("if h.sum() > 0 and h.min() > 1:\n    h = h * 2\nelse:\n    h = h / 2", "Data-dependent branching",
                BRANCH, "h = torch.where(torch.logical_and(h.sum() > 0, h.min() > 1), h * 2, h / 2)"),
    "assigns or not": ("if not h.any():\n    h = h + 1", "Data-dependent branching", BRANCH,
                       "h = torch.where(torch.logical_not(h.any()), h + 1, h)"),
    "adds": ("if h.sum() > 0:\n    h += 1", "Data-dependent branching", BRANCH,
             "h = torch.where(h.sum() > 0, h + 1, h)"),
    "chooses": ("h = h + 1 if h.sum() > 0 else h", "Data-dependent branching", BRANCH,
                "h = torch.where(h.sum() > 0, h + 1, h)"),
    "says why": ("# first\nif h.sum() > 0:  # large\n    # more\n    h = h + 1  # rest", "Data-dependent branching",
                 BRANCH, "# first\n# large\n# more\nh = torch.where(h.sum() > 0, h + 1, h)  # rest"),
    "runs one side": ("if h.sum() > 0:\n    h = seen(h)", "Data-dependent branching", BRANCH,
                      "h = torch.cond(h.sum() > 0, lambda: seen(h), lambda: h.clone())"),
    "equal": ("h = h + 1 if torch.equal(h, seen) else h", "Data-dependent branching", BRANCH,
              "h = torch.where((h == seen).all(), h + 1, h)"),
    "allclose": ("h = h + 1 if torch.allclose(h, seen) else h", "Data-dependent branching", BRANCH,
                 "h = torch.where(torch.isclose(h, seen).all(), h + 1, h)"),
    "item": ("h = h * h.max().item()", "Unsupported Tensor.item() call", NUMBER, "h = h * h.max()"),
    "float": ("h = h * float(h.max() + 1)", "Unsupported Tensor.item() call", NUMBER, "h = h * (h.max() + 1).float()"),
    "int": ("h = h * int(h.max())", "Unsupported Tensor.item() call", NUMBER, "h = h * h.max().long()"),
    "math": ("h = h * math.sqrt(h.max())", "Data dependent operator", NUMBER, "h = h * torch.sqrt(h.max())"),
    "numpy": ("h = torch.from_numpy(np.exp(h.numpy()))", "Data dependent operator", NUMBER, "h = torch.exp(h)"),
    "tensor": ("h = torch.tensor(h.item())", "Unsupported Tensor.item() call", NUMBER, "h = h.clone()"),
    "copy": ("h = copy.deepcopy(h)", "Attempted to call function marked as skipped", "The call is not part of a graph",
             "h = h.clone()"),
    "list": ("many = []\nmany.append(h.max().item())\nh = torch.tensor(many)", "Unsupported Tensor.item() call", NUMBER,
             "many = []\nmany.append(h.max())\nh = torch.stack(many)"),
    "mask": ("h = h[h > 0]", "Dynamic shape operator", "The size of the result depends on values", None),
    "other": ("h = seen.call(h)", "a reason of a later torch", "its own hint", None),
}  # fmt: skip


def edited(text, edits):
    """The text with the edits in it, the last one first."""
    lines = text.split("\n")
    for edit in sorted(edits, key=lambda each: (each["line"], each["column"]), reverse=True):
        first, last = lines[edit["line"] - 1], lines[edit["end_line"] - 1]
        new = f"{first[: edit['column']]}{edit['new_text']}{last[edit['end_column'] :]}"
        lines[edit["line"] - 1 : edit["end_line"]] = new.split("\n")
    return "\n".join(lines)


@pytest.mark.parametrize("name", CASES)
def test_a_break_has_advice_and_edits_to_try(name):
    body, reason, advice, after = CASES[name]
    text = HEAD + textwrap.indent(body, "    ") + "\n"
    line = HEAD.count("\n") + (2 if name in ("list", "says why") else 1)
    scene = BreakScene("net.py", text, line)
    assert scene.column == 4
    assert scene.advise(reason, ["its own hint"]).startswith(advice)
    found = [edited(text, each.edits) for each in scene.list_candidates()]
    if after is None:
        assert found == []
    else:
        assert HEAD + textwrap.indent(after, "    ") + "\n" in found


def test_without_torch_by_its_name_nothing_is_edited():
    text = "from torch import nn\n\n\ndef forward(h):\n    print(h)\n"
    assert list(BreakScene("net.py", text, 5).list_candidates()) == []


def test_the_opposite_of_a_branch_is_tried_with_the_text_as_it_is_and_with_the_fix():
    text = HEAD + "    if h.sum() > 0:\n        h = h + 1\n"
    candidate = next(iter(BreakScene("net.py", text, HEAD.count("\n") + 1).list_candidates()))
    asked, mended = candidate.opposite
    assert "if not (h.sum() > 0):" in edited(text, asked)
    assert "torch.where(torch.logical_not(h.sum() > 0), h + 1, h)" in edited(text, mended)
