"""Runs of steps over servers that are used again and again; a run that fails tells the steps that it was made of."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator

from fuzz_play import Play
from fuzz_server import STYLES, Server
from fuzz_steps import STEPS, Step, play
from fuzz_wire import Broken

#: The first of these do most: what fails is made simple towards them.
NAMES = [name for name, (often, _) in STEPS.items() for _ in range(often)]
#: In long runs what needs no trace is three times as frequent: traces are what takes time.
LONG = [name for name in NAMES for _ in range(3 if STEPS[name][0] >= 12 else 1)]
#: Beyond the longest text.
MOST = 1000


class Servers:
    """One server of each style, started when it is first wanted, and anew after a failure."""

    def __init__(self) -> None:
        self._servers: dict[str, Server] = {}
        self.runs = self.steps = self.requests = 0
        self.done: Counter[str] = Counter()

    def begin(self, style: str) -> Play:
        """A new run."""
        if style not in self._servers:
            server = self._servers[style] = Server(style, lambda method, params: None)
            server.shake_hands()
        self.runs += 1
        run = Play(self._servers[style], self.runs)
        run.open(run.new())
        return run

    def step(self, run: Play, one: Step) -> None:
        """One step of a run; Broken tells all of them."""
        self.steps += 1
        self.done[one[0]] += 1
        with _told(self, run):
            play(run, one)

    def finish(self, run: Play) -> None:
        """The end of a run."""
        if run.server is self._servers.get(run.server.style):
            with _told(self, run):
                run.finish()
            self.requests += run.wire.asked - run.asked_before + run.tool_asked

    def drop(self, run: Play) -> None:
        """Never use this server again."""
        if self._servers.pop(run.server.style, None) is not None:
            run.server.dispose()

    def stop(self) -> None:
        """End all of them in order, and nothing is left."""
        servers, self._servers = list(self._servers.values()), {}
        for server in servers:
            server.stop()


class _told:
    """Adds to a failure by which steps it can be had again, and throws the server away."""

    def __init__(self, servers: Servers, run: Play) -> None:
        self._servers, self._run = servers, run

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        run = self._run
        code = run.server.process.poll()
        log = f"(exit status {code}) " * (code is not None) + run.server.log.read_text(errors="replace")[-3000:]
        self._servers.drop(run)
        if isinstance(error, Exception):
            steps = json.dumps([run.server.style, run.journal])
            told = f"{error}\n\nThe server's log: {log or 'empty'}"
            raise Broken(f"{told}\nTo play it again: MASE_FUZZ_REPLAY='{steps}'") from error


def at_random(seed: int, length: int) -> tuple[str, Iterator[Step]]:
    """A style, and this many steps."""
    dice = random.Random(seed)
    style = dice.choice(list(STYLES))
    return style, ((dice.choice(LONG), *(dice.randrange(MOST) for _ in range(3))) for _ in range(length))  # type: ignore[misc]


def replay(style: str, steps: Iterable[Step], servers: Servers | None = None) -> None:
    """Play these steps once, on a server of their own unless others are given."""
    used = servers or Servers()
    run = used.begin(style)
    for one in steps:
        used.step(run, one)
    used.finish(run)
    if servers is None:
        used.stop()


def many(total: int, seed: int, length: int = 400) -> Iterator[tuple[Servers, str | None]]:
    """Runs at random until so many steps were done: (what was done so far, what failed or None) after each."""
    servers = Servers()
    while servers.steps < total:
        style, steps = at_random(seed, length)
        failed = None
        try:
            replay(style, steps, servers)
        except Broken as error:
            failed = f"seed {seed}: {error}"
        yield servers, failed
        seed += 1
    servers.stop()
