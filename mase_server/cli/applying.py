"""`mase-server apply`: passes on one model of one file, through the daemon's API as an editor would."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from mase_server.cli.findings import may_start
from mase_server.cli.reports import Report
from mase_server.cli.session import Outcome, Wanted, daemon_for, outcome_of, project_of, report_once_traced
from mase_server.cli.session import call as call
from mase_server.cli.showing import ProblemRow, problem_line, problem_map
from mase_server.cli.steps import UsageError, find_pass, resolve_steps
from mase_server.cli.terminal import print_lines, print_styled, say, say_json
from mase_server.daemon.daemon import Daemon
from mase_server.daemon.environment import list_interpreters
from mase_server.daemon.graph_snapshot import GraphSnapshot, NodeView
from mase_server.daemon.pipelines import PassError
from mase_server.daemon.status import Listener
from mase_server.lsp.pipelines import weights_text
from mase_server.lsp.wording import format_ratio, in_bytes
from mase_server.paths import canonical_path
from mase_server.protocol import answers
from mase_server.protocol.answers import Pass
from mase_server.protocol.arguments import Argument, Step
from mase_server.protocol.records import Plain, Summary
from mase_server.protocol.snapshot import effect_texts, share_text
from mase_server.reading import is_file
from mase_server.visible import align_table_columns, reveal


@dataclass(frozen=True, slots=True)
class Request:
    """The passes to apply, and the model. title: of the model, None for the first.  code: include the new code?"""

    wanted: Wanted
    steps: tuple[Step, ...]
    title: str | None = None
    code: bool = False

    @property
    def path(self) -> str:
        """The file, absolute."""
        return canonical_path(self.wanted.files[0])

    @property
    def place(self) -> dict[str, str]:
        """The parameters that name the model."""
        return {"path": self.path} | ({} if self.title is None else {"model": self.title})


@dataclass(frozen=True, slots=True)
class Applied:
    """The result. outcome: of the file, after the passes.  model: as in `mase/models`, {} if there is none.

    layers: the nodes that the transform reports on.  failure: why it stopped, None if every pass was applied.
    report: the file with its shapes after the passes.
    """

    outcome: Outcome
    model: Mapping[str, Any] = field(default_factory=dict)
    layers: Sequence[NodeView] = ()
    failure: str | None = None
    code: str | None = None
    report: Report | None = None

    @property
    def was_applied(self) -> bool:
        """Were all passes applied as requested?"""
        told = self.model.get("transform") or {}
        return bool(self.model) and self.failure is None and told.get("failed") is None


class Reporter(Listener):
    """A listener that passes progress messages on."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def progress(self, path: str, stage: str, message: str) -> None:
        """Report the stage of a file's trace."""
        self._tell(f"{Path(path).name}: {stage}")

    def pass_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """Report the progress of passes."""
        self._tell(f"{model}: {message}" + ("" if fraction is None else f" ({100 * fraction:.0f} %)"))

    def verilog_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """Report the progress of making hardware."""
        self.pass_progress(path, model, message, fraction)


async def apply_passes(request: Request, tell: Callable[[str], None]) -> Applied:
    """Trace the file and apply the steps in turn. UsageError for impossible requests."""
    file = request.wanted.files[0]
    async with daemon_for(request.wanted, Reporter(tell)) as daemon:
        status = await daemon.wait(request.path)
        before = outcome_of(daemon, file, status)
        if before.snapshot is None or not before.snapshot.titles:
            return Applied(before)
        failure = await _apply_steps(daemon, request)
        code = (await call(daemon, "mase/transformed", request.place))["text"] if request.code else None
        title = (await call(daemon, "mase/pipeline", request.place))["model"]
        models = await call(daemon, "mase/models", {"path": request.path})
        model = next(model for model in models if model["title"] == title)
        after = outcome_of(daemon, file, status)
        layers = _layers_of_pipeline(after.snapshot, model["title"])
        return Applied(after, model, layers, failure, code, await report_once_traced(daemon, file, passes=True))


