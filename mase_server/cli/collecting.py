"""`mase-server report`: collect the facts that a helper needs, in one file that can be read before it is sent.

It works even if the server hangs or has died: a daemon's counters are included only if it answers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import sys
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from mase_server import __version__
from mase_server.cli.terminal import say, say_json
from mase_server.daemon.environment import project_of
from mase_server.private import state_dir
from mase_server.protocol.answers import Worker
from mase_server.protocol.records import Answer, Plain
from mase_server.reading import is_folder
from mase_server.rpc.registry import registrations, runtime_dir
from mase_server.telemetry import reduced as settings
from mase_server.telemetry.logs import folder_of
from mase_server.telemetry.records import path_in_log
from mase_server.telemetry.reduced import Reduced
from mase_server.visible import escape_code, escape_markdown

_HELP = """Collect versions, settings, findings of `doctor`, counters of daemons and the last lines of their logs.

The report has no source code, none of your paths, no values of environment variables and no texts of settings. Read
report.md before you send the file: it shows the whole contents."""


def make_report(arguments: list[str]) -> int:
    """Write the file. Exit status: 0 written, 1 it cannot be written, 2 wrong usage."""
    parser = report_parser()
    options = parser.parse_args(arguments)
    for folder in options.folders:
        if not is_folder(folder):
            parser.error(f"there is no folder {str(folder)!r}")
    about = _read_editor_facts(sys.stdin.read()) if options.about else {}
    told = gather_facts([str(folder.resolve()) for folder in options.folders or [Path()]], about)
    text = as_markdown(told)
    path = options.output or Path(time.strftime("mase-report-%Y%m%d-%H%M%S.zip"))
    try:
        write_report(path, told, text)
    except OSError as error:
        say(f"error: {path} cannot be written: {error.strerror}", error=True)
        return 1
    if options.json:
        say_json({"path": str(path.resolve()), "text": text})
    else:
        say(f"{path}: read its report.md before you send it: it shows the whole contents")
    return 0


def report_parser() -> argparse.ArgumentParser:
    """The parser of the command line of `mase-server report`."""
    made = argparse.ArgumentParser(
        "mase-server report", description=_HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "folders", nargs="*", type=Path, metavar="FOLDER", help="the folder of the models; the current one by default"
    )
    made.add_argument("-o", "--output", type=Path, metavar="FILE.zip", help="the file to write")
    made.add_argument("--json", action="store_true", help="print its path and its text as one JSON object")
    made.add_argument("--about", action="store_true", help="read the description of an editor from standard input")
    return made


def write_report(path: Path, told: Told, text: str) -> None:
    """Write the ZIP file, readable by its owner only; OSError."""
    files = {"report.md": text, "report.json": json.dumps(told, indent=1), "log.jsonl": "\n".join(told["log"])}
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content + "\n")


def _read_editor_facts(text: str) -> Mapping[str, Any]:
    """The description that an editor sent: {"editor", "extension", "settings"}."""
    try:
        told = json.loads(text)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def run_report(arguments: Sequence[str]) -> None:
    """Run the command before typer is imported: the server in the extension has no typer."""
    sys.exit(make_report(list(arguments)))


# The contents of a report, as plain values without personal data: see `telemetry.reduced`.

#: The whole report, or the part of one that an editor gave.
Told = dict[str, Any]
#: A line of the log as `telemetry.records.as_line` writes it, or some keys of one.
LogLine = dict[str, Plain]


class NativeFault(TypedDict):
    """A server that was ended by a fault of native code. stack: where its threads were."""

    server: str
    stack: list[str]


class WorkerFacts(TypedDict):
    """A live trace child. path: without names of the person's folders."""

    path: str
    pid: int
    memory: int
    generation: int
    idle: float


class DaemonFacts(TypedDict, total=False):
    """A daemon with its counters. silent: why it did not answer."""

    kind: str
    version: str
    pid: int
    statistics: Answer
    workers: list[WorkerFacts]
    silent: str


