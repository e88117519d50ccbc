"""From a file to a payload: against what eager binds, and against the contract of the payload itself."""

from __future__ import annotations

import hashlib
import os
import random
from dataclasses import astuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mase_server.ir.session import Session
from mase_server.protocol.request import TraceRequest
from mase_server.protocol.snapshot import COLUMNS, HEAD_KEYS, KINDS, MAX_SCOPES, Assembler, split_payload
from mase_server.worker import job
from tests.ground_truth.record import run_main
from tests.worker.jobs import HEADER, Job

MLP = """
class MLP(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc1 = nn.Linear(4, width)
        self.fc2 = nn.Linear(width, 2)

    def forward(self, x):
        h = F.relu(self.fc1(x))
        return self.fc2(h)
"""
MAIN = """
if __name__ == "__main__":
    model = MLP()
    out = model(torch.randn(3, 4))
    print(out.shape)
"""

FILES = {
    "main": MLP + MAIN,
    "tuples and loops": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x, scale=1.0):
        first, *rest = x.chunk(3, dim=0)
        for index, block in enumerate(self.blocks):
            x = block(x) * scale
        total = sum(rest)
        (a, b), c = x.topk(2), [total]
        with torch.no_grad():
            x += 1
        if (m := x.mean()) is not None:
            x[0] = m
        return {"x": x, "pair": (a, b), "c": c}


if __name__ == "__main__":
    net = Net().eval()
    result = net(torch.randn(6, 4), scale=2.0)
    y = result["x"].sum()
""",
    "helpers and nested modules": """
def double(value, by=2):
    out = value * by
    return out


class Inner(nn.Module):
    def forward(self, value):
        value = double(value)
        return value


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        y = self.inner(x)
        z = self.inner(y.view(-1))
        squares = [row * row for row in x]
        return z


if __name__ == "__main__":
    Outer()(torch.ones(2, 3))
""",
}


def described(value):
    """A payload's value as `ground_truth.record.describe` writes it."""
    if value is None:
        return None
    if isinstance(value, list):
        return (value[0], tuple(value[1]))
    if "tuple" in value:
        return ("tuple", tuple(described(item) for item in value["tuple"]))
    if "dict" in value:
        return ("dict", tuple((key, described(item)) for key, item in value["dict"].items()))
    return ("python", value["python"])


@pytest.mark.parametrize("name", FILES)
def test_every_row_is_what_python_itself_stored_there(name, tmp_path):
    job = Job(tmp_path, FILES[name])
    truth = {astuple(place): set(seen) for place, seen in run_main(job.path).items()}
    payload, shown = job.payload, {}
    sites = payload["sites"]
    for site, value in zip(payload["rows"]["site"], payload["rows"]["value"], strict=True):
        kind = sites["kind"][site]
        kind = kind if isinstance(kind, str) else KINDS[kind]
        columns = ("line", "column", "end_line", "end_column")
        place = (*(sites[c][site] for c in columns), kind, sites["name"][site], sites["function"][site])
        if kind != "expression":
            shown.setdefault(place, set()).add(described(payload["values"][value]))
    assert shown == truth


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return {name: Job(tmp_path_factory.mktemp("job"), text) for name, text in FILES.items()}


@pytest.mark.parametrize("name", FILES)
def test_columns_are_equally_long_and_indices_in_range(name, jobs):
    payload = jobs[name].payload
    counts = {}
    for table, names in COLUMNS.items():
        assert set(payload[table]) == set(names)
        (counts[table],) = {len(payload[table][column]) for column in names}
    assert counts["rows"] > 0
    assert counts["nodes"] > 0
    files, values, scopes, models = (len(payload[key]) for key in ("files", "values", "scopes", "models"))
    rows, nodes, sites = payload["rows"], payload["nodes"], payload["sites"]
    assert all(0 <= index < counts["sites"] for index in rows["site"])
    assert all(0 <= index < values for index in (*rows["value"], *nodes["value"]))
    assert all(-1 <= index < counts["nodes"] for index in rows["node"])
    assert all(-1 <= index < models for index in (*rows["model"], *nodes["model"]))
    assert all(-1 <= index < files for index in (*sites["file"], *nodes["file"]))
    assert all(0 <= index < scopes for index in (*nodes["scope"], *(i for found in rows["scopes"] for i in found)))
    assert all(len(found) <= MAX_SCOPES for found in rows["scopes"])
    assert all(0 <= model < models for model, _, _ in payload["scopes"])
    assert min(rows["count"]) >= 1