async def passes_of(wanted: Wanted, folder: str | None, tell: Callable[[str], None]) -> list[answers.Pass]:
    """The passes for a file, as in `mase/passes`. PassError if its process cannot list them."""
    async with daemon_for(wanted, Reporter(tell), folder) as daemon:
        path = canonical_path(wanted.files[0])
        await daemon.wait(path)
        return await daemon.passes.refresh(path)


async def _apply_steps(daemon: Daemon, request: Request) -> str | None:
    """Apply the steps in turn; returns why one could not be applied, None if all could."""
    try:
        for step in resolve_steps(request.steps, await daemon.passes.refresh(request.path)):
            given = {"pass": step.name, "arguments": dict(step.arguments)}
            await call(daemon, "mase/applyPass", request.place | given)
    except PassError as error:
        if error.kind == "argument":
            raise UsageError(str(error)) from None
        return str(error)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return None


def _layers_of_pipeline(snapshot: GraphSnapshot | None, title: str) -> list[NodeView]:
    if snapshot is None:
        return []
    transform = snapshot.transforms.get(snapshot.titles.index(title))
    return [snapshot.node(row) for row in sorted(transform.places)] if transform is not None else []


# The output of `mase-server apply`: the passes, the layers, their errors and sizes; as text or as JSON.

#: The keys of one layer in the JSON, and the head of its column.
LAYER_KEYS = {
    "name": "layer", "path": "", "mase_op": "operator", "family": "", "format": "format", "bits": "bits",
    "sqnr": "SQNR dB", "max_error": "max error", "saturated": "saturated", "note": "",
}  # fmt: skip
_NUMBERS = ("bits", "sqnr", "max_error", "saturated")
#: Operators that only move or create values.
_MOVING = frozenset({"shape", "index", "creation"})
#: With an SQNR below this, in dB, the likeliest reason is a fixed point that was not calibrated on data.
_BAD = 10.0
#: Shown for a pass that reports nothing.
_NOTHING = "nothing to report"
_FIXED = re.compile(r"\b(?:fixed|integer)\((\d+),-?\d+")


#: A node that passes made another one of: the keys of LAYER_KEYS.
LayerRow = dict[str, Plain]


class StepReport(TypedDict):
    """A step that was applied. text: as it was given.  report: what an analysis writes."""

    text: str
    title: str
    seconds: float
    info: str
    report: str | None


class AppliedReport(TypedDict):
    """The JSON of `mase-server apply`. failure, warning: why a pass was not, or not wholly, applied."""

    file: str
    model: str | None
    steps: list[StepReport]
    failure: str | None
    warning: str | None
    inputs: str
    weights: str
    summary: Summary
    layers: list[LayerRow]
    problems: list[ProblemRow]
    code: NotRequired[str]


def report_applied(applied: Applied) -> AppliedReport:
    """The report as plain maps. sqnr is in dB, "inf" if nothing differs, None if it was not measured."""
    told: Mapping[str, Any] = applied.model.get("transform") or {}
    found: AppliedReport = {
        "file": applied.outcome.file,
        "model": applied.model.get("title"),
        "steps": [
            {
                "text": text,
                "title": step["title"],
                "seconds": step["seconds"],
                "info": step["info"],
                "report": step["report"],
            }
            for text, step in zip(told.get("texts", ()), told.get("steps", ()), strict=False)
        ],
        "failure": applied.failure or (None if applied.was_applied else told.get("problem")),
        "warning": told.get("problem") if applied.was_applied else None,
        "inputs": told.get("inputs", ""),
        "weights": told.get("weights", ""),
        "summary": told.get("summary") or Summary(),
        "layers": [_layer_row(node, told.get("formats", {})) for node in applied.layers],
        "problems": [problem_map(problem) for problem in applied.outcome.problems],
    }
    if applied.code is not None:
        found["code"] = applied.code
    return found


def print_json(applied: Applied) -> None:
    """Print one JSON object."""
    say_json(report_applied(applied))


