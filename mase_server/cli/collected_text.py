"""A report as a person reads it: all of it, so that they know what they send."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mase_server.visible import escape_code, escape_markdown

_INTRODUCTION = """\
# Report of MASE

This page shows the whole contents of the file. It has no source code, no values of environment variables and no texts
of settings; paths begin at the workspace or at `~`. It does contain the names of model files and of their imports:
remove what you want to keep to yourself.
"""


def as_markdown(told: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    return "\n".join([_INTRODUCTION, *_sections(told)])


def _sections(told: Mapping[str, Any]) -> Iterator[str]:
    yield f"Made {told['made']}.\n"
    yield _section("Versions", _pairs(told["versions"]))
    yield _section("Settings", _pairs(told["settings"]) or ["all as they come"])
    yield _section(
        "Environment variables that are set", [", ".join(told["environment"]) or "none of those that matter"]
    )
    yield _section("What `mase-server doctor` finds", [_finding(each) for each in told["doctor"]])
    for daemon in told["daemons"]:
        yield _section(f"Daemon {daemon['pid']} ({daemon['kind']} {daemon['version']})", _daemon(daemon))
    if not told["daemons"]:
        yield _section("Daemon", ["none serves this folder"])
    yield _section("Processes that died", _block(json.dumps(each) for each in told["crashes"]))
    yield _section("The last lines of the log", _block(told["log"]))


def _section(title: str, lines: Iterable[str]) -> str:
    return "\n".join([f"## {title}", "", *lines, ""])


def _pairs(values: Mapping[str, Any]) -> list[str]:
    texts = {key: json.dumps(value) if isinstance(value, bool) else str(value) for key, value in values.items()}
    return [f"- {escape_markdown(key)}: {escape_markdown(text)}" for key, text in texts.items()]


def _finding(finding: Mapping[str, str]) -> str:
    text = finding["text"].replace("\n", "; ")
    return f"- {finding['state']} {finding['check']}: {escape_markdown(text)}"


def _daemon(daemon: Mapping[str, Any]) -> list[str]:
    if "silent" in daemon:
        return [escape_markdown(daemon["silent"])]
    statistics = daemon["statistics"]
    plain = {key: value for key, value in statistics.items() if key not in ("methods", "traces")}
    lines = [*_pairs(plain), "", *_timings(statistics["traces"] | statistics["methods"])]
    workers = [
        f"- {escape_code(each['path'])}: {each['memory'] >> 20} MiB, idle {each['idle']:.0f} s"
        for each in daemon["workers"]
    ]
    return [*lines, "", *(workers or ["No worker is alive."])]


def _timings(timings: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A table of what took how long, in milliseconds."""
    head = ["| what | count | failed | p50 ms | p95 ms | longest ms |", "|---|---|---|---|---|---|"]
    rows = [
        f"| {name} | {each['count']} | {each['errors']} | "
        + " | ".join(f"{1000 * each[key]:.1f}" for key in ("p50", "p95", "max"))
        + " |"
        for name, each in timings.items()
    ]
    return [*head, *rows] if rows else ["Nothing was asked yet."]


def _block(lines: Iterable[str]) -> list[str]:
    found = list(lines)
    return ["```json", *found, "```"] if found else ["none"]
