"""`mase-server inputs` and `shapes --set`: whole outputs; sizes and counts are worked out by hand."""

import json

import pytest

NET = """\
from torch import nn


# mase[small]: Net(width=5); x: f32[2, 5]
# mase[large]: Net(width=7); x: f32[8, 7]
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, 4)
        self.register_buffer("same", None)

    def forward(self, x):
        y = self.fc(x)
        return y
"""
LISTED = """\
model  sets (* is used)  inputs        found
Net    small* large      x: f32[2, 5]  inputs from comment [small]
"""
#: Read: input, weight and bias; written: the output; 4 bytes each.
COMPARED = """\
                  small      large
input x           f32[2, 5]  f32[8, 7]
output            f32[2, 4]  f32[8, 4]
parameters        24         32
FLOPs             80         448
read and written  168 B      480 B

   line  name    small      large
≠    12  x       f32[2, 5]  f32[8, 7]
≠    13  y       f32[2, 4]  f32[8, 4]
≠    14  return  f32[2, 4]  f32[8, 4]
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    path = tmp_path_factory.mktemp("sets") / "net.py"
    path.write_text(NET)
    return str(path)


def test_sets_are_listed_and_two_of_them_compared(mase, net):
    assert mase("inputs", net).stdout == LISTED
    done = mase("inputs", net, "small", "large")
    assert (done.returncode, done.stdout, done.stderr) == (0, COMPARED, "")


def test_json_is_what_the_api_tells(mase, net):
    [told] = json.loads(mase("inputs", net, "--format", "json").stdout)
    assert (told["model"], told["sets"], told["set"]) == ("Net", ["small", "large"], "small")
    compared = json.loads(mase("inputs", net, "small", "large", "--format", "json").stdout)
    assert [compared[side]["outputs"][1] for side in ("before", "after")] == [[2, 4], [8, 4]]


def test_without_any_set_is_a_side_too_and_what_is_missing_is_named(mase, net):
    told = mase("inputs", net, "-", "small").stdout
    assert told.splitlines()[0].split() == ["without", "a", "name", "small"]
    done = mase("inputs", net, "small", "huge")
    assert (done.returncode, done.stderr) == (2, "error: Net has no inputs named 'huge'; it has small, large\n")
    assert mase("inputs", net, "small").returncode == 2


def test_shapes_are_shown_of_a_named_set(mase, net):
    assert "y: f32[B, 4] = self.fc(x)" in mase("shapes", net).stdout
    done = mase("shapes", net, "--set", "large")
    assert "def forward(self, x: f32[B, 7]):" in done.stdout
    assert "inputs from comment [large]" in done.stdout
    done = mase("shapes", net, "--set", "huge")
    assert (done.returncode, done.stderr) == (2, "error: no model has inputs named 'huge'; write `# mase[huge]: ...`\n")