def _layer_row(node: NodeView, formats: Mapping[str, float]) -> LayerRow:
    facts = {key: getattr(node, key) for key in LAYER_KEYS if key not in ("path", "bits")}
    path = node.details.get("module_path") or (node.scope[0] if node.scope else "")
    return {key: {**facts, "path": path, "bits": formats.get(node.format or "")}[key] for key in LAYER_KEYS}


def print_text(applied: Applied, everything: bool) -> None:
    """Print for people, with colours only on a terminal. everything: include operators that only move values."""
    told = report_applied(applied)
    rows = _select_layers(told["layers"], everything)
    for line in (*_head_lines(told), *(_layer_table(rows) if rows else ()), *_summary_lines(told)):
        print_styled(line)
    for problem in applied.outcome.problems:
        print_lines([problem_line(applied.outcome.file, problem)])
    for severity, text, style in (("warning", told["warning"], "yellow"), ("error", told["failure"], "bold red")):
        if text:
            print_styled(f"{severity}: {text}", style)


def _head_lines(told: Mapping[str, Any]) -> Iterator[str]:
    if told["model"] is not None:
        yield reveal(f"{told['file']}: {told['model']}")
    for number, step in enumerate(told["steps"], 1):
        yield f"{number}. {step['text']}  {1000 * (step['seconds'] or 0):.0f} ms"
        yield from (f"   {line}" for line in (step["report"] or step["info"] or _NOTHING).splitlines())
    if told["weights"] or told["inputs"]:
        yield f"measured with {told['weights']} on {told['inputs']}"


def _select_layers(layers: Sequence[Mapping[str, Any]], everything: bool) -> list[Mapping[str, Any]]:
    """Layers with a format or a note; if no layer has either, those with a changed result."""
    computing = [layer for layer in layers if everything or layer["note"] or not _only_moves(layer)]
    changed = [layer for layer in computing if layer["format"] or layer["note"]]
    return changed or [layer for layer in computing if layer["sqnr"] not in (None, "inf")]


def _only_moves(layer: Mapping[str, Any]) -> bool:
    return layer["family"] in _MOVING or "dropout" in layer["mase_op"]


def _layer_table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    told = {key for row in rows for key, value in row.items() if value not in (None, "")}
    keys = [key for key, head in LAYER_KEYS.items() if (head or key == "note") and key in told]
    cells = [[_told_cell(row, key) for key in keys] for row in rows]
    return align_table_columns(
        [LAYER_KEYS[key] for key in keys], cells, [keys.index(key) for key in _NUMBERS if key in keys]
    )


def _format_cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _told_cell(row: Mapping[str, Any], key: str) -> str:
    if key == "saturated" and row[key] is not None:
        return share_text(row[key])
    return str(row["path"]) if key == "name" and row["path"] else _format_cell(row[key])


def _summary_lines(told: Mapping[str, Any]) -> Iterator[str]:
    """One line with the most important figures, and a suggestion if they are bad."""
    if told["summary"]:
        yield " · ".join(_summary_figures(told["summary"], told["weights"]))
    sqnr = told["summary"].get("sqnr")
    widths = [match[1] for step in told["steps"] if (match := _FIXED.search(step["text"]))]
    if widths and isinstance(sqnr, int | float) and sqnr < _BAD:
        yield f"hint: values often saturate where the SQNR is that low; try fixed({widths[-1]},auto)"


def _summary_figures(summary: Mapping[str, Any], weights: str) -> Iterator[str]:
    random = f" ({weights_text(weights)})" if weights else ""
    if summary.get("sqnr") == "inf":
        yield f"output unchanged{random}"
    elif summary.get("sqnr") is not None:
        yield f"output: SQNR {summary['sqnr']:.1f} dB, max error {_format_cell(float(summary['max_error']))}{random}"
    if summary.get("saturated") is not None:
        yield f"{share_text(summary['saturated'])} of the values saturated"
    yield from effect_texts(cast("Summary", summary))
    if "data_bits" in summary:
        data, weights = (" -> ".join(_before_and_after(*summary[key])) for key in ("data_bits", "weight_bits"))
        yield f"bits on average: data {data}, weights {weights}"
    if "parameter_bytes" in summary:
        before, after = summary["parameter_bytes"]
        changed = format_ratio(before, after) if before and after else ""
        sizes = in_bytes(before) if before == after else f"{in_bytes(before)} -> {in_bytes(after)}"
        yield f"parameters: {sizes}" + (f", {changed}" if changed else "")