@pytest.mark.parametrize("name", FILES)
def test_a_payload_arrives_as_it_was_sent(name, jobs):
    sent = jobs[name].payloads[-1]
    assert jobs[name].payload == {key: sent[key] for key in (*HEAD_KEYS, *COLUMNS)}


@pytest.mark.parametrize("name", FILES)
def test_rows_point_to_the_node_that_made_their_value(name, jobs):
    payload = jobs[name].payload
    rows, nodes = payload["rows"], payload["nodes"]
    for value, node in zip(rows["value"], rows["node"], strict=True):
        if node >= 0 and isinstance(payload["values"][value], list):
            assert payload["values"][value][:2] == payload["values"][nodes["value"][node]][:2]


rows = st.integers(0, 1300)


@settings(deadline=None, max_examples=25)
@given(rows, rows, rows)
def test_any_payload_is_put_together_again(sites, values, nodes):
    numbers = random.Random(sites)
    sent = {key: numbers.random() for key in HEAD_KEYS} | {"transforms": []}
    for table, count in zip(COLUMNS, (sites, values, nodes), strict=True):
        sent[table] = {name: [numbers.random() for _ in range(count)] for name in COLUMNS[table]}
    assembler = Assembler()
    arrived = [done for frame in split_payload(sent) if (done := assembler.add(frame)) is not None]
    assert arrived == [sent]


def frames_of(count):
    sent = dict.fromkeys(HEAD_KEYS)
    sent |= {table: {name: list(range(count)) for name in names} for table, names in COLUMNS.items()}
    return list(split_payload(sent))


@pytest.mark.parametrize(
    ("choose", "message"),
    [
        (lambda frames: frames[1:2], r"a frame with keys .* arrived before any head"),
        (lambda frames: [frames[0], frames[2]], r"chunk of sites\.file starts at row 400, expected 0"),
        (lambda frames: [frames[0], frames[1], frames[-1]], r"table sites has 400 rows, expected 900"),
    ],
)
def test_frames_that_do_not_fit_are_refused(choose, message):
    assembler = Assembler()
    *good, bad = choose(frames_of(900))
    assert all(assembler.add(frame) is None for frame in good)
    with pytest.raises(ValueError, match=message):
        assembler.add(bad)


def test_the_head_says_what_was_traced(jobs):
    job = jobs["main"]
    payload = job.payload
    assert payload["file"] == str(job.path)
    assert payload["sha256"] == job.request.sha256
    assert (payload["generation"], payload["complete"]) == (3, True)
    assert payload["files"][0]["path"] == str(job.path)
    assert payload["files"][0]["library"] is False
    assert payload["torch"] == torch.__version__
    (model,) = payload["models"]
    assert (model["name"], model["inputs_from"], model["parameters"]) == ("MLP", "main", 4 * 8 + 8 + 8 * 2 + 2)
    assert model["generic"] is True
    assert model["symbols"] == {"B": 3}
    assert model["inputs"] == {"x": ["f32", [3, 4], ["B", "4"]]}
    assert job.text.splitlines()[model["line"] - 1][model["column"] : model["end_column"]] == "MLP"


def test_node_names_are_those_of_the_live_graph(jobs):
    job = jobs["tuples and loops"]
    names = [name for name in job.traced[0].node_names() if name is not None]
    assert job.payload["nodes"]["name"] == names
    assert len(set(names)) == len(names)


