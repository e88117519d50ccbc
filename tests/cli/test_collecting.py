"""`mase-server report`: what helps is in it, and nothing that is nobody's business, whoever tries to get it in."""

import json
import os
import sys
import zipfile

import pytest

from mase_server.cli.collecting import CRASHES, LINES, as_markdown, crashes_in_log, gather_facts, log_lines, make_report
from mase_server.client import Client, RpcError
from mase_server.telemetry.logs import folder_of

#: In the source, in settings, in what is printed and raised; and what the environment calls a secret.
CANARY, TOKEN = "canary9135xyz", "token8246abc"
NET = f'''\
import os
import torch
from torch import nn


class Net(nn.Module):
    """{CANARY}"""

    def __init__(self):
        super().__init__()
        self.{CANARY} = nn.Linear(8, 4)

    def forward(self, {CANARY}):
        print("{CANARY}")
        return self.{CANARY}({CANARY}) + missing_{CANARY}


if __name__ == "__main__":
    Net()(torch.zeros(2, 8))
'''
CRASHING = f'import os, sys\nsys.stderr.write("{CANARY}")\nos.abort()  # {CANARY}\n' + NET
ABOUT = {
    "editor": "Some Editor 1.2", "extension": "0.1.0",
    "settings": {"inputs": {CANARY: CANARY}, "server": {"command": ["mase", CANARY]}, "limits": {"seconds": 7}},
}  # fmt: skip


@pytest.fixture
def served(mase, tmp_path):
    """A daemon that has met an error and a crash of a model file full of canaries, and answered wrong requests."""
    folder = tmp_path / "jolanda" / "models"
    folder.mkdir(parents=True)
    (folder / "net.py").write_text(NET)
    words = ("serve", folder, "--trust", "--python", sys.executable, "--log", "debug")
    mase.environment |= {"SECRET_TOKEN": TOKEN, "HOME": str(tmp_path)}
    process = mase.start(*words)
    try:
        _ask(process.stdout.readline().strip(), folder / "net.py")
        yield folder
    finally:
        process.kill()
        process.communicate()


def _ask(address, path):
    with Client(address) as client:
        client.call("mase/open", {"path": str(path)})
        for method, params in (("setPipeline", {CANARY: CANARY}), (CANARY, {"path": CANARY})):
            with pytest.raises(RpcError):
                client.call(f"mase/{method}", params)
        path.write_text(CRASHING)
        client.call("mase/retrace", {"path": str(path)})


def test_a_report_has_what_helps_and_no_canary_no_name_and_no_path(mase, served, tmp_path):
    environment = {"SECRET_TOKEN": TOKEN, "PYTHONSTARTUP": f"/{CANARY}", "USER": "jolanda"}
    environment |= {"VIRTUAL_ENV": f"/{CANARY}"}
    target = tmp_path / "sent" / "report.zip"
    words = ("report", served, "--about", "--json", "-o", target)
    done = mase.process(*words, env=environment, input=json.dumps(ABOUT))
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    with zipfile.ZipFile(target) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    assert set(files) == {"report.md", "report.json", "log.jsonl"}
    assert (printed["path"], printed["text"] + "\n") == (str(target), files["report.md"])
    for name, text in files.items():
        assert CANARY not in text, name
        assert TOKEN not in text, name
        assert "jolanda" not in text.lower(), name
        assert str(tmp_path) not in text, name
    told = json.loads(files["report.json"])
    assert told["versions"]["editor"] == "Some Editor 1.2"
    assert told["settings"] == {
        "inputs": "1 entry",
        "limits.seconds": 7,
        "server.command": "2 words, the first is mase",
    }
    assert {"PYTHONSTARTUP", "VIRTUAL_ENV"} <= set(told["environment"])
    assert {each["check"] for each in told["doctor"]} >= {"interpreter", "torch", "watching", "cache", "daemons"}
    [daemon] = told["daemons"]
    assert set(daemon["statistics"]["traces"]) == {"failed", "crashed"}
    assert daemon["statistics"]["methods"]["mase/open"]["count"] == 1
    assert daemon["statistics"]["methods"]["unknown"]["errors"] == 1
    [crash] = told["crashes"]
    assert (crash["path"], crash["code"], crash["stack"][0]) == ("net.py", "crashed", "net.py:3 <module>")
    assert {"asked", "done", "died", "trace", "request"} <= {json.loads(line)["event"] for line in told["log"]}
    [log] = folder_of(mase.home / "state" / "mase-server").glob("serve-*.jsonl")
    assert CANARY not in log.read_text()
    _is_one_story([json.loads(line) for line in log.read_text().splitlines()])


