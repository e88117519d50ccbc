"""Files of other people, judged: which count, what is compared, and that a wrong shape is found out."""

from __future__ import annotations

import hashlib
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

NET = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc = nn.Linear(4, width)

    def forward(self, x):
        hidden = self.fc(x)
        return hidden.relu()
"""

UNREACHABLE = """

class Odd(nn.Module):
    def __init__(self, recipe):
        super().__init__()
        self.layer = recipe.cook("soup").layer_of(recipe)

    def forward(self, x):
        return self.layer(x)
"""


@pytest.fixture(scope="module")
def scripts():
    """The modules of benchmarks/, which is no package, by name."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield {name: importlib.import_module(name) for name in ("forks", "judge", "labels", "observed", "public")}
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def judged(scripts, tmp_path):
    """The verdict on a file with this text."""

    def judged(text: str):
        path = tmp_path / "net.py"
        path.write_text(text)
        files = [scripts["observed"].File(str(tmp_path), str(path))]
        (verdict,) = scripts["judge"].judge(files, scripts["forks"].Limits(60))
        return verdict

    return judged


def test_a_file_that_is_shown_whole_agrees_with_eager(judged):
    verdict = judged(NET)
    assert (verdict.outcome, verdict.covered, verdict.classes) == ("shown", 1, 1)
    # the parameter, the binding and the return of forward
    assert verdict.places == 3
    assert (verdict.wrong, verdict.missing, verdict.errors, verdict.unjudged) == ([], [], [], [])
    assert verdict.models == ["Net (search/default)"]
    assert 0 < verdict.first <= verdict.seconds


def test_a_class_without_shapes_leaves_a_file_shown_in_part(judged):
    verdict = judged(NET + UNREACHABLE)
    assert (verdict.outcome, verdict.covered, verdict.classes, verdict.whole) == ("part", 1, 2, True)


def test_what_a_constructor_binds_counts_as_shown(judged):
    verdict = judged(NET.replace("        self.fc =", "        grid = torch.arange(width)\n        self.fc ="))
    assert (verdict.places, verdict.wrong, verdict.missing) == (4, [], [])


def test_a_model_whose_own_train_gives_nothing_back_is_judged(judged):
    own = "\n    def train(self, mode=True):\n        super().train(mode)\n"
    verdict = judged(NET.rstrip() + "\n" + own)
    assert (verdict.places, verdict.wrong, verdict.missing, verdict.unjudged) == (3, [], [], [])


def test_a_file_without_a_model_says_why_nothing_is_shown(judged):
    verdict = judged("import torch\nfrom torch import nn\n" + UNREACHABLE)
    assert (verdict.outcome, verdict.covered, verdict.classes) == ("nothing", 0, 1)
    assert verdict.why.startswith("no-arguments: ")


def test_a_true_error_of_a_file_is_told_apart_from_what_is_shown(judged):
    verdict = judged(NET + "\n\nNet()(torch.randn(2, 5))\n")
    assert (verdict.errors, [error.split(":")[0] for error in verdict.true]) == ([], ["11 shape-mismatch"])
    (unjudged,) = verdict.unjudged
    assert unjudged.startswith("Net: RuntimeError: mat1 and mat2")


PLACE, OTHER = "11:8-11:14 binding hidden in Net.forward", "3:0-3:1 binding x in Other.forward"
BRANCH = "12:8-12:14 binding more in Net.forward"
RIGHT, FALSE = "('f32', (2, 8))", "('f32', (2, 9))"
UNKNOWN, OTHER_TYPE = "('f32', (2, '?'))", "('f64', (2, 8))"


@pytest.mark.parametrize(
    ("shown", "truth", "wrong", "missing"),
    [
        ({PLACE: [RIGHT]}, {PLACE: [RIGHT]}, 0, 0),
        ({PLACE: [FALSE]}, {PLACE: [RIGHT]}, 1, 0),
        ({PLACE: [RIGHT, FALSE]}, {PLACE: [RIGHT]}, 1, 0),
        ({PLACE: [RIGHT]}, {PLACE: [RIGHT, FALSE]}, 0, 1),
        ({}, {PLACE: [RIGHT]}, 0, 1),
        ({PLACE: [UNKNOWN]}, {PLACE: [RIGHT]}, 0, 0),
        ({PLACE: [UNKNOWN]}, {PLACE: [OTHER_TYPE]}, 1, 0),
        # A branch that depends on values may run in one of the two alone.
        ({PLACE: [RIGHT], BRANCH: [UNKNOWN]}, {PLACE: [RIGHT]}, 0, 0),
        ({PLACE: [RIGHT], BRANCH: [FALSE]}, {PLACE: [RIGHT]}, 1, 0),
        # A function that eager did not run cannot be judged.
        ({PLACE: [RIGHT], OTHER: [FALSE]}, {PLACE: [RIGHT]}, 0, 0),
    ],
)
def test_what_eager_does_not_bind_is_wrong_and_what_is_not_shown_is_missing(scripts, shown, truth, wrong, missing):
    assert tuple(map(len, scripts["judge"].differences(shown, truth))) == (wrong, missing)


