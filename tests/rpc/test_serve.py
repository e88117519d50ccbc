"""`mase-server serve` and `mase-server rpc`, as processes; and an editor's server, which answers the same."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mase_server.client import AsyncClient, Client, asynchronous, blocking
from mase_server.client.stream import Target
from mase_server.rpc.registry import find_registration, registrations

ROOT = Path(__file__).parent.parent.parent
NET = """import torch
import torch.nn as nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x)

if __name__ == "__main__":
    print(Net()(torch.randn(2, 4)).shape)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name, variable in (("run", "MASE_RUNTIME_DIR"), ("cache", "XDG_CACHE_HOME"), ("state", "XDG_STATE_HOME")):
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "net.py").write_text(NET)
    return tmp_path / "project"


@pytest.fixture
def serving(project):
    started = []

    def start(*options):
        command = [sys.executable, "-m", "mase_server", "serve", str(project), "--python", sys.executable, *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.wait()


def rpc(project, *words, code=0):
    """What `mase-server rpc` says, run in the project's folder."""
    command = [sys.executable, "-m", "mase_server", "rpc", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=project, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_a_workspace_is_served_found_asked_and_left_without_a_trace(project, serving):
    process, address = serving("--trust")
    assert rpc(project, "--where").strip() == address
    path = str(project / "net.py")
    place = json.loads(rpc(project, "nodeAt", json.dumps({"path": path, "line": 10, "column": 15})))["place"]
    assert place["values"][0]["value"] == ["f32", [2, 3], ["B", "3"]]
    assert place["values"][0]["node"]["mase_op"] == "linear"
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert list((project.parent / "run").iterdir()) == []


def test_a_folder_without_trust_is_not_executed(project, serving):
    (project / "net.py").write_text(f"{NET}\nopen({str(project / 'ran')!r}, 'w')\n")
    serving()
    for method in ("open", "retrace"):
        error = json.loads(rpc(project, method, json.dumps({"path": str(project / "net.py")}), code=1))
        assert error["code"] == "untrusted"
    assert not (project / "ran").exists()


def test_nobody_to_ask_is_said(project):
    told = rpc(project, "info", code=1)
    assert told == f"error: no daemon serves {project}: open it in an editor, or run `mase-server serve .`\n"
    assert rpc(project, "--where", code=1).startswith(f"error: no daemon serves {project}")


def test_a_killed_server_is_forgotten(project, serving):
    process, _ = serving()
    process.kill()
    process.wait()
    assert len(list((project.parent / "run").iterdir())) == 2
    rpc(project, "info", code=1)
    assert list((project.parent / "run").iterdir()) == []


def test_a_client_goes_on_with_the_server_that_is_started_after_a_killed_one(project, serving):
    process, first = serving("--trust")
    path = str(project / "net.py")
    with Client(workspace=project) as client:
        client.open(path)
        client.subscribe(["worker"])
        before = [each["parameters"] for each in client.models(path)]
        process.kill()
        process.wait()
        _, second = serving("--trust")
        assert first != second
        assert next(client.events(timeout=60))["topic"] == "reconnected"
        assert [each["parameters"] for each in client.models(path)] == before, "the call waits for the new trace"
    assert [str(one.address) for one in registrations(project.parent / "run")] == [second]


class Attempts:
    """Counts how often a client looks for its daemon. first: when it had found none twice."""

    def __init__(self, monkeypatch):
        self.count, self.twice, find = 0, threading.Event(), Target.resolve

        def resolve(target):
            self.count += 1
            if self.count >= 2:
                self.twice.set()
            return find(target)

        for module in (asynchronous, blocking):
            monkeypatch.setattr(module, "RETRY", (0.0,))
        monkeypatch.setattr(Target, "resolve", resolve)


def test_events_wait_for_a_server_that_takes_long_to_come_back(project, serving, monkeypatch):
    process, _ = serving("--trust")
    path = str(project / "net.py")
    with Client(workspace=project) as client, ThreadPoolExecutor() as threads:
        client.open(path)
        client.subscribe(["graph"])
        process.kill()
        process.wait()
        attempts, news = Attempts(monkeypatch), client.events(timeout=60)
        first = threads.submit(next, news)
        assert attempts.twice.wait(60), "it tried once, and gave up"
        serving("--trust")
        assert first.result(60) == {"topic": "reconnected"}
        assert (next(news)["path"], client.models(path)[0]["parameters"]) == (path, 15)


def test_events_of_a_server_that_never_comes_back_end_with_their_time(project, serving, monkeypatch):
    process, _ = serving("--trust")
    with Client(workspace=project) as client:
        client.subscribe(["graph"])
        process.kill()
        process.wait()
        attempts = Attempts(monkeypatch)
        assert list(client.events(timeout=0.2)) == []
        assert attempts.count >= 2


def test_awaited_events_and_calls_wait_too(project, serving, monkeypatch):
    process, _ = serving("--trust")
    path = str(project / "net.py")

    async def work():
        async with AsyncClient(workspace=project) as client:
            await client.open(path)
            await client.subscribe(["graph"])
            process.kill()
            process.wait()
            attempts, news = Attempts(monkeypatch), client.events()
            first = asyncio.ensure_future(anext(news))
            assert await asyncio.to_thread(attempts.twice.wait, 60), "it tried once, and gave up"
            await asyncio.to_thread(serving, "--trust")
            assert await first == {"topic": "reconnected"}
            told = await asyncio.gather(*(client.models(path) for _ in range(3)))
            assert [models[0]["parameters"] for models in told] == [15, 15, 15]

    asyncio.run(asyncio.wait_for(work(), 120))


def test_a_file_that_is_gone_does_not_keep_a_client_from_coming_back(project, serving):
    process, _ = serving("--trust")
    path, gone = str(project / "net.py"), project / "gone.py"
    gone.write_text(NET)
    with Client(workspace=project) as client:
        client.open(path)
        client.open(str(gone))
        gone.unlink()
        process.kill()
        process.wait()
        serving("--trust")
        assert client.models(path)[0]["parameters"] == 15


def test_a_refusal_is_json_on_standard_error(project, serving):
    serving()
    assert json.loads(rpc(project, "mase/nothing", code=1))["code"] == "unknown-method"
    assert "no JSON" in rpc(project, "info", "{", code=2)


def test_tcp_needs_the_token(project, serving, tmp_path):
    _, address = serving("--tcp", "127.0.0.1:0", "--token-file", str(tmp_path / "token"))
    assert json.loads(rpc(project, "info"))["name"] == "mase-server"
    error = json.loads(rpc(project, "info", "--address", address, code=1))
    assert error["code"] == "unauthenticated"
    told = rpc(project, "info", "--address", address, "--token-file", str(tmp_path / "token"))
    assert json.loads(told)["name"] == "mase-server"


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--tcp", "0.0.0.0:8000"], 2, "'0.0.0.0' is not this machine's loopback"),
        (["--socket", "/tmp/x.sock", "--tcp", "127.0.0.1:0"], 2, "--socket and --tcp exclude each other"),
        (["--token-file", "x"], 2, "--token-file is for --tcp"),
        (["--log", "chatty"], 2, "'chatty' is not one of"),
        (
            ["--tcp", "127.0.0.1:0", "--token-file", "/nowhere/x"],
            1,
            "error: cannot write a token: /nowhere/x cannot be written: No such file",
        ),
        (["--socket", "/nowhere/at/all.sock"], 1, "cannot listen at /nowhere/at/all.sock: No such file or directory"),
    ],
)
def test_what_cannot_be_served_is_said(project, serving, options, code, text):
    process, _ = serving(*options)
    assert process.wait(20) == code
    assert text in process.stderr.read()


