"""`mase-server graph` and `mase-server draw` on models that a daemon has: whole outputs, worked out by hand."""

import json
import re

import pytest

NESTED = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.fc(x).relu()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)


if __name__ == "__main__":
    Net()(torch.randn(3, 4))
"""
TABLE = """\
node        operator     result     from         FLOPs  line
x           placeholder  f32[B, 4]
blocks
  0: Block
    fc      linear       f32[B, 4]  x               96  11
    relu    relu         f32[B, 4]  fc              12  11
    add     add          f32[B, 4]  x, relu         12  11
  1: Block
    fc      linear       f32[B, 4]  add             96  11
    relu_1  relu         f32[B, 4]  fc              12  11
    add_1   add          f32[B, 4]  add, relu_1     12  11
out         linear       f32[B, 2]  add_1           48  23
output      output       f32[B, 2]  out
"""


@pytest.fixture(scope="module")
def nested(live):
    return live.write("nested.py", NESTED).name


def test_the_table_has_a_row_for_each_node_under_its_modules(live, nested):
    done = live.process("graph", nested)
    head, _, table = done.stdout.partition("\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"Net \(nested\.py\): 50 parameters · .* · 9 nodes · .* · traced in \d+ ms", head)
    assert table == TABLE


def test_a_scope_is_a_module_with_all_below_it(live, nested):
    rows = live("graph", nested, "--scope", "blocks.1").stdout.splitlines()[2:]
    assert [row.split()[0] for row in rows] == ["blocks", "1:", "fc", "relu_1", "add_1"]
    told = json.loads(live("graph", nested, "--scope", "blocks.1", "--format", "json").stdout)
    assert [node["name"] for node in told["nodes"]] == ["blocks_1_fc", "relu_1", "add_1"]
    assert told["nodes"][0]["inputs"] == ["add"]


def test_json_has_names_in_place_of_numbers(live, nested):
    told = json.loads(live("graph", nested, "--format", "json").stdout)
    assert set(told) == {"file", "model", "stale", "complete", "modules", "nodes"}
    assert (told["model"], told["stale"]) == ("Net", False)
    assert told["modules"]["blocks.0"] == "Block"
    add = next(node for node in told["nodes"] if node["name"] == "add_1")
    assert (add["mase_op"], add["scope"], add["inputs"], add["line"]) == ("add", "blocks.1", ["add", "relu_1"], 11)
    assert add["value"] == {"dtype": "f32", "shape": [3, 4], "symbols": ["B", "4"]}


def test_graphviz_has_boxes_for_modules_and_shapes_on_edges(live):
    assert (
        live("graph", "net.py", "--format", "dot").stdout
        == """\
digraph "Net" {
  node [shape=box, style=rounded, fontname="sans-serif"];
  edge [fontname="sans-serif", fontsize=10];
  "x" [label="x: placeholder"];
  "a" [label="a: linear"];
  "relu" [label="relu"];
  "b" [label="b: linear"];
  "output" [label="output"];
  "x" -> "a" [label="f32[B, 8]"];
  "a" -> "relu" [label="f32[B, 64]"];
  "relu" -> "b" [label="f32[B, 64]"];
  "relu" -> "output" [label="f32[B, 64]"];
  "b" -> "output" [label="f32[B, 3]"];
}
"""
    )


def test_mermaid_has_subgraphs_for_modules(live, nested):
    lines = live("graph", nested, "--format", "mermaid").stdout.splitlines()
    assert lines[:7] == [
        "flowchart TD",
        '  n0["x: placeholder"]',
        '  subgraph "blocks" ["blocks"]',
        '    subgraph "blocks.0" ["0: Block"]',
        '      n1["fc: linear"]',
        '      n2["relu"]',
        '      n3["add"]',
    ]
    assert lines.count("    end") == 2
    assert '  n0 -->|"f32[B, 4]"| n1' in lines


def test_without_a_daemon_it_says_the_same(live, nested):
    alone, attached = live("graph", nested, "--no-daemon"), live("graph", nested)
    assert alone.stdout.partition("\n")[2] == attached.stdout.partition("\n")[2] == TABLE


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--model", "Nett"), "error: {}/nested.py has no model 'Nett'; did you mean 'Net'? It has Net\n"),
        (("--scope", "blocks.7"), "error: Net has no module 'blocks.7'\n"),
    ],
)
@pytest.mark.parametrize("daemon", ["--daemon", "--no-daemon"])
def test_what_is_not_there_is_named(live, nested, options, told, daemon):
    done = live("graph", nested, daemon, *options)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told.format(live.folder))


def test_a_drawing_is_written_or_printed(live, nested):
    done = live("draw", nested, "-o", "drawn.svg")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    svg = (live.folder / "drawn.svg").read_text()
    assert svg.startswith("<svg")
    assert svg.rstrip().endswith("</svg>")
    assert "blocks.1" in svg
    assert live("draw", nested, "-o", "-").stdout.rstrip() == svg.rstrip()


def test_a_drawing_that_cannot_be_written_is_wrong_usage(live, nested):
    done = live("draw", nested, "-o", "nowhere/drawn.svg")
    assert (done.returncode, done.stderr) == (2, "error: cannot write nowhere/drawn.svg: No such file or directory\n")
