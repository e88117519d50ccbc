"""The costs of a run on the device that was picked for a folder: asked for after each save, told in lenses and hovers.

The pick is kept in the user's state folder; without one, the setting `mase.costs` decides. Nothing is computed where
neither names a device. First come memory and time, then the sizes that fit, which take more runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams

from mase_server.daemon.api_devices import compare_with_earlier
from mase_server.daemon.graph_snapshot import GraphSnapshot, is_same_trace
from mase_server.daemon.trials import PickedSets
from mase_server.lsp.calls import as_map, ask_person, call_api, model_of, models_of
from mase_server.lsp.wording import OLDER, describe_change, describe_fit, format_seconds, format_with_prefix
from mase_server.private import describe_os_error
from mase_server.visible import align_table_columns, escape_markdown

if TYPE_CHECKING:
    from mase_server.daemon.graph_snapshot import NodeRun
    from mase_server.daemon.store import ModelView
    from mase_server.lsp.server import Server
    from mase_server.protocol.answers import ChangedLine, CostComparison, DeviceCosts

#: The command that picks a device.
PICK = "mase.pickDevice"
#: What a pick tells.
_KEYS = ("device", "train", "dtype")
#: Lines of a comparison that are listed.
_MOST_LINES = 12
_NO_DEVICE, _INFERENCE = "None", "Inference"
#: What is asked for a mode -> the optimizer.
MODES = {
    _INFERENCE: "", "Training, with the file's own optimizer": "auto", "Training, AdamW": "adamw",
    "Training, SGD": "sgd", "Training, SGD with momentum": "momentum", "Training, Adafactor": "adafactor",
    "Training, 8-bit Adam": "adam8bit",
}  # fmt: skip
_Key = tuple[str, str]


class RunCosts:
    """Has the daemon tell what runs cost, for the open files of folders with a device."""

    def __init__(self, server: Server, state_dir: Path) -> None:
        self._server = server
        self._kept = PickedSets(state_dir, "devices.json")
        self._picks: dict[str, Mapping[str, str]] = {}
        self._running: set[str] = set()
        #: The last trace and pick that were asked for.
        self._asked: dict[_Key, tuple[str, int, Mapping[str, str]]] = {}
        self._failed: dict[_Key, str] = {}

    def picked(self, path: str) -> Mapping[str, str]:
        """The device, the optimizer and the element type that are shown for a file; {} if nothing is."""
        folder = self._server.folders.folder_of(path)
        if folder not in self._picks:
            self._picks[folder] = self._kept.of(folder)
        found = self._picks[folder] or self._server.settings_of(path).costs
        return {key: found.get(key, "") for key in _KEYS} if found.get("device") else {}

    def pick(self, path: str, pick: Mapping[str, str]) -> None:
        """Keep a pick for the folder of a file, and show it; OSError if it cannot be kept."""
        folder = self._server.folders.folder_of(path)
        for key in _KEYS:
            self._kept.pick(folder, key, pick.get(key, ""))
        self._picks[folder] = {key: pick.get(key, "") for key in _KEYS}
        self.settings_changed()

    def settings_changed(self) -> None:
        """Show what is picked now in every open file."""
        for key in self._failed:
            self._asked.pop(key, None)
        self._failed.clear()
        for path in self._server.documents.paths():
            for model in models_of(self._server, path) if not self.picked(path) else ():
                self._asked.pop((model.snapshot.path, model.title), None)
                self._server.daemon.show_run(model.snapshot.path, model.title, None)
        self.follow(self._server.documents.paths())

    def follow(self, paths: Iterable[str]) -> None:
        """Ask for the costs of the models of these open files, where they are shown and not known."""
        for path in paths:
            if path not in self._running and self._server.documents.get(path) and self._find_next(path) is not None:
                self._running.add(path)
                self._server.spawn(self._follow_file(path))

    def _find_next(self, path: str) -> ModelView | None:
        """The next model of a file whose costs must be asked for; none while its text is not saved."""
        view, pick = self._server.daemon.store.view(path), self.picked(path)
        if not pick or view is None or view.unsaved or view.stale:
            return None
        return next((each for each in models_of(self._server, path) if not self._is_known(each, pick)), None)

    def _is_known(self, model: ModelView, pick: Mapping[str, str]) -> bool:
        asked = self._asked.get((model.snapshot.path, model.title))
        return asked == (model.snapshot.sha256, model.snapshot.generation, pick)

    async def _follow_file(self, path: str) -> None:
        try:
            while (model := self._find_next(path)) is not None:
                await self._server.daemon.wait(model.snapshot.path)
                await self._ask(path, model.snapshot.path, model.title)
        finally:
            self._running.discard(path)

    async def _ask(self, opened: str, path: str, title: str) -> None:
        snapshot, pick = self._server.daemon.store.snapshot(path), self.picked(opened)
        if snapshot is None or not pick:
            return
        self._asked[path, title] = snapshot.sha256, snapshot.generation, pick
        asked = {"path": path, "model": title, **pick, "show": True}
        try:
            told: DeviceCosts = await call_api(self._server, "mase/deviceCosts", **asked)
            if self._failed.pop((path, title), None):
                self._server.listener.refresh()
            if told["memory"] and told["sizes"]:
                await call_api(self._server, "mase/deviceCosts", **asked, fit=True)
        except JsonRpcException as error:
            if is_same_trace(snapshot, self._server.daemon.store.snapshot(path)):
                self._fail(path, title, pick["device"], " ".join(str(error).split()))

    def _fail(self, path: str, title: str, device: str, why: str) -> None:
        """Tell a failure in the log, unless it is the last one of this model."""
        known, self._failed[path, title] = self._failed.get((path, title)), why
        if known != why:
            self._server.listener.costs_failed(path, f"there are no costs of {title} on {device}: {why}")
        self._server.daemon.show_run(path, title, None)
        self._server.listener.refresh()

    def lens_texts(self, model: ModelView) -> tuple[str, ...]:
        """The texts of a lens, from long to short; () if no costs are shown."""
        path, title = model.snapshot.path, model.title
        if (path, title) in self._failed and self.picked(path):
            return (f"no costs on {self.picked(path)['device']}",)
        run = self._server.daemon.run_shown(path, title)
        if run is None:
            return ()
        mark = "" if is_same_trace(run, model.snapshot) else OLDER
        return tuple(f"{mark}{text}" for text in describe_run(run.told))

    def node_text(self, snapshot: GraphSnapshot, row: int) -> str:
        """The share of a node in a run; "" if no costs of its trace are shown."""
        run = self._server.daemon.run_costs(snapshot, snapshot.titles[snapshot.payload["nodes"]["model"][row]])
        return "" if run is None or row not in run.nodes else describe_part(run.nodes[row], run.told)

    def model_rows(self, model: ModelView) -> Iterator[tuple[str, str]]:
        """The rows of a model's card."""
        run = self._server.daemon.run_costs(model.snapshot, model.title)
        if run is None:
            return
        told = run.told
        kinds = sorted(told["kinds"].items(), key=lambda pair: -pair[1])
        parts = ", ".join(f"{kind} {in_gb(size)}" for kind, size in kinds)
        yield f"{_name_mode(told)} on {escape_markdown(told['device']['title'])}", f"{_describe_time(told)} (estimate)"
        yield "peak memory", f"{in_gb(told['peak_bytes'])}: {parts}"
        if told["fits"]:
            yield "sizes", escape_markdown(describe_fit(told))
        if (change := compare_with_earlier(run)) is not None:
            numbers = ", ".join(str(each["line"]) for each in change["lines"] if each["line"])
            yield "this change", f"{describe_change(change)}{f': {numbers}' if numbers else ''}"


