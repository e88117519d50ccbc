"""The running daemon of a workspace answers in place of a new one, if there is one that can."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mase_server import __version__
from mase_server.cli.reports import Report, drive_talk, request_report
from mase_server.cli.terminal import say
from mase_server.paths import canonical_path

if TYPE_CHECKING:
    from mase_server.client.blocking import Client
    from mase_server.rpc.registry import Registration

#: Seconds that a daemon may be silent: its event loop answers within milliseconds, even while it traces.
PATIENCE = 1.0

#: How often a file is read again if it is saved during the query.
_TRIES = 3


class Detached(Exception):
    """The daemon cannot answer; the text tells the user why."""


@cache
def cached_reports(files: tuple[Path, ...], everything: bool = False) -> dict[Path, Report]:
    """The reports that running daemons have or make for these files.

    Notes on standard error say why others are missing.

    Cached for each set of files, so that a command which tries early does not wait for a silent daemon twice.
    """
    return dict(stream_reports(files, everything))


def stream_reports(files: Sequence[Path], everything: bool = False) -> Iterator[tuple[Path, Report]]:
    """The same reports, one after the other."""
    for registration, members in _by_daemon(files).items():
        try:
            with connect_daemon(registration) as client:
                for file in members:
                    found = fetch_report(client, file, everything)
                    _compare_interpreters(found.told["interpreter"])
                    yield file, found
        except Detached as error:
            print_note(f"{error}; traced without it")


def print_note(text: str) -> None:
    """Print one line for people on standard error."""
    say(f"note: {text}", error=True)


def daemon_of(path: Path) -> Registration | None:
    """The daemon whose workspace holds a file or folder; None if there is none or it cannot be determined."""
    from mase_server.rpc.registry import find_registration, runtime_dir

    try:
        return find_registration(runtime_dir(), str(path.resolve()))
    except (OSError, ValueError):
        return None


@contextmanager
def connect_daemon(registration: Registration, patience: float | None = None) -> Iterator[Client]:
    """A client of a daemon with our own version. Detached, here and in the body, says why it is not usable.

    patience: seconds that it may be silent, by default `PATIENCE`.
    """
    from mase_server.client.blocking import Client
    from mase_server.client.stream import ClientError, RpcError

    name = f"the daemon of {registration.workspace}"
    if registration.version != __version__:
        raise Detached(f"{name} is mase-server {registration.version}, this is {__version__}")
    token_file = registration.token_file or None
    client = Client(registration.address, token_file=token_file, timeout=patience or PATIENCE, reconnect=False)
    try:
        with client:
            yield client
    except RpcError as error:
        raise Detached(_WHY.get(error.code, "{} refused: {}").format(name, error)) from error
    except (ClientError, OSError) as error:
        raise Detached(f"{name} does not answer: {error}") from error


#: Why a daemon refuses, by the code of its error.
_WHY = {"untrusted": "{} does not trust this folder", "unknown-method": "{} is of another version"}


def fetch_report(client: Client, file: Path, everything: bool = False) -> Report:
    """The report of a file, which is traced if necessary; Detached if the file keeps changing."""
    path = canonical_path(file)
    for _ in range(_TRIES):
        open_file(client, path)
        found = report_now(client, file, everything)
        if found.same_text:
            client.call("mase/close", {"path": path})
            return found
    raise Detached(f"the daemon does not see {file} as it is saved")


def report_now(client: Client, file: Path, everything: bool = False, text: bytes | None = None) -> Report:
    """The report of an open file; OSError if the file is gone. text: what was opened in place of it."""
    return drive_talk(request_report(file, everything, text=text), client.call)


def open_file(client: Client, path: str, text: str | None = None) -> None:
    """Make the daemon open a file and wait for its newest trace; it is asked again after every second without news.

    So a daemon that stops answering is noticed within two seconds, however long the trace takes.  text: what is traced
    in place of the file.
    """
    from mase_server.daemon.status import END_STATES

    status = client.call("mase/open", {"path": path, "wait": False, **({} if text is None else {"text": text})})
    if status["state"] in END_STATES:
        return
    number = client.call("mase/subscribe", {"topics": ["worker"], "path": path})["subscription"]
    while client.call("mase/fileStatus", {"path": path})["state"] not in END_STATES:
        next(client.events(timeout=PATIENCE), None)
    client.call("mase/unsubscribe", {"subscription": number})


def _compare_interpreters(interpreter: str | None) -> None:
    """Print a note if the environment active in this terminal is not the one that the daemon traces with."""
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    if active and interpreter and not Path(interpreter).is_relative_to(active):
        print_note(f"the daemon traces with {interpreter}, not with the active {active}; --no-daemon takes that")


def _by_daemon(files: Sequence[Path]) -> dict[Registration, list[Path]]:
    found: dict[Registration, list[Path]] = {}
    for file in files:
        if (registration := daemon_of(file)) is not None:
            found.setdefault(registration, []).append(file)
    return found