def test_without_main_the_inputs_are_searched_and_failed_tries_leave_no_rows(tmp_path):
    job = Job(tmp_path, MLP)
    assert job.payload["models"][0]["inputs_from"] == "search"
    assert job.value("x")[1][-1] == 4
    assert [row[:3] for row in job.rows()] == [(11, "parameter", "x"), (12, "binding", "h"), (13, "return", "")]
    assert set(job.payload["rows"]["count"]) == {1}


PICKY = """
class Picky(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = []
        self.fc = nn.Linear(7, 2)

    def forward(self, ids):
        self.seen.append(1)
        table = torch.ones(5, 7)
        rows = table[ids]
        if rows.dim() != 3:
            raise ValueError("batches of sequences only")
        return self.fc(rows)
"""


def test_tries_that_get_far_before_they_fail_leave_no_rows_either(tmp_path):
    job = Job(tmp_path, PICKY)
    assert not job.problems
    assert job.value("rows")[2][-1] == "7"
    assert len(job.value("rows")[1]) == 3
    assert job.traced[0].found.model.seen == []


def test_inputs_that_a_search_found_are_tried_first_next_time(tmp_path):
    first = Job(tmp_path, PICKY)
    again = Job(tmp_path, PICKY, fit=first.payload["fit"])
    assert again.payload["models"][0]["inputs"] == first.payload["models"][0]["inputs"]
    assert again.rows() == first.rows()


def test_inputs_with_which_the_forward_never_ran_are_searched_anew_once_it_is_mended(tmp_path):
    failing = Job(tmp_path, MLP.replace("return", "h.missing\n        return"))
    assert "the forward fails" in failing.payload["models"][0]["found"]
    plain, mended = Job(tmp_path, MLP).payload, Job(tmp_path, MLP, fit=failing.payload["fit"]).payload
    assert mended["models"][0]["found"] == plain["models"][0]["found"]
    assert mended["models"][0]["inputs"] == plain["models"][0]["inputs"]


def test_inputs_of_another_signature_are_forgotten_while_the_forward_fails(tmp_path):
    first = Job(tmp_path, MLP)
    failing = MLP.replace("x)", "pixels)").replace("return", "h.missing\n        return")
    again = Job(tmp_path, failing, fit=first.payload["fit"])
    assert again.payload["models"][0]["inputs"].keys() == {"pixels"}


