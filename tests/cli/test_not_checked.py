"""`mase-server check` where something from outside is missing: the file is not checked, which is no mistake of it."""

import json

import pytest

from tests.cli.conftest import NET

#: A model behind lines that need something, and how often the reason says so.
BEHIND = """\
import argparse, json, os, subprocess, sys
import torch
from torch import nn

{need}


class Net(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.a = nn.Linear(8, width)

    def forward(self, x):
        return self.a(x)
"""
NEEDS = {
    "a data file": ('WIDTH = json.load(open("data/config.json"))["width"]', "the file 'data/config.json', which is"),
    "files of a folder": ('import glob\nWIDTH = len(glob.glob("data/*.jpg")[0])', "files that are not here"),
    "data": (
        "WIDTH = torch.utils.data.DataLoader([], shuffle=True).batch_size",
        "num_samples should be a positive integer value",
    ),
    "an argument": ("WIDTH = int(sys.argv[1])", "an argument of the command line"),
    "a variable": ('WIDTH = int(os.environ["MY_WIDTH"])', "the environment variable 'MY_WIDTH', which is not set"),
    "a file that is asked for": (
        'def width():\n    if not os.path.exists("width.txt"):\n        raise ValueError("make it")\nWIDTH = width()',
        "a file that is not here",
    ),
    "a device": (
        'def width():\n    raise RuntimeError("Found no NVIDIA driver on your system.")\nWIDTH = width()',
        "a device that is not here",
    ),
    "a program": ('WIDTH = len(subprocess.check_output(["nvidia-smi"]))', "Starting a program was refused"),
    "a package": ("from not_there import WIDTH", "No module named 'not_there'"),
}


@pytest.mark.parametrize("need", NEEDS)
def test_what_is_missing_makes_a_file_not_checked_and_no_error(live, need):
    code, reason = NEEDS[need]
    path = live.write("needs.py", BEHIND.format(need=code))
    done = live("check", "--no-daemon", path.name, "net.py")
    *reasons, summary = done.stdout.splitlines()
    assert (done.returncode, summary) == (0, "1 model file checked: no problem found; 1 file not checked")
    assert len(reasons) == 1
    assert reasons[0].startswith("needs.py:")
    assert ": not checked: " in reasons[0]
    assert reason in reasons[0]
    assert live("check", "--no-daemon", "--strict", path.name).returncode == 1


def test_a_constructor_that_reads_a_file_is_no_error_either(live):
    text = NET.replace("super().__init__()", 'super().__init__()\n        self.mean = open("stats/mean.txt").read()')
    path = live.write("reads.py", text)
    done = live("check", "--no-daemon", path.name)
    assert done.returncode == 0
    assert done.stdout.startswith("reads.py:8: not checked: This needs the file 'stats/mean.txt', which is not here.")


def test_every_output_says_what_was_not_checked(live):
    path = live.write("needs.py", BEHIND.format(need=NEEDS["a data file"][0]))
    reason = "This needs the file 'data/config.json', which is not here."
    done = live("check", "--no-daemon", path.name, "--format", "json")
    [file] = json.loads(done.stdout)["files"]
    assert (done.returncode, file["checked"]) == (0, False)
    assert file["reason"].startswith(reason)
    told = live("check", "--no-daemon", path.name, "--format", "github")
    assert told.stdout == ""
    assert told.stderr.startswith(f"needs.py:5: not checked: {reason}")
    [run] = json.loads(live("check", "--no-daemon", path.name, "--format", "sarif").stdout)["runs"]
    [missed] = run["invocations"][0]["toolExecutionNotifications"]
    assert missed["message"]["text"].startswith(f"not checked: {reason}")
    assert run["results"] == []


def test_a_mistake_beside_a_missing_package_is_still_one(live):
    text = "import not_there\n" + NET.replace("nn.Linear(width, 3)", "nn.Linear(width + 1, 3)")
    path = live.write("both.py", text)
    done = live("check", "--no-daemon", path.name)
    assert done.returncode == 1
    assert "both.py:14:20: error[shape-mismatch]" in done.stdout


FLOAT = """\
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        inner = width / 4
        self.a = nn.Conv2d(8, inner, 1)

    def forward(self, x):
        return self.a(x)


class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.block = Block(cfg["width"])

    def forward(self, x):
        return self.block(x)


def small_net():
    return Net({"width": 32})
"""


def test_a_mistake_in_a_constructor_stands_at_its_line_with_the_call_that_led_there(live):
    path = live.write("floats.py", FLOAT)
    done = live("check", "--no-daemon", path.name)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0] == (
        "floats.py:8:18: error[type-error]: `inner` is 8.0, a float, but nn.Conv2d takes a whole number: "
        "`/` gives a float, `//` a whole number (line 7)."
    )
    assert [line.strip() for line in lines if line.startswith("      = ")] == [
        "= floats.py:17: in Net.__init__",
        "= floats.py:24: in small_net",
        "= fix: Change `width / 4` to `width // 4` (line 7)",
    ]
    assert live("check", "--no-daemon", "--fix", path.name).returncode == 0
    assert "inner = width // 4" in path.read_text()
