"""`mase-server shapes FILE...` of files that a running daemon has, before anything slow is imported.

Only the plainest form is read here; every other one, and everything that needs a process of our own, is left to the
command itself, which reads all of them and does the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mase_server.reading import is_file

_FORMATS = {"--format=json": True, "--format=text": False}


def shapes(arguments: list[str]) -> int | None:
    """Print, and give the exit status; None, with nothing printed, where the command has to do it."""
    everything = "--all" in arguments
    formats = [each for each in arguments if each in _FORMATS]
    files = tuple(Path(each) for each in arguments if each not in ("--all", *_FORMATS))
    known = all(not str(file).startswith("-") and is_file(file) for file in files)
    if not files or not known or len(formats) > 1:
        return None
    from mase_server.cli.attached import reports

    found = reports(files, everything)
    if len(found) < len(set(files)):
        return None
    told = [found[file] for file in files]
    if formats and _FORMATS[formats[0]]:
        from mase_server.cli.report import print_json

        print_json(told, everything)
    else:
        from mase_server.cli.listing import print_text

        print_text(told, everything)
    sys.stdout.flush()
    return 1 if any(report.has_errors for report in told) else 0