def test_a_model_that_eager_found_with_other_arguments_is_not_judged(scripts, tmp_path):
    path = tmp_path / "net.py"
    path.write_text(NET)
    model = {"name": "Net", "inputs_from": "search", "arguments_from": "search", "inputs": {}}
    product = {
        "models": [{**model, "arguments": {"width": "8"}}], "rows": [[PLACE, 0, RIGHT]],
        "problems": [], "unshown": [], "types": ["Net"], "first": 1.0, "main_first": None, "seconds": 1.0,
    }  # fmt: skip
    run = {"name": "Net", "error": "", "truth": {PLACE: [FALSE]}}
    verdicts = [
        scripts["judge"].verdict(
            scripts["observed"].File(str(tmp_path), str(path)),
            product,
            {"models": [{**run, "arguments": {"width": width}}]},
        )
        for width in ("8", "9")
    ]
    assert [(len(one.wrong), one.unjudged) for one in verdicts] == [(1, []), (0, ["Net: eager found other arguments"])]


def test_classes_count_by_their_own_forward_wherever_they_are_nested(scripts):
    source = "class A:\n class B:\n  def forward(s): 0\ndef f():\n class C:\n  def forward(s): 0\nclass D(A.B): pass\n"
    assert scripts["judge"].classes(source) == ["A.B", "f.<locals>.C"]


def test_a_whole_is_a_class_that_no_other_one_names(scripts):
    source = (
        "class A:\n def __init__(s): s.b = B()\n def forward(s): 0\nclass B:\n def forward(s): 0\n"
        "class C(A):\n def forward(s): C\n"
    )
    assert scripts["judge"].wholes(source) == ["C"]


@pytest.fixture
def folder(tmp_path):
    """Eight model files and three that do not count."""
    for index in range(8):
        (tmp_path / f"net{index}.py").write_text(NET)
    (tmp_path / "alias.py").write_text("from torch.nn import Module as M\nclass A(M):\n def forward(s, x): return x\n")
    (tmp_path / "no_forward.py").write_text("from torch import nn\nclass A(nn.Module): pass\n")
    (tmp_path / "broken.py").write_text("class A(nn.Module:\n")
    (tmp_path / "no_module.py").write_text("class A:\n def forward(s, x): return x\n")
    return tmp_path


def test_files_are_drawn_in_the_order_of_the_hash_of_their_path(scripts, folder):
    names = [path.name for _, path in scripts["public"].drawn(folder)]
    counted = [f"net{index}.py" for index in range(8)] + ["alias.py"]
    assert names == sorted(counted, key=lambda name: hashlib.sha256(name.encode()).hexdigest())


def test_the_halves_share_no_file_and_leave_none_out(scripts, folder):
    chosen = scripts["public"].chosen
    dev, held = ({file.path for file in chosen([folder], half, None)} for half in ("dev", "held-out"))
    assert dev
    assert held
    assert dev & held == set()
    assert dev | held == {file.path for file in chosen([folder], None, None)}


def test_the_limit_takes_the_first_of_the_draw(scripts, folder):
    chosen = scripts["public"].chosen
    assert chosen([folder], None, 2) == chosen([folder], None, None)[:2]


def test_a_list_is_judged_as_it_stands(scripts, tmp_path):
    (tmp_path / "list.txt").write_text("/a/space::/a/space/a/net.py\n\n/alone/net.py\n")
    files = scripts["public"].chosen([tmp_path / "list.txt"], None, None)
    assert [str(file) for file in files] == ["/a/space::/a/space/a/net.py", "/alone::/alone/net.py"]


# Labels


