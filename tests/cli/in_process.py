"""`mase-server` within the test's own process: each command a call, with one warm process of torch for all of them.

Started as a process, a command spends seconds on importing torch in the process that it forks traces from. Here all
commands share that one. What a process alone can show (its streams, its end, what it imports) is tested with real ones.
"""

import asyncio
import contextlib
import io
import os
import re
import sys
import threading
from functools import partial
from subprocess import CompletedProcess
from unittest.mock import patch

from mase_server.cli import attached, session
from mase_server.cli.main import main
from mase_server.daemon.daemon import Daemon
from mase_server.daemon.launcher import ForkLauncher


class Loaned:
    """A launcher of one daemon: its children are its own, the warm process that they are forked from is not."""

    preloads = False

    def __init__(self, lent, folder):
        self._lent, self.folder, self._children = lent, folder, []

    def __getattr__(self, name):
        return getattr(self._lent, name)

    async def launch(self, needs=(), path="", text=None):
        self._children.append(await self._lent.launch(needs, path, text))
        return self._children[-1]

    @property
    def idle(self):
        return not any(child.alive for child in self._children)

    def retire(self):
        pass

    async def close(self):
        await asyncio.gather(*(child.stop() for child in self._children))


class Warm:
    """An event loop in a thread, where all commands run, and a warm process for each interpreter. preload: modules
    that these import at once."""

    def __init__(self, preload=()):
        self._preload = preload
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._launchers = {}

    def run(self, work):
        """In place of `asyncio.run`."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(300)

    async def start(self, interpreter, folder, job, preload=()):
        """A launcher, for `Daemon`."""
        key = (interpreter, job)
        if key not in self._launchers:
            self._launchers[key] = asyncio.ensure_future(ForkLauncher.start(interpreter, "/", job, self._preload))
        return Loaned(await self._launchers[key], folder)

    def close(self):
        self.run(self._ended())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    async def _ended(self):
        launchers = await asyncio.gather(*self._launchers.values(), return_exceptions=True)
        await asyncio.gather(*(each.close() for each in launchers if isinstance(each, ForkLauncher)))


def call(warm, words, environment, cwd=None):
    """What the command of these words gives, as `subprocess.run` tells it."""
    attached.cached_reports.cache_clear()  # kept for one command
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(cwd or "."))
        stack.enter_context(patch.dict(os.environ, environment, clear=True))
        stack.enter_context(patch.object(sys, "argv", ["mase-server", *map(str, words)]))
        stack.enter_context(patch.object(session, "Daemon", partial(Daemon, launcher=warm.start)))
        stack.enter_context(patch.object(asyncio, "run", warm.run))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code
    return CompletedProcess(words, code or 0, out.getvalue(), err.getvalue())


def unboxed(text):
    """What a box says, however wide it is: without its frame, its spaces and its line ends."""
    return re.sub(r"[│╭╮╰╯─\s]", "", text)
