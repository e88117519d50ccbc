"""A model file without a mistake, and the shapes in it that a person would work out."""

GOOD = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.a = nn.Linear(8, width)
        self.b = nn.Linear(width, 3)

    def forward(self, x):
        h = self.a(x).relu()
        return self.b(h)


if __name__ == "__main__":
    Net()(torch.randn(4, 8))
"""
#: What stands behind each of these texts of GOOD.
SEEN = {"x": ": f32[B, 8]", "h": ": f32[B, 16]", "self.b(h)": " -> f32[B, 3]"}


def good(width=16):
    """GOOD with another width."""
    return GOOD.replace("width=16", f"width={width}")


def seen(width=16):
    """SEEN with another width."""
    return {name: label.replace("16", str(width)) for name, label in SEEN.items()}


def by_name(hints, text):
    """{text in front of the hint: label} for the names of SEEN."""
    lines = text.split("\n")
    ends = {name: [hint for (line, column), hint in hints.items() if lines[line][:column].endswith(name)]
            for name in SEEN}  # fmt: skip
    return {name: found[0] for name, found in ends.items() if found}