def in_gb(size: float) -> str:
    """Bytes with GB = 10^9, as the makers of devices count."""
    return format_with_prefix(size, "B")


def _name_mode(told: DeviceCosts) -> str:
    return f"training with {told['optimizer']}" if told["optimizer"] else "inference"


def _describe_time(told: DeviceCosts) -> str:
    return f"{format_seconds(told['seconds'])}, {told['bound']}-bound"


def describe_run(told: DeviceCosts) -> tuple[str, ...]:
    """`L4 24 GB: fits, B <= 18 · est. 3.1 ms, memory-bound`, and shorter forms; `training` is said."""
    peak, memory = told["peak_bytes"], told["memory"]
    most = next((f", {name} <= {size}" for name, size in told["fits"].items() if size), "")
    room = f"needs {in_gb(peak)}" if not memory or peak > memory else f"fits{most}"
    device = f"{told['device']['name']} {memory / 1e9:.3g} GB" if memory else told["device"]["name"]
    mode = "train, " if told["optimizer"] else ""
    bound, time = f", {told['bound']}-bound" if told["bound"] else "", f"est. {format_seconds(told['seconds'])}"
    return (
        f"{mode}{device}: {room} · {time}{bound}",
        f"{mode}{told['device']['name']}: {room} · {time}",
        f"{room} · {time}",
    )


def describe_part(part: NodeRun, told: DeviceCosts) -> str:
    """`est. 3.1 ms on L4, memory-bound · 2.1 GFLOPs · 12.0 MB moved · 4.0 MB of activations held at the peak`."""
    parts = [f"est. {format_seconds(part.seconds)} on {told['device']['name']}, {part.bound}-bound"]
    parts += [format_with_prefix(part.flops, "FLOPs")] if part.flops else []
    parts += [f"{in_gb(part.moved)} moved"]
    parts += [f"{in_gb(part.held)} of activations held at the peak"] if part.held else []
    return " · ".join(parts)