def test_everything_can_be_asked_for_by_what_info_says(project, serving):
    serving()
    told = {method["name"]: method for method in json.loads(rpc(project, "info", '{"methods": true}'))["methods"]}
    assert {"mase/nodeAt", "mase/graph", "mase/applyPass", "mase/emitVerilog", "mase/subscribe"} <= set(told)
    for method in told.values():
        assert method["since"]
        assert method["description"]
        assert method["params"]["type"] == method["result"].get("type", "object") == "object"
    node_at = told["mase/nodeAt"]
    assert node_at["params"]["required"] == ["path", "line", "column"]
    assert node_at["params"]["properties"]["line"] == {"type": "integer"}


def test_paths_are_from_where_the_command_is_typed(project, serving):
    serving("--trust")
    (project / "deep").mkdir()
    told = json.loads(rpc(project, "open", '{"path": "deep/../net.py"}'))
    assert (told["path"], told["state"]) == (str(project / "net.py"), "ready")


def test_all_that_can_be_asked_is_listed(project, serving):
    serving()
    lines = rpc(project).splitlines()
    [line] = [line for line in lines if line.startswith("mase/nodeAt ")]
    assert line.startswith("mase/nodeAt path line column ")
    assert line.endswith(
        "The smallest place at a position, its values, and the nodes that made them; None if there is none."
    )
    assert len(lines) == len(json.loads(rpc(project, "info", '{"methods": true}'))["methods"])


