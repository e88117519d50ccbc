"""Passes without a compiler: `quantize` gives every f32 value the format it is told, other passes do as they are named.

`fail` raises, `hang` reports that it is half done and runs until it is cancelled, `guess` is an analysis. What a
pipeline made is first without errors and then with SQNR 38.2 dB; with `late` in it, only at the next save.
"""

from __future__ import annotations

import asyncio
from collections import namedtuple

from mase_server.daemon.graph_snapshot import Transform
from mase_server.daemon.pipelines import PassError
from mase_server.protocol.arguments import Step
from mase_server.protocol.snapshot import TRANSFORM_NODES


def argument(name, kind, help, **more):
    empty = {"default": None, "required": False, "choices": [], "minimum": None, "maximum": None}
    return {"name": name, "kind": kind, "help": help, **empty, **more}


ONLY = argument("only", "texts", "parts of the model; everything without it")


def declared(name, title, *arguments, selects=True, kind="transform"):
    words = {"help": f"{title} it.", "mase": f"{name}_{kind}_pass", "source": "", "needs": []}
    given = [*arguments, *([ONLY] if selects else [])]
    return {"name": name, "title": title, "kind": kind, "arguments": given, "others": None, "selects": selects,
            "menu": True, **words}  # fmt: skip


DEFAULT = argument("default", "format", "the format", required=True, choices=["fixed(8,4)", "mxint(8,32)"])
PASSES = [
    declared("fail", "Fail"),
    declared("guess", "Guess", selects=False, kind="analysis"),
    declared("hang", "Hang"),
    declared("late", "Come late"),
    declared("prune", "Prune", argument("sparsity", "number", "the part", default=0.5, minimum=0.0, maximum=1.0)),
    declared("quantize", "Quantise", DEFAULT),
]


Pipeline = namedtuple("Pipeline", "steps undone")


class FakePasses:
    """The seam of the daemon's passes."""

    def __init__(self, store, listener):
        self.store, self.listener = store, listener
        self.pipelines = {}
        self.saved = asyncio.Event()

    def listed(self, path, title=None, only=()):
        return PASSES

    def tell(self, path, title=None):
        snapshot = self.store.snapshot(path)
        if snapshot is None or not snapshot.titles:
            return {}
        pipeline = self._of(path, title or snapshot.titles[0])
        return {
            "model": title or snapshot.titles[0],
            "steps": [str(step) for step in pipeline.steps],
            "undone": [str(step) for step in pipeline.undone],
        }

    async def apply(self, path, title, step):
        if step.name == "fail":
            raise PassError("pass", "fail: layer 'fc' has no weight; leave it out with only=[...]")
        if step.name == "hang":
            self.listener.pass_progress(path, title, "half of it", 0.5)
            await asyncio.Event().wait()
        return await self._change(path, title, [*self._of(path, title).steps, step], [])

    async def undo(self, path, title):
        steps, undone = self._of(path, title)
        if not steps:
            raise ValueError(f"there is nothing to undo: no pass is applied to {title}")
        return await self._change(path, title, steps[:-1], [*steps[-1:], *undone])

    async def redo(self, path, title):
        steps, undone = self._of(path, title)
        return await self._change(path, title, [*steps, *undone[:1]], undone[1:])

    async def reset(self, path, title):
        steps, undone = self._of(path, title)
        return await self._change(path, title, [], [*steps, *undone])

    async def replace(self, path, title, steps):
        return await self._change(path, title, list(steps), [])

    def settings_form(self, path):
        known = {title: one for (file, title), one in self.pipelines.items() if file == path and one.steps}
        return {title: [str(step) for step in one.steps] for title, one in known.items()}

    async def code(self, path, title, original):
        if self.store.snapshot(path) is None:
            raise PassError("gone", f"{path} is not traced")
        steps = () if original else self._of(path, title).steps
        lines = [f"class {title.partition(' ')[0]}:", *(f"    # {one}" for one in steps)]
        return "".join(f"{line}\n" for line in lines)

    def adopt(self, snapshot):
        """A fresh snapshot with what its pipelines make of it."""
        self.saved.set()
        return snapshot.with_transforms(
            {
                index: self._transform(snapshot, index, self._of(snapshot.path, title), True)
                for index, title in enumerate(snapshot.titles)
                if self._of(snapshot.path, title).steps
            }
        )

    def _of(self, path, title):
        return self.pipelines.get((path, title), Pipeline([], []))

    async def _change(self, path, title, steps, undone):
        self.pipelines[path, title] = pipeline = Pipeline(steps, undone)
        self._show(path, title, measured=False)
        if pipeline.steps:
            if any(step.name == "late" for step in pipeline.steps):
                self.saved.clear()
                await self.saved.wait()
            self._show(path, title, measured=True)
        self.listener.pass_ended(path, title)
        return self.tell(path, title)

    def _show(self, path, title, measured):
        entry = self.store.entry(path)
        index = entry.shown.titles.index(title)
        others = {key: value for key, value in entry.shown.transforms.items() if key != index}
        if self._of(path, title).steps:
            others[index] = self._transform(entry.shown, index, self._of(path, title), measured)
        snapshot = entry.shown.with_transforms(others)
        self.listener.views_changed(self.store.put(type(entry)(path, entry.sha256, snapshot, False, entry.problems)))

    def _transform(self, snapshot, index, pipeline, measured):
        formats = [step.arguments.get("default") for step in pipeline.steps if step.name == "quantize"]
        rows, values = snapshot.payload["rows"], snapshot.payload["values"]
        changed = {}
        for row, value in enumerate(rows["value"]):
            if rows["model"][row] == index and formats and values[value][0] == "f32":
                changed[row] = [formats[-1], *values[value][1:]]
        summary = {"nodes": [3, 5], "parameters": [1010, 1010], "parameter_bytes": [4040, 1010],
                   "data_bits": [32.0, 8.0], "weight_bits": [32.0, 8.0], "sqnr": 38.2 if measured else None,
                   "max_error": 0.0123 if measured else None}  # fmt: skip
        steps = [
            {**Step.to_wire(step), "title": step.name, "seconds": 0.1, "info": f"{step.name} did it"}
            for step in pipeline.steps
        ]
        told = {"model": index, "steps": steps, "summary": summary, "complete": measured, "problem": None,
                "failed": None, "inputs": "random inputs (seed 0)" if measured else "",
                "weights": "random weights (seed 0)" if measured else "", "formats": {"fixed(8,4)": 8.0}}  # fmt: skip
        nodes = {name: [] for name in TRANSFORM_NODES}
        return Transform.from_wire({**told, "rows": [list(changed), list(changed.values())], "nodes": nodes})