def _is_one_story(lines):
    """What was done for the first request has its name: in the server, in the child and in the answer."""
    [asked] = [line for line in lines if line["event"] == "asked" and line["generation"] == 1]
    story = [(line["event"], line["component"].split()[0]) for line in lines if line.get("request") == asked["request"]]
    order = ("asked", "done", "trace", "request")
    assert [each for each in story if each[0] in order] == [
        ("asked", "server"), ("done", "worker"), ("trace", "server"), ("request", "server"),
    ]  # fmt: skip


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Folders of one's own, and a doctor who finds something with a path in it."""
    (tmp_path / "run").mkdir(mode=0o700)
    for variable, name in {"XDG_STATE_HOME": "state", "MASE_RUNTIME_DIR": "run"}.items():
        monkeypatch.setenv(variable, str(tmp_path / name))
    told = {"check": "odd", "state": "warn", "text": f"{tmp_path}/work/.venv\nis old"}
    monkeypatch.setattr(
        "mase_server.cli.collecting._run_doctor", lambda folder, python: iter([told | {"python": python}])
    )
    return tmp_path


def logged(places, name, *lines):
    folder = folder_of(places / "state" / "mase-server")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))


def test_the_last_lines_of_all_servers_come_in_the_order_of_time(places):
    logged(places, "editor-1.jsonl", {"time": "3"}, "{half a li", *({"time": "5"} for _ in range(LINES)))
    logged(places, "editor-1.jsonl.1", {"time": "1"}, {"time": "2"}, "[]")
    logged(places, "serve-2.jsonl", {"time": "4"})
    told = list(log_lines(folder_of(places / "state" / "mase-server")))
    assert [line["time"] for line in told[:3]] == ["1", "2", "4"]
    assert len(gather_facts([str(places / "work")], {})["log"]) == LINES


def test_crashes_are_told_apart_and_are_the_last_ones(places):
    died = [{"event": "died", "time": f"{number:03}", "code": "exited", "component": "x"} for number in range(30)]
    logged(places, "a.jsonl", *died, {"event": "trace"})
    assert [each["time"] for each in gather_facts([], {})["crashes"]] == [
        f"{number:03}" for number in range(30 - CRASHES, 30)
    ]
    assert crashes_in_log(died[:1]) == [{"time": "000", "code": "exited"}]


def test_a_fault_of_a_server_is_told_by_its_frames_alone(places):
    fault = ["Fatal Python error: Segmentation fault", "", "Current thread 0x0a (most recent call first):",
             '  File "/srv/x.py", line 3 in run', f"    {CANARY} = 3", "Extension modules: a"]  # fmt: skip
    logged(places, "editor-1.fault", *fault)
    logged(places, "editor-2.fault", "")
    [crash] = gather_facts([], {})["crashes"]
    assert crash == {"server": "editor-1", "stack": [fault[0], fault[2], fault[3]]}


def test_what_an_editor_says_may_be_anything(places, capsys, monkeypatch):
    monkeypatch.chdir(places)
    for said in ("", "nonsense", "[3]", '{"settings": 3, "editor": {"x": 1}}'):
        monkeypatch.setattr("sys.stdin", type("Input", (), {"read": lambda self, said=said: said})())
        assert make_report(["--about", "-o", "r.zip"]) == 0
    assert capsys.readouterr().out.startswith("r.zip: read its report.md before you send it")
    assert (places / "r.zip").stat().st_mode & 0o777 == 0o600


def test_a_report_that_cannot_be_written_says_why(places, capsys):
    (places / "file").write_text("")
    assert make_report(["-o", str(places / "file" / "r.zip")]) == 1
    assert capsys.readouterr().err == f"error: {places / 'file' / 'r.zip'} cannot be written: {os.strerror(17)}\n"


def test_the_doctor_looks_at_the_python_that_was_chosen(places):
    folder = str(places / "work")
    for interpreters, expected in (({folder: "/usr/bin/python3"}, "/usr/bin/python3"), ({}, None), (3, None)):
        [finding] = gather_facts([folder], {"interpreters": interpreters})["doctor"]
        assert finding["python"] == expected


def test_everything_that_is_sent_stands_in_the_text(places):
    logged(places, "a.jsonl", {"event": "died", "time": "1", "stack": ["net.py:3 forward"]})
    told = gather_facts([str(places / "work")], ABOUT)
    text = as_markdown(told)
    for line in told["log"]:
        assert line in text
    for expected in (
        "- editor: Some Editor 1.2", "- limits.seconds: 7", "- warn odd: (workspace)/.venv; is old",
        "none serves this folder", '"stack": ["net.py:3 forward"]',
    ):  # fmt: skip
        assert expected in text