def _before_and_after(before: float, after: float) -> list[str]:
    """The number, or both numbers if it changed."""
    return [_format_cell(float(each)) for each in dict.fromkeys((before, after))]


# `mase-server passes`: list the passes, or describe some of them.

#: Traced if no file is named, because only a process with a model can list its passes.
_ANY_MODEL = "from torch import nn\n\nmodel = nn.Sequential(nn.Linear(2, 2))\n# mase: input = f32[1, 2]\n"


def list_passes(what: Sequence[str], python: str | None, tell: Callable[[str], None]) -> list[Pass]:
    """The passes for the file among `what`, or for the current folder; only the named passes if any are named.

    UsageError for an unknown name.
    """
    files = [word for word in what if word.endswith(".py") or is_file(word)]
    if len(files) > 1:
        raise UsageError(f"one file at most, not {len(files)}: {', '.join(files)}")
    if files and not is_file(files[0]):
        raise UsageError(f"there is no file {files[0]!r}")
    passes = _of_file(Path(files[0]), python, tell) if files else _of_folder(python, tell)
    names = [word for word in what if word not in files]
    return [find_pass(name, passes) for name in names] if names else passes


def _of_file(file: Path, python: str | None, tell: Callable[[str], None]) -> list[Pass]:
    return asyncio.run(passes_of(Wanted((file,), python=python), None, tell))


def _of_folder(python: str | None, tell: Callable[[str], None]) -> list[Pass]:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "any.py")
        file.write_text(_ANY_MODEL)
        folder = project_of(str(Path.cwd() / "any.py"))
        if not all(may_start(one, folder, python) for one in list_interpreters(folder, str(file), python, os.environ)):
            python = sys.executable  # the user did not name that folder: nothing in it is started
        return asyncio.run(passes_of(Wanted((file,), python=python), folder, tell))


def print_passes(passes: Sequence[Mapping[str, Any]], whole: bool) -> None:
    """Print a line for each pass, or a page for each (`whole`)."""
    if not whole:
        for line in _pass_table(passes):
            say(line)
        return
    for number, each in enumerate(passes):
        for line in describe_pass(each):
            say(("\n" if number and line == each["name"] else "") + line)


def print_passes_json(passes: Sequence[Mapping[str, Any]]) -> None:
    """Print one JSON list."""
    say_json(list(passes))


def _pass_table(passes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    head = ("pass", "kind", "what it does")
    rows = [(each["name"], each["kind"], each["title"] + _origin_note(each)) for each in passes]
    return align_table_columns(head, rows)


def _origin_note(told: Mapping[str, Any]) -> str:
    return f" ({told['source']})" if told["source"] else ""


def describe_pass(told: Mapping[str, Any]) -> Iterator[str]:
    """The description of a pass for users: its effect, its arguments, an example."""
    yield told["name"]
    yield f"  {told['title']} ({told['kind']}; in the library passes.{told['mase']})"
    yield from (f"  {line.strip()}" for line in told["help"].splitlines())
    if told["source"]:
        yield f"  from {told['source']}"
    arguments = [Argument.from_wire(each) for each in told["arguments"]]
    for argument in arguments:
        yield f"  {argument.name}={_default_text(argument)}: {argument.help}. Takes {argument.takes}."
    if told["others"] is not None:
        others = Argument.from_wire(told["others"])
        yield f"  {others.name or 'NAME'}=...: {others.help}. Takes {others.takes}; as often as wanted."
    if told["needs"]:
        yield f"  needs {', '.join(told['needs'])}"
    needed = "".join(f" {each.name}=..." for each in arguments if each.required)
    yield f"  mase-server apply FILE {told['name']}{needed}"


def _default_text(argument: Argument) -> str:
    if argument.required:
        return "..., required"
    return "..." if argument.default is None else f"{argument.default}"