#: A main class that is shown with the channels that its layer has, one that nothing can make beside a helper that is
#: shown, and a file that is about no class.
LABELLED = {
    "image.py": """import torch
from torch import nn


class Blur(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(32, 32, 3)

    def forward(self, image):
        blurred = self.conv(image)
        return blurred.mean()
""",
    "odd.py": NET + UNREACHABLE,
    # A forward that returns no tensor has run to its end all the same, and nobody looks at `_`.
    "policy.py": """import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 8)

    def forward(self, x):
        hidden, (_, _) = self.rnn(x)
        return torch.distributions.Categorical(logits=hidden)


class Critic(Policy):
    pass
""",
    # Its forward is shown, but as that of another class.
    "base.py": """from torch import nn


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 8)

    def forward(self, x):
        hidden = self.fc(x)
        return hidden


class Odd(Base):
    def __init__(self, recipe):
        super().__init__()
        self.fc = recipe.cook("soup").layer_of(recipe)
""",
    # Nothing but a class that extends it can make its layer.
    "abstract.py": """from torch import nn


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = self.make_layer()

    def make_layer(self):
        raise NotImplementedError

    def forward(self, x):
        scores = self.layer(x)
        return scores


class Small(Head):
    def make_layer(self):
        return nn.Linear(4, 8)
""",
    "loss.py": NET,
}
LABELS = """zoo/abstract.py\tHead
zoo/base.py\tOdd
zoo/image.py\tBlur
zoo/odd.py\tOdd\tx[_,_]
zoo/policy.py\tCritic
zoo/loss.py\t-
"""


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """What is printed of labelled files that are traced three times each, and their rows by their names."""
    folder = tmp_path_factory.mktemp("labelled")
    (folder / "zoo").mkdir()
    for name, text in LABELLED.items():
        (folder / "zoo" / name).write_text(text)
    (folder / "labels.tsv").write_text(LABELS)
    command = [sys.executable, str(BENCHMARKS / "public.py"), "--labels", str(folder / "labels.tsv"), "--again"]
    command += ["--json", str(folder / "rows.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    return done.stdout, {Path(row["file"].partition("::")[2]).name: row for row in rows}


def test_the_labelled_files_are_judged_by_the_class_that_they_are_about(labelled):
    printed, rows = labelled
    assert {name: row["main_shown"] for name, row in rows.items()} == {
        "abstract.py": True, "image.py": True, "odd.py": False, "policy.py": True, "base.py": False, "loss.py": False,
    }  # fmt: skip
    assert rows["odd.py"]["main_why"].startswith("Odd: no-arguments: ")
    assert "zoo/odd.py | part | no main | 1/2" in printed
    assert "zoo/loss.py | shown | 1/1" in printed
    assert "3 of 5 (60%)" in printed


def test_processor_seconds_are_those_until_the_main_class_has_shapes(labelled):
    _, rows = labelled
    assert 0 < rows["image.py"]["main_first"] < 30
    assert rows["odd.py"]["main_first"] is None


def test_what_an_expert_would_reject_of_the_assumed_inputs_is_told(labelled):
    printed, rows = labelled
    assert rows["image.py"]["wrong"] == []
    assert [line.split("[")[0] for line in rows["image.py"]["implausible"]] == ["channels of an image: image f32"]
    assert "1 implausible" in printed
    assert "1 (33%)" in printed


def test_the_same_models_come_out_again_and_beside_a_busy_loop(labelled):
    printed, rows = labelled
    assert {row["again"] for row in rows.values()} == {True}
    assert "6 of 6" in printed


@pytest.mark.parametrize(
    ("inputs", "name", "value", "plausible"),
    [
        ("", "image", ("f32", (2, 3, 8, 8)), True),
        ("", "image", ("f32", (2, 2, 8, 8)), False),
        ("", "waveform", ("f32", (2, 2, 8000)), True),
        ("", "waveform", ("f32", (2, 80, 8000)), False),
        ("", "input_ids", ("i64", (2, 16)), True),
        ("", "input_ids", ("f32", (2, 16)), False),
        ("", "x_lengths", ("i64", (2,)), True),
        ("", "t", ("f32", (2, 16, 64)), False),
        ("", "x", ("f32", (2, 3, 4, 4, 4, 4)), False),
        ("", "anything", ("python", "int"), True),
        # A label says more than a name.
        ("image[_,12,_,_]", "image", ("f32", (2, 12, 8, 8)), True),
        ("x[_,784]", "x", ("f32", (2, 1, 28, 784)), False),
        ("x[_,784]/[_,1,28,28]", "x", ("f32", (2, 1, 28, 28)), True),
        ("x[_,1|3]", "x", ("f32", (2, "?")), True),
        ("x[_,_]", "x", ("i64", (2, 16)), False),
        ("x:int[_,_]", "x", ("i64", (2, 16)), True),
        ("x:any[_,_]", "x", ("i64", (2, 16)), True),
        ("xs*[_,_]", "xs", ("tuple", (("f32", (2, 4)), ("f32", (2, 4)))), True),
        ("xs*[_,_]", "xs", ("tuple", (("f32", (2, 4)), ("f32", (2, 4, 4)))), False),
    ],
)
def test_an_input_is_plausible_by_its_label_or_else_by_its_name(scripts, inputs, name, value, plausible):
    label = scripts["labels"].Label.parse("Net", inputs)
    assert (not list(scripts["labels"].implausible(label, {name: value}, {}))) is plausible


@pytest.mark.parametrize(
    ("name", "size", "plausible"), [("vocab_size", 3, False), ("vocab_size", 1000, True), ("k", 3, True)]
)
def test_a_vocabulary_of_three_words_is_none(scripts, name, size, plausible):
    label = scripts["labels"].Label()
    assert (not list(scripts["labels"].implausible(label, {}, {name: size}))) is plausible


def test_the_forward_of_a_class_may_be_that_of_its_base(scripts):
    source = "class A:\n def forward(s): 0\nclass B(A): pass\nclass C(D): pass\n"
    forward_of = scripts["judge"].forward_of
    assert [forward_of(source, name) for name in "ABC"] == ["A.forward", "A.forward", ""]


def test_a_class_is_there_where_one_that_extends_it_runs_its_forward(scripts):
    own = "class D(A):\n def forward(s): 1\n"
    source = f"class A:\n def forward(s): 0\nclass B(A): pass\nclass C(B): pass\n{own}class E(D): pass\n"
    assert [scripts["judge"].heirs_of(source, name) for name in "ABD"] == [{"A", "B", "C"}, {"B", "C"}, {"D", "E"}]