GROWING = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.zeros(SIZE, 8))
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(x + self.table[: x.shape[1]])
"""


def test_a_constructor_that_makes_another_model_gets_inputs_as_if_the_file_was_opened_now(tmp_path):
    typed = Job(tmp_path, GROWING.replace("SIZE", "5"))
    fresh = Job(tmp_path, GROWING.replace("SIZE", "512"))
    again = Job(tmp_path, GROWING.replace("SIZE", "512"), fit=typed.payload["fit"])
    assert fresh.payload["models"][0]["symbols"] != typed.payload["models"][0]["symbols"]
    for key in ("inputs", "symbols", "found"):
        assert again.payload["models"][0][key] == fresh.payload["models"][0][key]


@pytest.mark.parametrize("decorator", ["property", "str"])
def test_a_constructor_that_cannot_be_called_hides_no_other_model(tmp_path, decorator):
    odd = MLP.replace("class MLP", "class Odd").replace("    def __init__", f"    @{decorator}\n    def __init__")
    job = Job(tmp_path, f"{odd}\n\n{MLP}")
    assert [each["name"] for each in job.payload["models"]] == ["MLP"]
    assert [each["code"] for each in job.problems] == ["no-arguments"]


@pytest.mark.parametrize(
    "check",
    ["if x.shape[1] != 48:\n            raise ValueError", "x = x if x.shape[1] > 40 else x.relu()"],
    ids=["refuses", "does otherwise"],
)
def test_a_check_that_is_gone_leaves_nothing_behind_in_the_symbols(tmp_path, check):
    text = MLP.replace("h = ", "pass\n        h = ") + "\n\nMLP()(torch.zeros(2, 48, 4))\n"
    checked, plain = Job(tmp_path, text.replace("pass", check)), Job(tmp_path, text)
    again = Job(tmp_path, text, fit=checked.payload["fit"])
    told = [[job.payload["models"][0][key] for key in ("symbols", "fixed", "generic")] for job in (again, plain)]
    assert told[0] == told[1] == [{"B": 2, "T": 48}, [], True]


@pytest.mark.parametrize("forward", ["[1]", "{}", "'soon'", "None"])
def test_a_forward_that_is_no_function_hides_no_other_model(tmp_path, forward):
    odd = f"class Odd(nn.Module):\n    forward = {forward}\n\n\n"
    holds = odd + MLP.replace("super().__init__()", "super().__init__()\n        self.odd = Odd()")
    call = "Odd()(torch.ones(2, 3))"
    job = Job(tmp_path, f"{holds}\n\n{call}\n")
    assert [each["name"] for each in job.payload["models"]] == ["Odd", "MLP"]
    (told,) = job.problems
    assert (told["code"], told["line"]) == ("forward-error", job.text.splitlines().index(call) + 1)
    assert "object is not callable" in told["message"]


def test_how_a_models_arguments_and_program_were_is_told_of_this_text_alone(tmp_path):
    text = MLP.replace("width=8", "width")
    broken = Job(tmp_path, f"{text}\n\nprint(unknown)\n")
    mended = Job(tmp_path, text.replace("width)", "width=8)", 1), fit=broken.payload["fit"])
    assert "guessed" in broken.payload["models"][0]["found"]
    assert "its own run ended" in broken.payload["models"][0]["found"]
    assert mended.payload["models"][0]["found"] == "found by search: x = tensor [B, 4], first used by fc1"


@pytest.mark.parametrize("fit", [b"", b"no json", b"[]", b"{}", b'{"version": 999, "inputs": {}}', b"null", b"\xff"])
def test_a_memory_that_nobody_understands_is_forgotten(tmp_path, fit):
    assert Job(tmp_path, MLP, fit=fit).value("h")[2] == ["B", "8"]


FAILING = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(9, 2)

    def forward(self, x):
        h = self.fc1(x)
        wide = h * 2
        out = self.fc2(wide)
        return out


if __name__ == "__main__":
    Net()(torch.randn(3, 4))
"""


def test_a_failing_forward_shows_what_came_before_with_symbols_and_one_problem_at_the_line(tmp_path):
    job = Job(tmp_path, FAILING)
    assert job.value("wide") == ["f32", [3, 8], ["B", "8"]]
    assert [name for *_, name, _ in job.rows()] == ["x", "h", "wide"]
    (problem,) = job.problems
    line = job.text.splitlines()[problem["line"] - 1]
    assert line == "        out = self.fc2(wide)"
    assert problem["severity"] == "error"
    assert "8" in problem["message"]
    assert "9" in problem["message"]
    assert line[problem["column"] : problem["end_column"]] in line


def test_an_error_that_only_meta_has_is_not_told(tmp_path):
    job = Job(
        tmp_path,
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        h = self.fc(x)
        if h.sum().item() > 1e9:
            return h
        return h[h.abs() > 1e9]


if __name__ == "__main__":
    Net()(torch.randn(3, 4))
""",
    )
    assert job.problems == []
    assert job.payload["models"][0]["rung"] == "real"
    assert [value[1] for *_, kind, _, value in job.rows() if kind == "return"] == [[0]]


def test_two_models_of_a_file_have_their_own_nodes_scopes_and_symbols(tmp_path):
    job = Job(
        tmp_path,
        MLP
        + """
class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, image):
        return self.conv(image)


if __name__ == "__main__":
    MLP()(torch.randn(3, 4))
    Conv()(torch.randn(2, 3, 32, 32))
