"""Hardware without a compiler: two instances, `fc` of line 4 and `out` of the last line, in a text of nine lines.

A model with `# refuse` in its file is refused, and offers the scope `fc`; with `# sort` its second node has none;
`# slow` keeps its emission until cancelled, `# long simulation` its simulation; of a text with `# no hardware` nothing
can be made.
"""

import asyncio
from pathlib import Path

from mase_server.building import Build
from mase_server.daemon.emissions import Emission
from mase_server.daemon.pipelines import PassError

ESTIMATE = {"multipliers": 4, "luts": 300, "memory_bits": 1600, "cycles": 20, "latency": 7}
TOTALS = {"multipliers": 8, "luts": 600, "memory_bits": 3200, "interval": 20, "latency": 50, "bottlenecks": ["fc"]}
SIMULATED = {"status": "equal", "vectors": 100, "mismatches": 0, "cycles_per_vector": 20.0, "latency": 52,
             "cycles": 2050, "first": None, "seconds": {"build": 1.0, "run": 0.1}, "log": ""}  # fmt: skip


def text_of(model, build):
    return f"""\
/// {model}: 2 operations, {build.multipliers or 2} multipliers.
module {model.lower()} (
    input logic clk
);
  fixed_linear #(
  ) fc_i (.clk(clk));

  fixed_cast #() out_i (.clk(clk));
endmodule
"""


class FakeVerilog:
    """The seam of the daemon's hardware."""

    def __init__(self, store, listener):
        self.store, self.listener = store, listener
        self.builds, self.emissions, self.orders = {}, {}, []

    async def emit(self, path, title, build=None, *, folder="", vectors=None, inputs="", overwrite=False):
        snapshot = self.store.snapshot(path)
        title = title or snapshot.titles[0]
        given = Build.from_wire(build or {}) if build is not None else self.builds.get((path, title), Build())
        if folder and Path(folder).is_dir() and any(Path(folder).iterdir()) and not overwrite:
            raise PassError("argument", f"{folder} holds files of others. Choose an empty one, or say overwrite.")
        if "# slow" in Path(path).read_text():
            self.listener.verilog_progress(path, title, "packing memories", 0.5)
            await asyncio.Event().wait()
        self.builds[path, title] = given
        self._emit(path, title, folder)
        return dict(self.emissions[path, title].told)

    def emission(self, path, title=None):
        return self.emissions.get((path, title))

    def tell(self, path, title=None):
        build, found = self.builds.get((path, title)), self.emissions.get((path, title))
        return {"model": title, "build": build and build.to_wire(), "default": Build().to_wire(),
                "emission": found and found.without_text(), "stale": bool(found and found.stale), "running": False,
                "problem": ""}  # fmt: skip

    def forget(self, path, title=None):
        found = self.emissions.pop((path, title), None)
        self.builds.pop((path, title), None)
        self._lay(path)
        self.listener.verilog_changed(path, title)
        return found is not None

    async def simulate(self, path, title=None, *, vectors=None, inputs="", stall=0, wave=False):
        self.listener.verilog_progress(path, title, "building 1 of 3", 0.3)
        if "# long simulation" in Path(path).read_text():
            await asyncio.Event().wait()
        shown = {"file": "/cache/verilog/net/sim/wave.vcd", "picture": "/cache/verilog/net/sim/wave.svg"}
        return {
            **SIMULATED, "vectors": vectors or 100, "folder": "/cache/verilog/net", "wave": shown if wave else None
        }  # fmt: skip

    def adopt(self, snapshot):
        """A fresh snapshot: what was built before is built again."""
        for path, title in self.builds:
            if path == snapshot.path and title in snapshot.titles:
                self.emissions[path, title] = self._follows(snapshot, title)
                self.listener.verilog_changed(path, title)
        return snapshot.with_hardware(self._over(snapshot))

    def _follows(self, snapshot, title):
        if "# no hardware" in Path(snapshot.path).read_text():
            return self.emissions[snapshot.path, title].outdated("quantize: there is\nnothing to round.")
        return self._made(snapshot, title, "")

    def outdate(self, path):
        """The newest text cannot be traced."""
        for (file, title), emission in self.emissions.items():
            if file == path:
                self.emissions[file, title] = emission.outdated()
        self._lay(path)

    def _emit(self, path, title, folder):
        self.emissions[path, title] = self._made(self.store.snapshot(path), title, folder)
        self._lay(path)
        self.listener.verilog_changed(path, title)

    def _over(self, snapshot):
        return {snapshot.titles.index(title): found for (path, title), found in self.emissions.items()
                if path == snapshot.path and title in snapshot.titles}  # fmt: skip

    def _lay(self, path):
        entry = self.store.entry(path)
        shown = entry.shown.with_hardware(self._over(entry.shown))
        entry = type(entry)(path, entry.sha256, shown, entry.stale, entry.problems)
        self.listener.views_changed(self.store.put(entry))

    def _made(self, snapshot, title, folder):
        build = self.builds[snapshot.path, title]
        rows = [row for row, name in enumerate(snapshot.payload["nodes"]["name"]) if name.startswith(title)]
        refused = "# refuse" in Path(snapshot.path).read_text() and not build.scope
        unsupported = [
            {"node": "sort", "operator": "sort", "why": "no component sorts", "row": row}
            for row in rows[1:] if "# sort" in Path(snapshot.path).read_text() and not build.scope
        ]  # fmt: skip
        text = "" if refused else text_of(title, build)
        words = (("fc", "fixed_linear", [[5, 6]]), ("out", "fixed_cast", [[8, 8]]))
        operations = [
            {"name": name, "kind": name, "module": module, "nodes": [], "rows": rows[at : at + 1], "lines": lines,
             "scope": name, "estimate": ESTIMATE}
            for at, (name, module, lines) in enumerate(words)
        ]  # fmt: skip
        told = {"model": title, "build": build.to_wire(), "steps": [],
                "weights": "random weights (seed 0)", "accuracy": {}, "module": title.lower(), "text": text,
                "files": [["net.sv", len(text)]], "folder": folder or None, "operations": operations,
                "unsupported": unsupported, "totals": TOTALS, "scopes": ["fc"] if refused or unsupported else [],
                "refusal": "it takes 9,000 multipliers, and 8,192 are allowed" if refused else None}  # fmt: skip
        return Emission.of(snapshot, snapshot.titles.index(title), build, (), told)