def test_news_are_printed_as_they_come(project, serving):
    serving("--trust")
    rpc(project, "open", '{"path": "net.py"}')
    command = [sys.executable, "-m", "mase_server", "rpc", "subscribe", '{"topics": ["worker"]}']
    following = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=project)
    try:
        while json.loads(rpc(project, "statistics"))["requests"]["now"] < 2:
            pass
        rpc(project, "retrace", '{"path": "net.py"}')
        while (event := json.loads(following.stdout.readline()))["state"] != "ready":
            pass
        assert (event["topic"], event["path"], event["generation"]) == ("worker", str(project / "net.py"), 2)
        following.send_signal(signal.SIGINT)
        assert following.wait(10) == 0
    finally:
        following.kill()
        following.wait()


def test_silence_ends_the_news(project, serving):
    serving()
    assert rpc(project, "subscribe", "--timeout", "0.1") == ""


def test_another_server_of_the_same_folder_is_told(project, serving):
    first, address = serving()
    second, newer = serving()
    told = f"note: serve (process {first.pid}) serves {project} too, at {address}; tools that look for a server "
    assert second.stderr.readline().strip() == f"{told}find this one"
    assert rpc(project, "--where").strip() == newer
    second.send_signal(signal.SIGINT)
    assert second.wait(10) == 0
    assert rpc(project, "--where").strip() == address


def test_an_editor_and_a_server_are_attached_to_one_workspace(project, serving):
    served, address = serving("--trust")
    editor = subprocess.Popen(
        [sys.executable, "-m", "mase_server", "lsp", "--trust"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        folder = {"uri": project.as_uri(), "name": "project"}
        params = {"processId": os.getpid(), "capabilities": {}, "rootUri": folder["uri"], "workspaceFolders": [folder]}
        for message in ({"id": 1, "method": "initialize", "params": params}, {"method": "initialized", "params": {}}):
            data = json.dumps({"jsonrpc": "2.0", **message}).encode()
            editor.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
            editor.stdin.flush()
        # The files alone are read meanwhile: `find` also connects to each server, as fast as it is called.
        while not any('"editor"' in each.read_text() for each in (project.parent / "run").glob("*.json")):
            time.sleep(0.01)
        found = find_registration(project.parent / "run", str(project))
        path = str(project / "net.py")
        with Client(address) as one, Client(found.address) as other:
            assert one.open(path)["state"] == other.open(path)["state"] == "ready"
            assert one.info()["pid"] == served.pid != other.info()["pid"] == editor.pid
            assert one.tensors(path)["sites"] == other.tensors(path)["sites"] != []
    finally:
        editor.kill()
        editor.wait()
    assert rpc(project, "--where").strip() == address


@pytest.mark.parametrize("rooted", [True, False])
def test_an_editors_server_answers_tools_too(project, rooted):
    command = [sys.executable, "-m", "mase_server", "lsp", "--trust"]
    editor = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def say(message):
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        editor.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        editor.stdin.flush()

    def hear():
        size = 0
        while (line := editor.stdout.readline().strip()) != b"":
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        return json.loads(editor.stdout.read(size))

    folder = {"uri": project.as_uri(), "name": "project"}
    initialize = {"processId": os.getpid(), "capabilities": {}}
    initialize |= {"rootUri": folder["uri"], "workspaceFolders": [folder]} if rooted else {"rootUri": None}
    try:
        say({"id": 1, "method": "initialize", "params": initialize})
        assert hear()["id"] == 1
        say({"method": "initialized", "params": {}})
        path = project / "net.py"
        document = {"uri": path.as_uri(), "languageId": "python", "version": 1, "text": NET}
        say({"method": "textDocument/didOpen", "params": {"textDocument": document}})
        while (told := hear()).get("method") != "mase/status" or told["params"]["state"] != "ready":
            pass
        [found] = registrations(project.parent / "run")
        assert (found.workspace, found.kind, found.pid) == (str(project), "editor", editor.pid)
        [model] = json.loads(rpc(project, "models"))["models"]
        assert (model["name"], model["path"]) == ("Net", str(path))
        say({"id": 2, "method": "shutdown"})
        while hear().get("id") != 2:
            pass
        assert find_registration(project.parent / "run", str(project)) is None
        say({"method": "exit"})
        assert editor.wait(10) == 0
    finally:
        editor.kill()
        editor.wait()
