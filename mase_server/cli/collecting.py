"""`mase-server report`: what somebody who helps has to know, in one file that can be looked through before it is sent.

It works whatever the server is doing, or if it has died: what a daemon counted is asked of it, if it answers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mase_server.cli.collected import Told, gathered
from mase_server.cli.collected_text import as_markdown
from mase_server.cli.terminal import say, say_json

_HELP = """Collect versions, settings, findings of `doctor`, counters of daemons and the last lines of their logs.

The report has no source code, none of your paths, no values of environment variables and no texts of settings. Read
report.md before you send the file: it shows the whole contents."""


def report(arguments: list[str]) -> int:
    """Write the file. Exit status: 0 written, 1 it cannot be written, 2 wrong usage."""
    options = parser().parse_args(arguments)
    about = _about(sys.stdin.read()) if options.about else {}
    told = gathered([str(folder.resolve()) for folder in options.folders or [Path()]], about)
    text = as_markdown(told)
    path = options.output or Path(time.strftime("mase-report-%Y%m%d-%H%M%S.zip"))
    try:
        written(path, told, text)
    except OSError as error:
        say(f"error: {path} cannot be written: {error.strerror}", error=True)
        return 1
    if options.json:
        say_json({"path": str(path.resolve()), "text": text})
    else:
        say(f"{path}: read its report.md before you send it: it shows the whole contents")
    return 0


def parser() -> argparse.ArgumentParser:
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


def written(path: Path, told: Told, text: str) -> None:
    """Write the ZIP file, for its owner alone; OSError."""
    files = {"report.md": text, "report.json": json.dumps(told, indent=1), "log.jsonl": "\n".join(told["log"])}
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content + "\n")


def _about(text: str) -> Mapping[str, Any]:
    """The description that an editor sends: {"editor", "extension", "settings"}."""
    try:
        told = json.loads(text)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def main(arguments: Sequence[str]) -> None:
    """The command, taken before typer is imported: the server that the extension brings has none."""
    sys.exit(report(list(arguments)))