#: Maximum numbers of log lines and of crashes; the last ones are kept.
LINES = 400
CRASHES = 20
#: Seconds that a daemon may be silent; a user who reports trouble may have a busy one.
_PATIENCE = 5.0
#: Environment variables whose presence is reported, but never their values.
_VARIABLES = (
    "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "HF_HOME", "HF_HUB_OFFLINE", "TORCH_HOME", "TMPDIR", "XDG_STATE_HOME",
    "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "MASE_RUNTIME_DIR",
)  # fmt: skip
#: Lines of a fault handler that cannot contain private text.
_FAULT = re.compile(r'^(?:Fatal Python error: [\w ]+|(?:Current thread|Thread) 0x\w+ .*|  File ".*", line \d+ in .*)$')


def gather_facts(folders: Sequence[str], about: Mapping[str, Any]) -> Told:
    """Collect everything. about: the editor's own description: {"editor", "extension", "settings", "interpreters"}.

    interpreters: folder -> the Python that the user chose for its models.
    """
    reduced = Reduced({*folders, *_known_workspaces(folders)}, os.environ, str(Path.home()))
    logs = folder_of(state_dir())
    lines = list(log_lines(logs))
    section, chosen = about.get("settings"), about.get("interpreters")
    pythons = chosen if isinstance(chosen, Mapping) else {}
    told: Told = {
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": _gather_versions(about),
        "settings": settings.describe_settings(section) if isinstance(section, Mapping) else {},
        "environment": [name for name in _VARIABLES if os.environ.get(name)],
        "doctor": [finding for folder in folders for finding in _run_doctor(folder, pythons.get(folder))],
        "daemons": list(_describe_daemons(folders)),
        "crashes": [*crashes_in_log(lines), *_read_native_faults(logs)][-CRASHES:],
    }
    found: Told = reduced.value(told)
    return found | {"log": [json.dumps(reduced.value(line)) for line in lines[-LINES:]]}


def _known_workspaces(folders: Sequence[str]) -> Iterator[str]:
    """Folders whose names are private: the projects of these folders, and the workspaces of all daemons."""
    yield from (project_of(f"{folder}/any.py") for folder in folders)
    with contextlib.suppress(OSError):
        yield from (each.workspace for each in registrations(runtime_dir()))


def log_lines(folder: Path) -> Iterator[LogLine]:
    """The log lines of all servers, the newest last."""
    found = []
    for path in folder.glob("*.jsonl*") if is_folder(folder) else ():
        try:
            found += [json.loads(line) for line in path.read_text("ascii", "replace").splitlines()[-LINES:] if line]
        except (OSError, ValueError):
            continue  # a server is just starting its next file
    yield from sorted((line for line in found if isinstance(line, dict)), key=lambda line: str(line.get("time", "")))


def crashes_in_log(lines: Sequence[LogLine]) -> list[LogLine]:
    """The deaths of processes that the log records."""
    keys = ("time", "path", "code", "status", "stack")
    return [{key: line[key] for key in keys if key in line} for line in lines if line.get("event") == "died"]


def _read_native_faults(folder: Path) -> Iterator[NativeFault]:
    """The positions of the threads of servers that a fault in native code ended."""
    for path in sorted(folder.glob("*.fault")) if is_folder(folder) else ():
        try:
            lines = [line for line in path.read_text("ascii", "replace").splitlines() if _FAULT.match(line)]
        except OSError:
            continue
        if lines:
            yield {"server": path.stem, "stack": lines[:60]}


def _gather_versions(about: Mapping[str, Any]) -> dict[str, str]:
    told = {"mase-server": __version__, "python": platform.python_version(), "system": platform.platform()}
    told |= {"processors": str(os.cpu_count()), "byte order": sys.byteorder}
    return told | {key: str(about[key])[:80] for key in ("editor", "extension") if about.get(key)}


def _run_doctor(folder: str, python: Any) -> Iterator[dict[str, str]]:
    from mase_server.cli.findings import examine_environment

    for each in examine_environment(Path(folder), python if isinstance(python, str) else None):
        yield {"check": each.check, "state": each.state, "text": each.text}


