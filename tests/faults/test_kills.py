"""Whoever is killed, whenever: nothing is left of it, and all works again. `benchmarks/kills.py` does more."""

import asyncio
import os

from family import until
from good_net import good
from killing import Killer

#: One of each kind of process but the closed input; `make nightly-kills` kills and stops every kind, hundreds of times.
VICTIMS = ("stopped child", "warm parent", "server of stopped ones", "editor")
SEED = int(os.environ.get("MASE_KILL_SEED", "1"))


async def test_kills_and_stops_at_random_moments_leave_nothing_and_hold_up_nothing(tmp_path):
    killer = Killer(tmp_path, SEED)
    try:
        for what in VICTIMS:
            await killer.kill(what)
    finally:
        await killer.stop()


async def test_shutdown_is_answered_when_everything_has_ended_whatever_is_going_on(new_stand):
    stand = await new_stand(options={"limits.seconds": 300})
    endless = good().replace("        h = self.a", "        while True: pass\n        h = self.a")
    stubborn = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + endless
    files = {"loop.py": endless, "stubborn.py": stubborn, "passes.py": good(20)}
    uris = {name: (stand.folder / name).as_uri() for name in files}
    assert [await stand.open(name, good()) for name in files] == ["ready"] * 3
    for name, text in files.items():
        stand.send(name, text)
        await stand.editor.expect("mase/status", lambda told: told.state == "tracing" and told.uri in uris.values())
    params = {"path": str(stand.folder / "one.py"), "model": "Net", "pass": "quantize"}
    applying = asyncio.ensure_future(stand.editor.request("mase/applyPass", params))
    await stand.editor.expect("mase/viewsChanged")
    await stand.editor.client.shutdown_async(None)
    assert {each.pid for each in stand.processes()} == {stand.server}
    stand.editor.client.exit(None)
    await until(lambda: not stand.processes())
    assert await stand.editor.process.wait() == 0
    await asyncio.wait((applying,))
    applying.exception()
