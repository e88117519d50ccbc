"""Files of which a statement at the top fails: what does not depend on it is shown, what does is an error."""

import pytest

from tests.inputs.test_inputs_missing import BODY, HEAD, bound, told, traced

FAILING = {
    "an environment variable": "import os\nFOLDER = os.environ['A_FOLDER_THAT_NOBODY_SET']\n",
    "a file": "with open('no/such/file.json') as file:\n    CONFIG = file.read()\n",
    "a check": "import os\nassert os.path.exists('data/train.csv'), 'no data'\n",
    "an argument": "import sys\nPATH = sys.argv[1]\n",
    "a program that is refused": "import subprocess\nSHA = subprocess.check_output(['git', 'rev-parse', 'HEAD'])\n",
    "two of them": "import sys\nPATH = sys.argv[1]\nFILE = open(PATH + '/more')\n",
    "several statements in one line": "A = 1; B = A / 0; C = A\nassert C == 1\n",
    "a decorator": "from math import nothing\n@nothing(3)\ndef helper():\n    return 3\n",
    "an end": "import sys\nif not sys.argv[1:]:\n    sys.exit('usage: net.py DATA')\n",
}


@pytest.mark.parametrize("text", FAILING.values(), ids=FAILING)
def test_what_does_not_depend_on_a_statement_that_fails_is_shown(tmp_path, text):
    payload = traced(tmp_path, {"net.py": HEAD + text + BODY})
    assert bound(payload)["h"] == [2, 5]
    (problem,) = payload["problems"]
    assert 3 <= problem["line"] <= 3 + text.count("\n")


DEPENDING = {
    "a default": ("WIDTH = int('four')\n", "width=WIDTH"),
    "a second value": ("WIDTH = 4\nWIDTH = int('five')\n", "width=WIDTH"),
    "a value in a block": ("if True:\n    GIVEN = 3\n    WIDTH = int('four')\n", "width=WIDTH"),
    "a loop's": ("WIDTH = 1\nfor n in (1, 2, 0):\n    WIDTH = 4 // n\n", "width=WIDTH"),
    "what was computed from it": ("WIDTH = int('four')\nMORE = WIDTH + 1\n", "width=MORE"),
}


@pytest.mark.parametrize("case", DEPENDING)
def test_what_depends_on_a_statement_that_fails_is_not_made_up(tmp_path, case):
    text, width = DEPENDING[case]
    payload = traced(tmp_path, {"net.py": HEAD + text + BODY.replace("width=4", width)})
    assert payload["models"] == []
    assert [each["severity"] for each in payload["problems"]] == ["error"]


def test_a_forward_that_needs_what_failed_is_shown_up_to_there(tmp_path):
    body = BODY.replace("        return h\n", "        y = h * SCALE\n        return y\n")
    payload = traced(tmp_path, {"net.py": f"{HEAD}SCALE = int('four')\n{body}"})
    assert (bound(payload)["h"], bound(payload).get("y")) == ([2, 5], None)
    assert ("error", "import-error", 3) in told(payload)
    (used,) = [each for each in payload["problems"] if each["line"] > 3]
    assert "SCALE is needed here, but line 3 raised ValueError" in used["message"]


def test_a_block_that_fails_keeps_what_it_had_bound_before(tmp_path):
    text = "if True:\n    WIDTH = 4\n    OTHER = int('four')\n"
    payload = traced(tmp_path, {"net.py": HEAD + text + BODY.replace("width=4", "width=WIDTH")})
    assert bound(payload)["h"] == [2, 5]


def test_no_statement_runs_twice(tmp_path):
    text = "import builtins\nbuiltins.COUNTED = getattr(builtins, 'COUNTED', 0) + 1\nX = 1 / 0\nFIRST = COUNTED\n"
    body = (
        BODY.replace("width=4", "width=3 + FIRST").replace("__init__(self", "__init__(self") + "del builtins.COUNTED\n"
    )
    payload = traced(tmp_path, {"net.py": HEAD + text + body})
    assert bound(payload)["h"] == [2, 5]
    assert payload["models"][0]["inputs"]["x"][1] == [2, 4]


def test_annotations_stay_lazy_after_a_statement_that_fails(tmp_path):
    text = f"from __future__ import annotations\n{HEAD}X = 1 / 0\n\ndef f(x: NotDefined | 3) -> None: ...\n{BODY}"
    payload = traced(tmp_path, {"net.py": text})
    assert (bound(payload)["h"], told(payload)) == ([2, 5], [("error", "import-error", 4)])


def test_code_that_was_compiled_again_says_once_what_it_binds(tmp_path):
    counting = BODY.replace(
        "    def forward", "        self.count = sum([p.numel() for p in self.parameters()])\n\n    def forward"
    )
    payload = traced(tmp_path, {"net.py": f"{HEAD}{counting}\nFILE = open('no/such/file')\nmodel = Net()\n"})
    sites = payload["sites"]
    places = list(zip(*(sites[key] for key in ("file", "line", "column", "name", "kind")), strict=True))
    assert [place for place in places if place[3] == "p"]
    assert len(places) == len(set(places))