def _describe_daemons(folders: Sequence[str]) -> Iterator[DaemonFacts]:
    """The counters of the daemons of these folders, or the reason why one does not answer."""
    from mase_server.cli.attached import Detached, connect_daemon, daemon_of

    for registration in {found for folder in folders if (found := daemon_of(Path(folder))) is not None}:
        told: DaemonFacts = {"kind": registration.kind, "version": registration.version, "pid": registration.pid}
        try:
            with connect_daemon(registration, _PATIENCE) as client:
                told["statistics"] = client.call("mase/statistics")
                told["workers"] = [_describe_worker(each) for each in client.call("mase/workers")["workers"]]
        except Detached as error:
            told["silent"] = str(error)
        yield told


def _describe_worker(told: Worker) -> WorkerFacts:
    return {
        "path": path_in_log(told["path"], told["folder"]),
        "pid": told["pid"],
        "memory": told["memory"],
        "generation": told["generation"],
        "idle": told["idle"],
    }


# The readable text of a report: it shows everything, so that users know what they send.

_INTRODUCTION = """\
# Report of MASE

This page shows the whole contents of the file. It has no source code, no values of environment variables and no texts
of settings; paths begin at the workspace or at `~`. It does contain the names of model files and of their imports:
remove what you want to keep to yourself.
"""


def as_markdown(told: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    return "\n".join([_INTRODUCTION, *_report_sections(told)])


def _report_sections(told: Mapping[str, Any]) -> Iterator[str]:
    yield f"Made {told['made']}.\n"
    yield _markdown_section("Versions", _list_pairs(told["versions"]))
    yield _markdown_section("Settings", _list_pairs(told["settings"]) or ["all as they come"])
    yield _markdown_section(
        "Environment variables that are set", [", ".join(told["environment"]) or "none of those that matter"]
    )
    yield _markdown_section("What `mase-server doctor` finds", [_finding_line(each) for each in told["doctor"]])
    for daemon in told["daemons"]:
        yield _markdown_section(f"Daemon {daemon['pid']} ({daemon['kind']} {daemon['version']})", _daemon_lines(daemon))
    if not told["daemons"]:
        yield _markdown_section("Daemon", ["none serves this folder"])
    yield _markdown_section("Processes that died", _json_block(json.dumps(each) for each in told["crashes"]))
    yield _markdown_section("The last lines of the log", _json_block(told["log"]))


def _markdown_section(title: str, lines: Iterable[str]) -> str:
    return "\n".join([f"## {title}", "", *lines, ""])


def _list_pairs(values: Mapping[str, Any]) -> list[str]:
    texts = {key: json.dumps(value) if isinstance(value, bool) else str(value) for key, value in values.items()}
    return [f"- {escape_markdown(key)}: {escape_markdown(text)}" for key, text in texts.items()]


def _finding_line(finding: Mapping[str, str]) -> str:
    text = finding["text"].replace("\n", "; ")
    return f"- {finding['state']} {finding['check']}: {escape_markdown(text)}"


def _daemon_lines(daemon: Mapping[str, Any]) -> list[str]:
    if "silent" in daemon:
        return [escape_markdown(daemon["silent"])]
    statistics = daemon["statistics"]
    plain = {key: value for key, value in statistics.items() if key not in ("methods", "traces")}
    lines = [*_list_pairs(plain), "", *_timing_table(statistics["traces"] | statistics["methods"])]
    workers = [
        f"- {escape_code(each['path'])}: {each['memory'] >> 20} MiB, idle {each['idle']:.0f} s"
        for each in daemon["workers"]
    ]
    return [*lines, "", *(workers or ["No worker is alive."])]


def _timing_table(timings: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A table of durations, in milliseconds."""
    head = ["| operation | count | failed | p50 ms | p95 ms | longest ms |", "|---|---|---|---|---|---|"]
    rows = [
        f"| {name} | {each['count']} | {each['errors']} | "
        + " | ".join(f"{1000 * each[key]:.1f}" for key in ("p50", "p95", "max"))
        + " |"
        for name, each in timings.items()
    ]
    return [*head, *rows] if rows else ["There were no requests yet."]


def _json_block(lines: Iterable[str]) -> list[str]:
    found = list(lines)
    return ["```json", *found, "```"] if found else ["none"]
