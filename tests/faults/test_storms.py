"""Much at once: checkouts of hundreds of files, requests that are cancelled and not read, models of many modules."""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from faulting import SERVER
from good_net import GOOD, by_name, good, seen

pytestmark = pytest.mark.asyncio(loop_scope="module")

FILES, OPEN, CHECKOUTS = 500, 12, 20
USES_SHARED = GOOD.replace("import torch\n", "import shared\nimport torch\n", 1).replace(
    "width=16", "width=shared.WIDTH"
)


@pytest.fixture(scope="module")
def options():
    """A limit of time below the usual one: what has too many modules is stopped the sooner."""
    return {"limits.seconds": 15}


def git(folder, *arguments):
    nobody = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "gc.auto=0")
    subprocess.run(["git", *nobody, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder, branch, width):
    """A branch in which every file has this width; those with an even number have it from another file."""
    (folder / "shared.py").write_text(f"WIDTH = {width}\n")
    for number in range(FILES):
        (folder / f"net{number}.py").write_text(USES_SHARED if number % 2 == 0 else good(width))
    git(folder, "checkout", "-q", "-b", branch)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", branch)


def descriptors(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def test_checkouts_back_and_forth_leave_the_shapes_of_what_is_checked_out(stand):
    repository = stand.folder / "repository"
    repository.mkdir()
    git(repository, "init", "-q")
    commit(repository, "wide", 20)
    commit(repository, "narrow", 18)
    names = [f"repository/net{number}.py" for number in range(OPEN)]
    for name in names:
        assert await stand.open(name) == "ready"
        assert await stand.shown(name) == seen(18)
    await stand.hold_still()
    children, files = len(stand.children()), descriptors(stand.server)

    for number in range(CHECKOUTS + 1):
        branch = "wide" if number % 2 == 0 else "narrow"
        await asyncio.to_thread(git, repository, "checkout", "-q", branch)
    for name in names:  # as editors do once they see that a file has changed
        path = stand.folder / name
        stand.editor.retype(path, stand.texts[path], path.read_text())
        stand.texts[path] = path.read_text()
    async with asyncio.timeout(120):
        for name in names:
            while (await stand.shown(name), await stand.is_stale(name)) != (seen(20), False):
                await asyncio.sleep(0.05)  # several traces may end, and the last end may have been told already
    await stand.others_answer()
    async with asyncio.timeout(60):
        while len(stand.children()) > children or descriptors(stand.server) > files:
            await asyncio.sleep(0.05)  # the end of a process is no news to an editor
    for name in names:
        stand.close(name)


class SlowReader:
    """A client that sends whatever it likes, and reads only when it is told to."""

    def __init__(self, process):
        self.process = process
        self.answers, self.states = Counter(), []

    def send(self, **message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    async def read(self):
        """The next message."""
        lines = (await self.process.stdout.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        length = next(int(line.partition(":")[2]) for line in lines if line.lower().startswith("content-length"))
        message = json.loads(await self.process.stdout.readexactly(length))
        if "method" not in message:
            self.answers[message["id"]] += 1
        elif "id" in message:
            self.send(id=message["id"], result=None)
        elif message["method"] == "mase/status":
            self.states.append(message["params"]["state"])
        return message

    async def answer(self, number):
        while not self.answers[number]:
            message = await self.read()
        return message.get("result")


def most_memory(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


REQUESTS = 1500
AREA = {"start": {"line": 0, "character": 0}, "end": {"line": 30, "character": 0}}
ASKED = (
    ("textDocument/hover", {"position": {"line": 11, "character": 8}}),
    ("textDocument/inlayHint", {"range": AREA}),
    ("textDocument/codeLens", {}),
    ("textDocument/diagnostic", {}),
    ("textDocument/codeAction", {"range": AREA, "context": {"diagnostics": []}}),
)


async def test_requests_that_are_cancelled_and_not_read_are_each_answered_once_and_cost_no_memory(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(GOOD)
    folders = {"XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state", "MASE_RUNTIME_DIR": "run"}
    environment = {**os.environ, **{name: str(tmp_path / folder) for name, folder in folders.items()}}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*SERVER, stdin=pipe, stdout=pipe, env=environment)
    client = SlowReader(process)
    document = {"textDocument": {"uri": path.as_uri()}}
    told = {"trusted": True, "interpreter": sys.executable}
    folder = {"uri": tmp_path.as_uri(), "name": "folder"}
    client.send(
        id="first",
        method="initialize",
        params={"capabilities": {}, "workspaceFolders": [folder], "initializationOptions": told},
    )
    await client.answer("first")
    client.send(method="initialized", params={})
    item = {**document["textDocument"], "languageId": "python", "version": 1, "text": GOOD}
    client.send(method="textDocument/didOpen", params={"textDocument": item})
    while "ready" not in client.states:
        await client.read()
    before = most_memory(process.pid)

    async def ask():
        for number in range(REQUESTS):
            method, params = ASKED[number % len(ASKED)]
            client.send(id=number, method=method, params={**document, **params})
            if number % 3:
                client.send(method="$/cancelRequest", params={"id": number})
            await process.stdin.drain()

    asking = asyncio.ensure_future(ask())
    # Another client of the same server is not held up meanwhile.
    command = (sys.executable, "-m", "mase_server", "rpc", "info")
    other = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=environment, stdout=pipe)
    assert json.loads((await asyncio.wait_for(other.communicate(), 60))[0])["pid"] == process.pid
    assert most_memory(process.pid) - before < 16 << 10  # KiB

    while sum(client.answers.values()) < REQUESTS + 1:
        await client.read()
    await asking
    method, params = ASKED[1]
    client.send(id="last", method=method, params={**document, **params})
    hints = await client.answer("last")
    places = {(each["position"]["line"], each["position"]["character"]): each["label"] for each in hints}
    assert by_name(places, GOOD) == seen()
    assert client.answers == Counter([*range(REQUESTS), "first", "last"])
    assert most_memory(process.pid) - before < 16 << 10
    client.send(id="shutdown", method="shutdown")
    await client.answer("shutdown")
    client.send(method="exit")
    assert await asyncio.wait_for(process.wait(), 60) == 0


MANY = """\
import torch
from torch import nn


class Many(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(1, 1) for _ in range({count}))

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


if __name__ == "__main__":
    Many()(torch.randn(2, 1))
"""


@pytest.mark.parametrize("count", [2_000, 100_000] if os.environ.get("MASE_SEARCH") else [2_000])
async def test_a_model_of_many_modules_is_shown_or_told_and_others_answer_meanwhile(stand, count):
    before = most_memory(stand.server)
    tracing = asyncio.ensure_future(stand.open("many.py", MANY.format(count=count)))
    while not tracing.done():
        await stand.others_answer()
    problems = [one.code for one in await stand.problems("many.py")]
    if count == 2_000 or not problems:
        [titles] = (await stand.editor.lenses(stand.folder / "many.py")).values()
        assert {2_000: "4,000 parameters", 100_000: "200 k parameters"}[count] in " ".join(titles)
        assert not problems
    else:
        assert problems in (["time-limit"], ["memory-limit"])
    assert most_memory(stand.server) - before < 256 << 10  # KiB
    stand.close("many.py")
    await stand.others_answer()
