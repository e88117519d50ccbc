"""What the comparison counts: answers and places worked out by hand, and tools that speak as the real ones do."""

import sys
from pathlib import Path

import pytest
from comparison import judged, numbers, placed
from plain_lsp import Server
from rivals import Environment, found_by_pyrefly, found_by_torchshapeflow, found_by_torchtyc

from tests.bugs.bugs import Bug, clean_text

ROOT = Path(__file__).parents[2]

SEEN = {(4, 64, 128)}


@pytest.mark.parametrize(
    ("tool", "answer", "verdict"),
    [
        ("mase-server", "**y** in `Net.forward`\n\n`f32[B, T, 128]`", "full"),
        ("mase-server", "`f32[4, 64, 128]`", "full"),
        ("mase-server", "`fixed(8,4)[B, T, 128]`", "full"),
        ("mase-server", "`f32[B, ?, 128]`", "partial"),
        ("mase-server", "`f32[B, T, 256]`", "wrong"),
        ("mase-server", "`f32[B, 128]`", "wrong"),
        ("mase-server", "no tensor", "none"),
        ("pyrefly", "(variable) x: torch.Tensor[[4, T // 2, 128]]", "full"),
        ("pyrefly", "(variable) x: torch.Tensor[[*tuple[int, ...], 128]]", "partial"),
        ("pyrefly", "(variable) x: torch.Tensor[[*tuple[int, ...], int]]", "none"),
        ("pyrefly", "(variable) x: torch.Tensor[[int, int, 128]]", "partial"),
        ("pyrefly", "(variable) x: torch.Tensor[[4, 64]]", "wrong"),
        ("pyrefly", "(variable) x: Tensor", "none"),
        ("torchshapeflow", "[B, T, 128]", "full"),
        ("torchtyc", "x: (4, 64, 128)", "full"),
    ],
)
def test_an_answer_is_judged_by_what_eager_execution_has(tool, answer, verdict):
    assert judged(answer, tool, SEEN) == verdict


def test_of_a_line_that_ran_at_several_sizes_each_has_to_be_one_that_was_seen():
    seen = {(32, 64), (32, 16)}
    assert judged("`f32[B, 64|16]`", "mase-server", seen) == "full"
    assert judged("`f32[B, 64|17]`", "mase-server", seen) == "wrong"
    assert numbers("64|16") == {64, 16}
    assert numbers("T // 2") == set()


def test_a_scalar_has_no_dimensions_and_all_of_them_are_told():
    assert judged("`f32[]`", "mase-server", {()}) == "full"
    assert judged("`f32[1]`", "mase-server", {()}) == "wrong"


def test_a_bug_is_found_at_its_line_and_not_by_what_is_said_of_the_clean_file_too():
    bug = Bug(
        "width", "examples/mlp", "nn.Linear(widths[-1], num_classes)", "nn.Linear(3, num_classes)", "self.head(x)", ""
    )
    assert bug.lines() == [1 + clean_text("examples/mlp").split("\n").index("        logits = self.head(x)")]
    [line] = bug.lines()
    assert placed(bug, {line}, {}) == "line"
    assert placed(bug, {3}, {}) == "elsewhere"
    assert placed(bug, set(), {}) == "no"
    assert placed(bug, {3, line}, {"examples_mlp.py": {3, line}}) == "no"


#: What each tool printed of one error in line 20 of a.py, cut to what is read.
PRINTED = {
    found_by_pyrefly: '{"errors": [{"line": 20, "path": "/x/a.py", "name": "bad-argument-type"}]}',
    found_by_torchshapeflow: '{"files": [{"path": "/x/a.py", "diagnostics": [{"line": 20}], "hovers": []}]}',
    found_by_torchtyc: '{"diagnostics": [{"line": 19, "severity": "error"}, {"line": 3, "severity": "info"}]}',
}


@pytest.mark.parametrize("find", PRINTED, ids=lambda find: find.__name__)
def test_errors_are_read_as_each_tool_prints_them(find, tmp_path):
    (tmp_path / "a.py").write_text('if __name__ == "__main__":\n    pass\n')
    (tmp_path / "bin").mkdir()
    for name in ("pyrefly", "tsf", "torchtyc"):
        tool = tmp_path / "bin" / name
        tool.write_text(f"#!/bin/sh\ncat <<'END'\n{PRINTED[find]}\nEND\nexit 1\n")
        tool.chmod(0o755)
    assert find(Environment(tmp_path), tmp_path) == {"a.py": {20}}


SPOKEN = """
import json, sys
def send(**message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\\r\\nContent-Type: x\\r\\n\\r\\n" % len(body) + body)
    sys.stdout.buffer.flush()
def receive():
    length = int(sys.stdin.buffer.readline().split(b":")[1])
    sys.stdin.buffer.readline()
    return json.loads(sys.stdin.buffer.read(length))
while (message := receive())["method"] != "exit":
    if message["method"] == "textDocument/didSave":
        # What was saved is on the disk by then, and was typed before.
        where = message["params"]["textDocument"]["uri"]
        with open(where.removeprefix("file://")) as file:
            send(method="textDocument/publishDiagnostics", params={"uri": where, "diagnostics": [typed, file.read()]})
    if message["method"] == "textDocument/didChange":
        typed = message["params"]["contentChanges"][0]["text"]
    if message["method"] == "textDocument/didOpen":
        send(id=1, method="workspace/configuration", params={"items": [{}, {}]})
        assert receive() == {"jsonrpc": "2.0", "id": 1, "result": [None, None]}
        send(method="textDocument/publishDiagnostics", params={
            "uri": message["params"]["textDocument"]["uri"], "diagnostics": ["it"]})
    if "id" in message:
        hover = {"contents": [{"value": "a"}, "b"]} if message["method"].endswith("hover") else {}
        send(id=message["id"], result=hover)
"""


def test_a_server_is_answered_and_asked_in_plain_json(tmp_path):
    (tmp_path / "server.py").write_text(SPOKEN)
    with Server([sys.executable, str(tmp_path / "server.py")], tmp_path) as server:
        server.open(tmp_path / "server.py")
        assert server.published(tmp_path / "server.py") == ["it"]
        server.change(tmp_path / "server.py", "")
        assert server.hover(tmp_path / "server.py", 0, 0) == "a\nb"


def test_a_save_is_typed_first_and_then_on_the_disk(tmp_path):
    (tmp_path / "server.py").write_text(SPOKEN)
    model = tmp_path / "model.py"
    model.write_text("old")
    with Server([sys.executable, str(tmp_path / "server.py")], tmp_path) as server:
        server.open(model)
        server.published(model)
        server.save(model, "new")
        assert server.published(model) == ["new", "new"]
