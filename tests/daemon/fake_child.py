"""A model file whose child is played: what a pipeline makes of a value is the names of its steps, e.g. `f32.one.two`.

Its hardware has a text that names the build's multipliers, the steps and the trace.

Steps that are called `fail...` fail, `late...` fail only once they are measured, `big...` are too big to be measured,
`argument...` are refused, `heavy` needs weights and is too big for them. A child
holds back what it says while its gates are closed.
"""

import asyncio
from dataclasses import replace

from mase_server.daemon.channel import CallFailed, WorkerGone
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.passes import Host, Passes
from mase_server.daemon.pipelines import PassError
from mase_server.daemon.status import FolderSettings
from mase_server.daemon.store import Entry, Store
from mase_server.daemon.verilog import Verilog
from mase_server.protocol.snapshot import COLUMNS, MODEL_KEYS, TRANSFORM_NODES, unique_titles

from .conftest import Ear
from .test_store import payload

PATH = "/w/net.py"


def overlay(model, steps, measured=False, row=None):
    """The overlay that the child tells: the steps before the first one that fails."""
    names = [step["pass"] for step in steps]
    failing = ("fail", "late") if measured else ("fail",)
    failed = next((index for index, name in enumerate(names) if name.startswith(failing)), None)
    left = failed if measured else next((index for index, name in enumerate(names) if name == "heavy"), failed)
    applied = steps[:left]
    value = ".".join(["f32", *names[:left]])
    sqnr = 40.0 if measured else None
    columns = [[model], [value], [sqnr], [None], [None], [None]]
    return {
        "model": model,
        "steps": [{**step, "title": step["pass"], "seconds": 0.0, "info": ""} for step in applied],
        "rows": [[model if row is None else row], [[value, [2], None]]],
        "nodes": dict(zip(TRANSFORM_NODES, columns, strict=True)),
        "inserted": [],
        "rewired": [],
        "summary": {"sqnr": sqnr},
        "inputs": "random inputs" if measured else "",
        "weights": "random weights" if measured else "",
        "complete": measured,
        "problem": None if failed is None else f"{names[failed]} failed at step {failed + 1}",
        "failed": failed,
    }


def hardware(snapshot, params):
    """The emission that the child tells: one operation, which is the only node of the model."""
    model = snapshot.titles.index(params["model"])
    steps = [step["pass"] for step in params["steps"]]
    operation = {"name": "fc", "kind": "linear", "module": "fixed_linear", "nodes": ["fc"], "rows": [model],
                 "lines": [[3, 4]], "scope": "fc", "estimate": {"multipliers": 4}}  # fmt: skip
    words = [params["model"], str(params["build"]["multipliers"]), *steps, f"of text {snapshot.sha256}"]
    return {
        "model": params["model"], "build": params["build"], "steps": steps, "weights": "random weights", "accuracy": {},
        "module": "net", "text": " ".join(words),
        "files": [["net.sv", 9]] if params["folder"] else [], "folder": params["folder"] or None,
        "operations": [operation], "unsupported": [], "totals": {"multipliers": 4}, "refusal": None, "scopes": [],
    }  # fmt: skip


