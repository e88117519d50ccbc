"""Many editors with one folder, and many other clients: does each see a save, is anything spoilt, is anything left?

`python benchmarks/editors.py [--editors N] [--clients N] [--saves N]`. Each editor has a server of its own; all share
one folder, one cache, one state folder and one runtime folder, empty at first. The clients are asked for by the folder,
so they all find the server that was registered last. It stops where something does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import uuid
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "faults"), str(TESTS / "lsp")]

from editing import Editor  # noqa: E402
from family import MARK, family, until  # noqa: E402
from faulting import SERVER  # noqa: E402
from good_net import by_name, good, seen  # noqa: E402

from mase_server.client import AsyncClient  # noqa: E402


async def opened(folder: Path, path: Path) -> Editor:
    """An editor with the file open and traced."""
    editor = Editor(folder, options={"trusted": True, "interpreter": sys.executable})
    await editor.start(*SERVER)
    editor.open(path)
    assert (state := await editor.end_state(path)) == "ready", state
    return editor


async def follows(editor: Editor, path: Path, width: int) -> None:
    """Wait until an editor that did not make this change shows it."""
    while by_name(await editor.hints(path), path.read_text()) != seen(width):
        await editor.expect("mase/status", lambda told: told.uri == path.as_uri())


async def measure(editors: int, clients: int, saves: int) -> None:
    """Print how long each step took."""
    with tempfile.TemporaryDirectory(prefix="editors-") as name:
        top, mark = Path(name), uuid.uuid4().hex
        folder, path = top / "work", top / "work" / "net.py"
        folder.mkdir()
        path.write_text(good())
        places = {"XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state", "MASE_RUNTIME_DIR": "run"}
        os.environ |= {MARK: mark, **{variable: str(top / where) for variable, where in places.items()}}
        begun = time.monotonic()
        running = await asyncio.gather(*(opened(folder, path) for _ in range(editors)))
        print(f"{editors} editors opened one file from an empty cache in {time.monotonic() - begun:.1f} s", flush=True)
        asking = [AsyncClient(workspace=folder) for _ in range(clients)]
        await asyncio.gather(*(one.call("mase/open", {"path": str(path)}) for one in asking))
        for number in range(saves):
            width, begun = 20 + 4 * number, time.monotonic()
            path.write_text(good(width))  # by none of them
            await asyncio.gather(*(follows(editor, path, width) for editor in running))
            answers = await asyncio.gather(*(one.call("mase/retrace", {"path": str(path)}) for one in asking))
            assert {told["state"] for told in answers} == {"ready"}, answers
            print(f"save {number + 1} was seen by all in {time.monotonic() - begun:.1f} s", flush=True)
        assert len(list((top / "run").glob("*.json"))) == editors
        for editor in running:
            editor.unread.clear()
        await asyncio.gather(*(editor.stop() for editor in running))
        await until(lambda: not family(mark, 0))
        left = [each.name for each in (top / "run").iterdir()]
        lines = [line for log in (top / "state").rglob("*.jsonl") for line in log.read_text().splitlines()]
        bad = [line for line in lines if json.loads(line)["level"] in ("error", "critical")]
        assert not left, left
        assert not bad, bad
        print(
            f"{editors} editors, {clients} clients, {saves} saves: nothing left, no error in {len(lines)} lines of logs"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--editors", type=int, default=20)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--saves", type=int, default=3)
    given = parser.parse_args()
    asyncio.run(measure(given.editors, given.clients, given.saves))
