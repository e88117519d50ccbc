"""`mase-server workers`: what the running daemon of a workspace has in hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from mase_server.cli.terminal import say, say_json

if TYPE_CHECKING:
    from mase_server.rpc.registry import Registration

_HEAD = ("file", "state", "process", "memory", "idle", "why")


def workers(
    workspace: Annotated[Path, typer.Argument(exists=True, help="A folder or file of the workspace.")] = Path(),
    restart: Annotated[
        bool, typer.Option("--restart", help="End its processes and trace the open files again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show the processes that the workspace's daemon runs for its files: their state, memory and errors.

    Examples:

        mase-server workers

        mase-server workers ~/project --restart

    Exit status: 0 shown or restarted, 1 no daemon answers for this folder, 2 wrong usage.
    """
    from mase_server.cli.attached import Detached, connected, daemon_of

    found = daemon_of(workspace)
    if found is None:
        where = workspace.resolve()
        _fail(f"no daemon serves {where}: open it in an editor, or run `mase-server serve {workspace}`")
    try:
        with connected(found) as client:
            if restart:
                client.call("mase/restartWorkers", {})
            told = {method: client.call(f"mase/{method}") for method in ("files", "workers", "statistics")}
    except Detached as error:
        _fail(str(error))
    if as_json:
        say_json({"daemon": _daemon(found, told), "files": _rows(told)})
    else:
        _print(found, told)
    sys.stdout.flush()


def _fail(text: str) -> NoReturn:
    say(f"error: {text}", error=True)
    raise typer.Exit(1)


def _daemon(found: Registration, told: dict[str, Any]) -> dict[str, Any]:
    statistics = told["statistics"]
    return {
        "workspace": found.workspace, "kind": found.kind, "version": found.version, "pid": found.pid,
        "address": found.address, "memory": statistics["memory"], "nodes": statistics["nodes"],
    }  # fmt: skip


def _rows(told: dict[str, Any]) -> list[dict[str, Any]]:
    """A map for each file: with "pid", "memory" and "idle" where its process is alive, else None there."""
    live = {worker["path"]: worker for worker in told["workers"]["workers"]}
    rows = []
    for file in told["files"]["files"]:
        worker, status = live.get(file["path"], {}), file["status"] or {}
        facts = {key: worker.get(key) for key in ("pid", "memory", "idle")}
        state = {"state": status.get("state", "queued"), "message": status.get("message", "")}
        rows.append({"path": file["path"], "open": file["open"], **state, **facts})
    return rows


def _print(found: Registration, told: dict[str, Any]) -> None:
    from mase_server.cli.lines import Line, print_lines
    from mase_server.cli.tables import columns
    from mase_server.lsp.figures import counted, in_bytes

    daemon, rows = _daemon(found, told), _rows(told)
    memory = f"{in_bytes(daemon['memory'])}, {counted(daemon['nodes'], 'node')} shown"
    head = f"{found.kind} {found.version} of {found.workspace} (process {found.pid}): {memory}"
    cells = [_cells(row) for row in rows]
    table = columns(_HEAD, cells, right={2, 3, 4}) if cells else ["no file was opened yet"]
    print_lines([Line(((head, "bold"),)), *(Line(((text, ""),)) for text in table)])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    from mase_server.cli.lines import from_here
    from mase_server.lsp.figures import in_bytes

    if row["pid"] is None:
        process, memory, idle = "", "", ""
    else:
        process, memory, idle = str(row["pid"]), in_bytes(row["memory"]), f"{row['idle']:.0f} s"
    why = row["message"] if row["state"] != "ready" else ""
    state = row["state"] + ("" if row["open"] else ", closed")
    return from_here(row["path"]), state, process, memory, idle, why.split("\n")[0]