""",
    )
    payload = job.payload
    names = [model["name"] for model in payload["models"]]
    for model in payload["nodes"]["model"], (one for one, _, _ in payload["scopes"]):
        assert set(model) == set(range(len(names)))
    assert "MLP" in names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("class Net(nn.Module:\n    pass\n", "SyntaxError"),
        ("FOUR = 4 / 0\n" + MLP.replace("nn.Linear(", "nn.Linear(FOUR + "), "division by zero"),
    ],
)
def test_files_that_cannot_be_imported_give_one_problem_at_the_line_and_empty_tables(tmp_path, text, words):
    job = Job(tmp_path, text)
    (problem,) = job.problems
    assert (problem["line"], problem["severity"]) == (HEADER.count("\n") + 1, "error")
    assert words in problem["message"]
    assert job.payload["models"] == []
    assert job.payload["nodes"]["name"] == []
    assert job.payload["complete"] is True


@pytest.mark.parametrize(
    ("text", "severity"), [("import a_package_that_nobody_has\n", "warning"), ("1 / 0\n", "error")]
)
def test_what_does_without_a_statement_that_fails_is_shown_beside_the_problem(tmp_path, text, severity):
    job = Job(tmp_path, text + MLP)
    (problem,) = job.problems
    assert (problem["line"], problem["severity"]) == (HEADER.count("\n") + 1, severity)
    assert [model["name"] for model in job.payload["models"]] == ["MLP"]


def test_columns_are_code_points_where_the_line_holds_wide_characters(tmp_path):
    job = Job(
        tmp_path,
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        note = "🧠🧠"; 变量 = self.fc(x); return 变量 + 1


if __name__ == "__main__":
    Net()(torch.randn(3, 4))
""",
    )
    payload = job.payload
    lines, nodes = job.text.splitlines(), payload["nodes"]
    found = {
        nodes["name"][row]: lines[nodes["line"][row] - 1][nodes["column"][row] : nodes["end_column"][row]]
        for row in range(len(nodes["name"]))
        if nodes["file"][row] >= 0
    }
    assert found == {"fc": "self.fc(x)", "add": "变量 + 1"}
    sites = payload["sites"]
    for row, name in enumerate(sites["name"]):
        if name == "变量":
            line = lines[sites["line"][row] - 1]
            assert line[sites["column"][row] : sites["end_column"][row]] == name


def test_stages_are_told_in_order(jobs):
    stages = [event["stage"] for event in jobs["main"].events if event.get("event") == "stage"]
    assert stages == ["importing", "tracing", "probing"]


def test_nodes_without_a_function_of_torch_have_names_that_a_person_understands(tmp_path):
    job = Job(
        tmp_path,
        """
import numpy as np

TABLE, KEPT = np.ones(4, dtype=np.float32), torch.ones(4)


class Net(nn.Module):
    def forward(self, x):
        mask = torch.from_numpy(TABLE)
        return torch.vmap(lambda row: row * 2)(x) + torch.nn.Parameter(KEPT)


if __name__ == "__main__":
    Net()(torch.randn(3, 4))
""",
    )
    assert job.problems == []
    names = job.payload["nodes"]["target"]
    assert names[:2] == ["x", "vmap"]
    assert all(name.isidentifier() for name in names)


def test_a_size_that_only_equals_the_batch_is_not_called_so(tmp_path):
    text = (
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.a, self.b = nn.Linear(4, 16), nn.Linear(5, 2)\n\n"
        "    def forward(self, x):\n        return self.b(self.a(x))\n\n\n"
        'if __name__ == "__main__":\n    Net()(torch.randn(16, 4))\n'
    )
    (problem,) = Job(tmp_path, text).payload["problems"]
    assert "f32[B=16, 16]" in problem["message"]


SEVERAL = """
class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 3)

    def forward(self, x):
        first = self.fc(x)
        return first


class Second(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(9, 3)

    def forward(self, x):
        second = self.fc(x)
        return second
"""