class FakeChild:
    """Answers calls as a trace child would; its gates `formats`, `errors` and `hardware` are open until closed."""

    def __init__(self, snapshot, ear, file):
        self.snapshot, self.ear, self.file = snapshot, ear, file
        self.retired = False
        self.formats, self.errors, self.hardware = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.formats.set()
        self.errors.set()
        self.hardware.set()
        self.asked, self.cancelled = [], []
        self.died = asyncio.get_running_loop().create_future()

    async def call(self, method, params=None, on_event=None):
        if self.died.done():
            raise WorkerGone("it has ended")
        answer = asyncio.ensure_future(getattr(self, f"_{method}")(params, on_event))
        self.asked.append((method, params))
        self.ear.news.set()
        try:
            await asyncio.wait((answer, self.died), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.cancelled += [params] if method in ("transform", "verilog") else []
            self.ear.news.set()
            raise
        finally:
            answer.cancel()
        if not answer.done():
            raise WorkerGone("it has ended")
        return answer.result()

    def die(self, retired=False):
        self.retired = retired
        if not self.died.done():
            self.died.set_result(None)

    async def hears(self, method):
        """Wait until it is asked this."""
        await self.ear.until(lambda: any(asked == method for asked, _ in self.asked))

    async def _passes(self, params, on_event):
        return [{"name": "one", "menu": True}]

    async def _code(self, params, on_event):
        return {"text": ".".join([params["model"], *(step["pass"] for step in params["steps"])])}

    async def _verilog(self, params, on_event):
        on_event({"event": "progress", "id": 1, "message": "lowering", "fraction": None})
        await self.hardware.wait()
        if (why := self.file.no_hardware) is not None:
            raise CallFailed(why, "pass")
        told = hardware(self.snapshot, params) | self.file.told
        for operation in told["operations"][:-1]:
            on_event({"event": "operations", "id": 1, "operations": [operation]})
        return told | {"operations": told["operations"][-1:]}

    async def _transform(self, params, on_event):
        steps, model = params["steps"], self.snapshot.titles.index(params["model"])
        await self.formats.wait()
        if any(step["pass"].startswith("argument") for step in steps):
            raise CallFailed("width is -1, at least 1 is needed", "argument")
        if any(step["pass"].startswith("silent") for step in steps):
            raise CallFailed("the plain pass raised", "pass")
        on_event({"event": "progress", "id": 1, "message": "formats", "fraction": 0.5})
        on_event({"event": "transform", "id": 1, "transform": overlay(model, steps)})
        await self.errors.wait()
        if any(step["pass"].startswith(("big", "heavy")) for step in steps):
            raise CallFailed("the model takes 9 GiB, the limit is 4 GiB", "limit")
        on_event({"event": "transform", "id": 1, "transform": overlay(model, steps, measured=True)})
        return {}


class FakeFile:
    """One file with some models, its passes, and a hand that saves it. `tells`: does a trace tell formats itself?"""

    def __init__(self, *names, settings=None, tells=True):
        self.names, self.tells = names or ("Net",), tells
        self.settings = FolderSettings(trusted=True, pipelines=settings or {})
        self.store, self.ear = Store(), Ear()
        self.ended = asyncio.Event()
        self.generation, self.child, self.asked = 0, None, {}
        host = Host(
            self.store, self.ear, lambda folder: self.settings, lambda path: "/w", self._ready, lambda path: self.live
        )
        self.passes = Passes(host, lambda path, title: self.verilog.shown(path, title))
        self.verilog = Verilog(host, self.passes)
        #: Why the next hardware cannot be made; what is told of it besides.
        self.no_hardware, self.told = None, {}
        self.save()

    @property
    def live(self):
        return self.child if self.child is not None and not self.child.died.done() and self.ended.is_set() else None

    async def _ready(self, path):
        if not self.settings.trusted:
            raise PassError("untrusted", "not trusted")
        await self.ended.wait()
        if self.live is None:
            self.save()
        return self.live

    def save(self):
        self.begin()
        self.finish()

    def begin(self):
        """A trace begins: what runs on the old graphs is stopped."""
        self.ended.clear()
        self.passes.interrupt(PATH)
        self.verilog.interrupt(PATH)
        self.asked = self.passes.asked(PATH)
        self.generation += 1

    def finish(self):
        """It ends: its snapshot is shown, its child takes over."""
        place = {"file_index": 0, "line": 1, "column": 6, "end_line": 1, "end_column": 9}
        models = [
            {**dict.fromkeys(MODEL_KEYS, 0), "name": name, **place, "rest": name.startswith("Rest")}
            for name in self.names
        ]
        sites = [(index + 1, 0, index + 1, 1, "x", "binding") for index in range(len(self.names))]
        made = payload(sites, path=PATH, sha=str(self.generation), generation=self.generation, models=models)
        made["rows"]["model"] = list(range(len(self.names)))
        wanted = [(title, self.asked.get(title)) for title in unique_titles(self.names)] if self.tells else []
        made["transforms"] = [
            overlay(index, [step.to_wire() for step in steps]) for index, (_, steps) in enumerate(wanted) if steps
        ]
        made["nodes"] = self._nodes()
        snapshot = self.verilog.adopt(self.passes.adopt(GraphSnapshot(made), self.asked))
        self.ear.views_changed(self.store.put(Entry(PATH, snapshot.sha256, snapshot, False, snapshot.problems)))
        if self.child is not None:
            self.child.die(retired=True)
        self.child = FakeChild(snapshot, self.ear, self)
        self.ended.set()
        self.passes.traced(PATH)
        self.verilog.traced(PATH)

    def _nodes(self):
        """One node for each model, on a line of its own."""
        count = len(self.names)
        nodes = {name: [0] * count for name in COLUMNS["nodes"]}
        nodes["mase_op"] = ["linear"] * count
        nodes |= {"name": ["fc"] * count, "model": list(range(count)), "blob": [b""] * count, "end_column": [5] * count}
        lines = [11 + index for index in range(count)]
        return nodes | {"line": lines, "end_line": lines}

    def fail(self):
        """A trace ends, and nothing of the new text can be shown."""
        self.begin()
        entry = self.store.entry(PATH)
        self.store.put(replace(entry, sha256=str(self.generation), stale=True))
        self.ended.set()

    def shown(self, index=0):
        """What the value of a model is now: the names of the steps that made it."""
        (site,) = self.store.view(PATH).sites(index + 1, index + 1)
        return site.values[0].value[0]

    async def becomes(self, value, index=0):
        await self.ear.until(lambda: self.shown(index) == value)

    async def rests(self):
        """Wait until nothing runs any more."""
        await self.ear.until(lambda: not any(self.passes.tell(PATH, title)["running"] for title in self.titles))

    @property
    def titles(self):
        return unique_titles(self.names)