async def pick_device(ls: Server, given: Any = None) -> Mapping[str, str] | None:
    """mase.pickDevice {device?, train?, dtype?}: show what the models of a folder need on a device from now on.

    device: a name that `mase/devices` lists, "" for none; train: an optimizer, "auto" for the file's own, "" for
    inference.  The user is asked for a device and a mode that are not given.  The pick is kept for the folder.
    """
    asked = as_map(given)
    named = str(asked.get("path") or asked.get("uri") or (given if isinstance(given, str) else ""))
    path = ls.path_of(named) if named else next(iter(ls.documents.paths()), "")
    device = asked.get("device")
    if device is None:
        known = await call_api(ls, "mase/devices", path=path)
        names = [each["name"] for each in known["devices"]]
        answer = await ask_person(ls, "Show costs on which device?", [_NO_DEVICE, *names])
        if answer is None:
            return None
        device = "" if answer == _NO_DEVICE else answer
    train = asked.get("train")
    if device and train is None:
        answer = await ask_person(ls, f"Costs of what on {device}?", list(MODES))
        if answer is None:
            return None
        train = MODES[answer]
    pick = {"device": str(device), "train": str(train or ""), "dtype": str(asked.get("dtype") or "")}
    try:
        ls.costs.pick(path, pick)
    except OSError as error:
        raise JsonRpcException(
            f"the pick is not kept: {describe_os_error(error)}", lsp.LSPErrorCodes.RequestFailed.value
        ) from error
    return pick


_SAVED, _PASSES = "The text before", "Its passes"


async def compare_costs(ls: Server, given: Any = None) -> dict[str, str] | None:
    """mase.compareCosts {before?, after?}: {"uri", "text"} of the difference as a table, shown if the client can.

    before, after: as for `mase/compareCosts`; the user is asked if neither is given.  It is told for the picked device,
    or else the processors of this machine.
    """
    target, asked = model_of(ls, given), as_map(given)
    path, title = target["path"], target["model"]
    sides = {key: asked[key] for key in ("before", "after") if key in asked}
    run, snapshot = ls.daemon.run_shown(path, title), ls.daemon.store.snapshot(path)
    if not sides and snapshot is not None:
        model = snapshot.payload["models"][snapshot.titles.index(title)]
        ways: dict[str, dict[str, Any]] = {}
        if run is not None and run.before is not None:
            ways[_SAVED] = {"before": {"text": run.before.text}}
        if snapshot.titles.index(title) in snapshot.transforms:
            ways[_PASSES] = {"before": {}, "after": {"passes": True}}
        ways |= {f"Inputs {name}": {"before": {"set": name}} for name in model["sets"] if name != model["set"]}
        if not ways:
            what = "save a change while its costs are shown, apply a pass, or name inputs"
            raise JsonRpcInvalidParams(f"there is nothing to compare {title} with: {what}")
        answer = await ask_person(ls, f"Compare the costs of {title} with what?", list(ways))
        if answer is None:
            return None
        sides = ways[answer]
    pick = ls.costs.picked(path)
    told = await call_api(ls, "mase/compareCosts", **target, **pick, **{"before": {}, **sides})
    return await ls.contents.show_text(f"{title}.costs.txt", describe_comparison(told, lambda file: Path(file).name))


def describe_comparison(told: CostComparison, name_file: Callable[[str], str]) -> str:
    """The difference of two runs as a table: what it comes to, the figures, and the lines."""
    before, after = told["before"], told["after"]
    what = f"training with {after['optimizer']}" if after["optimizer"] else "inference"
    kinds = {
        kind: [side["kinds"].get(kind, 0) for side in (before, after)] for kind in before["kinds"] | after["kinds"]
    }
    figures = [
        ["peak", *map(in_gb, (before["peak_bytes"], after["peak_bytes"]))],
        *([f"  {kind}", *map(in_gb, sizes)] for kind, sizes in kinds.items() if sizes[0] != sizes[1]),
        ["time (estimate)", *map(format_seconds, (before["seconds"], after["seconds"]))],
        ["FLOPs in products", *(format_with_prefix(side["flops"], "") for side in (before, after))],
        *([f"{name} =", *(str(side["sizes"].get(name, "")) for side in (before, after))] for name in after["sizes"]),
    ]
    lines = [_describe_line(row, name_file) for row in told["lines"][:_MOST_LINES]]
    parts = [
        f"{told['model']}: {what}, on {told['device']['title']}",
        f"  this change: {describe_change(told)}",
        *_table("in all", ("", "before", "after"), figures),
        *_table("lines that differ", ("line", "time", "moved", "held at the peak", "module"), lines),
    ]
    return "\n".join(parts) + "\n"


def _table(title: str, head: Sequence[str], rows: list[list[str]]) -> Iterator[str]:
    if rows:
        yield f"\n  {title}"
        yield from (f"    {line}" for line in align_table_columns(head, rows))


def _describe_line(row: ChangedLine, name_file: Callable[[str], str]) -> list[str]:
    where = name_file(row["file"])
    place = f"{where}:{row['line']}" if row["line"] else f"{where}:{row['before_line']} (gone)"
    more = f" and {len(row['modules']) - 1} more" if len(row["modules"]) > 1 else ""
    pairs = ((format_seconds, row["seconds"]), (in_gb, row["moved"]), (in_gb, row["held"]))
    texts = (" → ".join(dict.fromkeys(map(text, pair))) for text, pair in pairs)
    return [place, *texts, f"{row['modules'][0]}{more}"]