def models_of(payload):
    return [model["name"] for model in payload["models"]]


def test_a_model_that_was_found_is_not_held_back_by_the_search_for_another(tmp_path, monkeypatch):
    monkeypatch.setattr("mase_server.worker.job.GLANCE", -1.0)
    job = Job(tmp_path, SEVERAL)
    assert [models_of(payload) for payload in job.payloads] == [["First"], ["First", "Second"], ["First", "Second"]]
    assert [payload["complete"] for payload in job.payloads] == [False, False, True]
    first = job.payloads[0]
    assert ["f32", [2, 3], None] in first["values"]


def test_what_takes_no_longer_than_a_glance_is_sent_once(tmp_path, monkeypatch):
    monkeypatch.setattr("mase_server.worker.job.GLANCE", 1e9)
    job = Job(tmp_path, SEVERAL)
    assert [payload["complete"] for payload in job.payloads] == [True]


def test_numbers_come_before_probing_that_takes_longer_than_a_glance(tmp_path, monkeypatch):
    """Every run at other sizes takes a second: there are several, and what is sent is sent before the last of them."""
    clock = [0.0]

    def slowly(self, sizes, record_at=Session.record_at):
        clock[0] += 1.0
        return record_at(self, sizes)

    monkeypatch.setattr(Session, "record_at", slowly)
    monkeypatch.setattr("mase_server.worker.job.time", SimpleNamespace(perf_counter=lambda: clock[0]))
    job = Job(tmp_path, SEVERAL.partition("class Second")[0])
    assert [payload["complete"] for payload in job.payloads] == [False, True]
    assert job.payloads[0]["seconds"] < job.payloads[1]["seconds"]


def test_what_has_no_text_of_its_own_hides_nothing(tmp_path):
    job = Job(
        tmp_path,
        """
        class Plain:
            width = 8

        class Silent:
            width = 8

            def __repr__(self):
                raise RuntimeError("no text")

        class Layer(nn.Linear):
            def extra_repr(self):
                return self.name_that_is_absent

        class Net(nn.Module):
            def __init__(self, plain, silent):
                super().__init__()
                self.layer = Layer(plain.width, silent.width)

            def forward(self, x, plain, silent):
                return torch.relu(self.layer(x))

        if __name__ == "__main__":
            Net(Plain(), Silent())(torch.randn(3, 8), Plain(), Silent())
        """,
    )
    assert job.problems == []
    [model] = [each for each in job.payload["models"] if each["name"] == "Net"]
    assert model["arguments"] == {"plain": "<__main__.Plain object>", "silent": "Silent"}


@pytest.mark.parametrize(
    "method",
    ["repr", "str", "hash", "eq", "bool", "len", "iter", "contains", "getitem", "getattr", "copy", "deepcopy", "dir"],
)
def test_an_object_whose_methods_raise_hides_nothing(tmp_path, method):
    job = Job(
        tmp_path,
        f"""
        class Odd:
            width = 8

            def __{method}__(self, *args):
                raise RuntimeError(args)

        class Net(nn.Module):
            def __init__(self, odd):
                super().__init__()
                self.odd, self.held = odd, [odd, {{"odd": odd}}]
                self.layer = nn.Linear(odd.width, 8)

            def forward(self, x, odd, options):
                if options["odd"] is odd:
                    x = x + 1
                h = self.layer(x)
                return h, odd

        if __name__ == "__main__":
            odd = Odd()
            Net(odd)(torch.randn(3, 8), odd, {{"odd": odd}})
        """,
    )
    assert job.problems == []
    assert job.value("h")[:2] == ["f32", [3, 8]]


