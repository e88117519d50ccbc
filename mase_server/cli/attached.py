"""The running daemon of a workspace answers in place of one of our own, if there is one that can.

Nothing here loads torch, pygls, typer, rich or asyncio: with a live file the whole command takes about as long as
Python takes to start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mase_server import __version__
from mase_server.cli.reports import Report, report_of
from mase_server.cli.terminal import say
from mase_server.paths import canonical

if TYPE_CHECKING:
    from mase_server.client.blocking import Client
    from mase_server.rpc.registry import Registration

#: Seconds that a daemon may be silent: its event loop answers within milliseconds, also while it traces.
PATIENCE = 1.0
#: How often a file is read again that is saved while it is asked for.
_TRIES = 3


class Detached(Exception):
    """The daemon cannot answer; the text says why, in words for a person."""


@cache
def reports(files: tuple[Path, ...], everything: bool = False) -> dict[Path, Report]:
    """The reports of those files that running daemons have or make; notes on standard error say why others are not.

    Asked once for each set of files, so that a command that tries early does not wait for a silent daemon twice.
    """
    return dict(each(files, everything))


def each(files: Sequence[Path], everything: bool = False) -> Iterator[tuple[Path, Report]]:
    """The same, one after the other."""
    for registration, members in _by_daemon(files).items():
        try:
            with connected(registration) as client:
                for file in members:
                    found = report(client, file, everything)
                    _compare_interpreters(found.told["interpreter"])
                    yield file, found
        except Detached as error:
            note(f"{error}; traced without it")


def note(text: str) -> None:
    """One line for a person, on standard error."""
    say(f"note: {text}", error=True)


def daemon_of(path: Path) -> Registration | None:
    """The daemon whose workspace holds a file or folder; None where there is none, or where nobody can tell."""
    from mase_server.rpc.registry import find, runtime_dir

    try:
        return find(runtime_dir(), str(path.resolve()))
    except (OSError, ValueError):
        return None


@contextmanager
def connected(registration: Registration, patience: float | None = None) -> Iterator[Client]:
    """A client of a daemon of our own version. Detached, here and inside, says why it is of no use.

    patience: seconds that it may be silent, `PATIENCE` by itself.
    """
    from mase_server.client.blocking import Client
    from mase_server.client.errors import ClientError, RpcError

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


def report(client: Client, file: Path, everything: bool = False) -> Report:
    """The report of a file, traced if it is not yet; Detached where the file does not come to rest."""
    path = canonical(file)
    for _ in range(_TRIES):
        open_file(client, path)
        found = report_now(client, file, everything)
        if found.same_text:
            client.call("mase/close", {"path": path})
            return found
    raise Detached(f"the daemon does not see {file} as it is saved")


def report_now(client: Client, file: Path, everything: bool = False) -> Report:
    """The report of a file that is open; OSError where it is gone."""
    return report_of(file, list(_pages(client, {"path": canonical(file), "all": everything})))


def open_file(client: Client, path: str) -> None:
    """Have the daemon look at a file, until its newest trace has ended; every second without news it is asked again.

    So a daemon that stops answering is noticed within two seconds, however long the trace takes.
    """
    from mase_server.daemon.status import END_STATES

    status = client.call("mase/open", {"path": path, "wait": False})
    if status["state"] in END_STATES:
        return
    number = client.call("mase/subscribe", {"topics": ["worker"], "path": path})["subscription"]
    while client.call("mase/fileStatus", {"path": path})["state"] not in END_STATES:
        next(client.events(timeout=PATIENCE), None)
    client.call("mase/unsubscribe", {"subscription": number})


def _pages(client: Client, params: dict[str, Any]) -> Iterator[dict[str, Any]]:
    following: int | None = 1
    while following is not None:
        page = client.call("mase/traced", params | {"first": following})
        yield page
        following = page["next"]


def _compare_interpreters(interpreter: str) -> None:
    """An environment that is active in this terminal may be another than the workspace's: that is worth a note."""
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    if active and interpreter and not Path(interpreter).is_relative_to(active):
        note(f"the daemon traces with {interpreter}, not with the active {active}; --no-daemon takes that")


def _by_daemon(files: Sequence[Path]) -> dict[Registration, list[Path]]:
    found: dict[Registration, list[Path]] = {}
    for file in files:
        if (registration := daemon_of(file)) is not None:
            found.setdefault(registration, []).append(file)
    return found