def test_a_tensor_that_results_are_written_into_has_their_size_and_values(tmp_path):
    job = Job(
        tmp_path,
        """
        class Net(nn.Module):
            def forward(self, x):
                total = torch.zeros(3)
                torch.add(x.abs(), 1.0, out=total)
                whole = total
                part = total[:1] if total.sum() > 0 else total
                return whole, part

        if __name__ == "__main__":
            Net()(torch.randn(4, 5))
        """,
    )
    assert [each["severity"] for each in job.problems if each["severity"] == "error"] == []
    assert (job.value("whole")[1], job.value("part")[1]) == ([4, 5], [1, 5])


@pytest.mark.parametrize("layout", ["layout=torch.jagged", "layout=torch.strided"])
def test_a_nested_tensor_is_told_as_what_tracing_does_not_follow(tmp_path, layout):
    job = Job(
        tmp_path,
        f"""
        class Net(nn.Module):
            def forward(self, x, y):
                first = x + 1
                rows = torch.nested.nested_tensor([first, y], {layout})
                return torch.relu(rows).to_padded_tensor(0.0)

        if __name__ == "__main__":
            Net()(torch.randn(3, 8), torch.randn(5, 8))
        """,
    )
    (problem,) = job.problems
    assert (problem["severity"], problem["code"], problem["line"]) == ("warning", "value-dependent", 8)
    assert problem["message"].startswith("A nested tensor is not traced: its rows have sizes of their own.")
    assert job.value("first")[:2] == ["f32", [3, 8]]


def test_a_file_that_is_saved_while_it_is_read_is_shown_as_the_text_that_is_named(tmp_path, monkeypatch):
    """Two saves in a moment: what runs is the text whose hash the payload tells, not the one after it."""
    texts = {width: HEADER + MLP.replace("width=8", f"width={width}") + MAIN for width in (8, 6)}
    install = job.install

    def save_and_install(*given):
        (tmp_path / "model.py").write_text(texts[6])
        return install(*given)

    monkeypatch.setattr(job, "install", save_and_install)
    traced = Job(tmp_path, MLP + MAIN)
    assert traced.payload["sha256"] == hashlib.sha256(texts[8].encode()).hexdigest()
    assert {value[1][-1] for _, _, name, value in traced.rows() if name == "h"} == {8}


def test_the_packages_of_an_unsaved_text_are_those_that_the_text_asks_for(tmp_path):
    """The file on disk has no relative import, and reading it would not end where it is a pipe."""
    text = b"""\
import torch
from torch import nn
from ..parts import WIDTH


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, WIDTH)

    def forward(self, x):
        return self.layer(x)
"""
    path = tmp_path / "work" / "kit" / "inner" / "net.py"
    path.parent.mkdir(parents=True)
    (tmp_path / "work" / "kit" / "parts.py").write_text("WIDTH = 5\n")
    os.mkfifo(path)
    sha256 = hashlib.sha256(text).hexdigest()
    sent: list[dict[str, Any]] = []
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    request = TraceRequest(str(path), str(tmp_path / "work"), sha256, 1, scratch=str(scratch), texts={str(path): text})
    job.trace(request, sent.append)
    payload = next(message["payload"] for message in reversed(sent) if "payload" in message)
    assert [model["name"] for model in payload["models"]] == ["Net"]
    assert payload["models"][0]["parameters"] == 25


DRAWS = """
import random
import numpy

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(random.randint(1, 10**6), numpy.random.randint(1, 10**6))

    def forward(self, x):
        h = self.layer(x)
        return h[: int(torch.randint(1, 10**6, ()))]

Net()(torch.zeros(10**6, 4))
"""


def test_each_process_draws_the_same_numbers_for_the_same_text(tmp_path: Path) -> None:
    """Else sizes, values and hardware would change each time that a warm parent is started again."""
    told = []
    for seed in (1, 2):
        random.seed(seed)
        torch.manual_seed(seed)
        numpy.random.seed(seed)
        told.append([problem["message"] for problem in Job(tmp_path, DRAWS).problems])
    assert told[0] == told[1]
    assert "Linear" in str(told[0])
