"""The commands around daemons: `serve`, `lsp`, `rpc` and `workers`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import sys
import threading
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypedDict

import typer

from mase_server.cli.terminal import say, say_json
from mase_server.protocol.records import Answer, Params
from mase_server.rpc.registry import TcpAddress
from mase_server.system import call_at_end
from mase_server.visible import align_table_columns

if TYPE_CHECKING:
    from mase_server.client import Client
    from mase_server.rpc.registry import Registration


_Workspace = Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The folder to serve.")]


class Level(StrEnum):
    """The level of the log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def serve(
    workspace: _Workspace = Path(),
    socket: Annotated[Path | None, typer.Option(help="Listen at this Unix socket.")] = None,
    tcp: Annotated[str | None, typer.Option(metavar="127.0.0.1:PORT", help="Listen on loopback instead.")] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="With --tcp: the file of the token that clients send first; created if missing.")
    ] = None,
    python: Annotated[str | None, typer.Option(help="The interpreter that the models run in.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Trust the folder of every file that a client names.")] = False,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", help="End when standard input ends, with the program that started this one.")
    ] = False,
    log: Annotated[Level, typer.Option(help="The level of the messages on standard error.")] = Level.WARNING,
) -> None:
    """Serve tools over MessagePack-RPC until interrupted. Prints the address, as `mase-server rpc --where` does later.

    Model files run only in trusted folders: see `mase-server trust`. Exit status: 0 ended by a signal, 1 cannot
    listen, 2 wrong usage.
    """
    from mase_server.private import state_dir
    from mase_server.rpc import registry
    from mase_server.telemetry.logs import log_session

    try:
        if socket is not None and tcp is not None:
            raise ValueError("--socket and --tcp exclude each other")
        if token_file is not None and tcp is None:
            raise ValueError(registry.NO_TCP)
        address = (
            registry.unix_address(str(socket.absolute())) if socket else registry.tcp_address(tcp) if tcp else None
        )
    except ValueError as error:
        say(f"error: {error}", error=True)
        raise typer.Exit(2) from None
    try:
        with log_session("serve", log.value, state_dir()):
            asyncio.run(_serve_workspace(workspace.resolve(), address, token_file, python, trust, until_eof))
    except (OSError, ValueError) as error:
        say(f"error: {_in_words(error)}", error=True)
        raise typer.Exit(1) from None


def _note_other_server(other: Registration | None, workspace: str) -> None:
    """Report on standard error that another server has the same workspace, and which one tools find."""
    if other is not None and other.workspace == workspace:
        found = "that one" if other.kind == "editor" else "this one"
        also = f"{other.kind} (process {other.pid}) serves {workspace} too, at {other.address}"
        say(f"note: {also}; tools that look for a server find {found}", error=True)


def _in_words(error: OSError | ValueError) -> str:
    """The text of an error: our own texts are complete; those of the system lack the file."""
    own = isinstance(error, OSError) and error.filename is None and error.strerror
    return str(own or error)


async def _serve_workspace(
    workspace: Path, address: object, token_file: Path | None, python: str | None, trusted: bool, until_eof: bool
) -> None:
    from mase_server.cli.session import project_of
    from mase_server.daemon.daemon import Daemon
    from mase_server.daemon.garbage import collect_when_quiet, give_back_memory
    from mase_server.daemon.status import FolderSettings, Listener
    from mase_server.daemon.trust import is_trusted
    from mase_server.private import cache_dir, state_dir
    from mase_server.rpc.dispatch import Front
    from mase_server.rpc.listening import Listening
    from mase_server.rpc.registry import UnixAddress, find_registration, runtime_dir

    give_back_memory()
    state = state_dir()

    def settings_of(folder: str) -> FolderSettings:
        return FolderSettings(trusted=trusted or is_trusted(state, folder), interpreter=python)

    def folder_of(path: str) -> str:
        return str(workspace) if Path(path).is_relative_to(workspace) else project_of(path)

    assert address is None or isinstance(address, UnixAddress | TcpAddress)
    daemon = Daemon(Listener(), cache_dir=cache_dir(), state_dir=state, settings_of=settings_of, folder_of=folder_of)
    listening = Listening(Front(daemon), address, token_file)
    try:
        where = await listening.start()
        await daemon.start()
        before = await asyncio.to_thread(lambda: find_registration(runtime_dir(), str(workspace)))
        await listening.register([str(workspace)], "serve")
        gc.freeze()  # imported objects stay, and need not be scanned again
        collecting = asyncio.create_task(collect_when_quiet())
        say(str(where))
        _note_other_server(before, str(workspace))
        await _wait_for_end(until_eof)
        collecting.cancel()
    finally:
        await listening.close()
        await daemon.shutdown()


async def _wait_for_end(until_eof: bool) -> None:
    """Wait for a signal. until_eof: or for the end of standard input."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    if until_eof:
        # Use a thread that does not delay the end of the process: it can read any kind of input.
        threading.Thread(target=_read_to_the_end, args=(loop, ended), daemon=True).start()
    call_at_end(loop, ended.set)
    await ended.wait()


def _read_to_the_end(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    with contextlib.suppress(RuntimeError):  # it has ended already
        loop.call_soon_threadsafe(ended.set)


# `mase-server lsp`: the language server.


# `mase-server rpc`: one request to the daemon of a workspace, as JSON.

#: Parameters that are paths, relative to the current folder.
_PATHS = ("path", "name", "file", "folder", "inputs")
_NOBODY = "no daemon serves {}: open it in an editor, or run `mase-server serve {}`"


def rpc(
    method: Annotated[str | None, typer.Argument(help="E.g. mase/info, or info.")] = None,
    params: Annotated[str, typer.Argument(metavar="[JSON]", help="Its parameters; - reads them from stdin.")] = "{}",
    where: Annotated[bool, typer.Option("--where", help="Only print the address of the workspace's daemon.")] = False,
    workspace: Annotated[Path, typer.Option(help="A folder or file of the workspace.")] = Path(),
    address: Annotated[str | None, typer.Option(help="Query the daemon at this address instead.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="The file with the token for --address.")] = None,
    timeout: Annotated[float | None, typer.Option(help="The longest wait in seconds; else without limit.")] = None,
) -> None:
    """Call a method of a running daemon and print the answer as JSON. Without METHOD, list all methods.

    `mase-server rpc info '{"methods": true}'` describes the methods with schemas. Paths may be relative. `mase-server
    rpc subscribe '{"topics": ["graph"]}'` prints events as they arrive, a line each, until you interrupt it, or until
    none has arrived for --timeout.

    Exit status: 0 answered, 1 refused or no daemon, 2 wrong usage.
    """
    from mase_server.client import Client, ClientError, RpcError

    try:
        if where:
            say(_find_daemon_address(workspace))
            return
        given = _parse_parameters(sys.stdin.read() if params == "-" else params)
        with Client(address, workspace=workspace, token_file=token_file, timeout=timeout, reconnect=False) as client:
            if method is None:
                return _list_methods(client)
            answer = _call_or_open(client, method if "/" in method else f"mase/{method}", given)
            if "subscription" in answer:
                return _follow_events(client, timeout)
    except RpcError as error:
        say_json(error.map, error=True)
        raise typer.Exit(1) from None
    except (ClientError, OSError) as error:
        say(f"error: {error}", error=True)
        raise typer.Exit(1) from None
    say_json(answer, indent=2 if sys.stdout.isatty() else None, default=_as_text)
    return None


def _list_methods(client: Client) -> None:
    """Print a line for each method: its parameters and the first sentence of its description."""
    methods = client.info(methods=True)["methods"]
    taken = [f"{each['name']} {' '.join(_parameter_names(each['params']))}".rstrip() for each in methods]
    width = min(48, max(map(len, taken)))
    for head, each in zip(taken, methods, strict=True):
        say(f"{head:{width}}  {each['description'].partition(chr(10))[0]}")


def _parameter_names(schema: Mapping[str, Any]) -> list[str]:
    return [key if key in schema["required"] else f"{key}?" for key in schema["properties"]]


def _follow_events(client: Client, timeout: float | None) -> None:
    """Print events until the user interrupts or none arrives in time."""
    with contextlib.suppress(KeyboardInterrupt):
        for event in client.events(timeout):
            say_json(event)


def _call_or_open(client: Client, method: str, params: Params) -> Answer:
    """Call a method; a file that is not open is opened for this call only."""
    from mase_server.client import RpcError

    try:
        return client.call(method, params)
    except RpcError as error:
        if error.code != "not-open" or method == "mase/close":
            raise
        path = error.data["path"]
    client.call("mase/open", {"path": path})
    return client.call(method, params)


def _find_daemon_address(workspace: Path) -> str:
    from mase_server.client import ClientError
    from mase_server.rpc.registry import find_registration, runtime_dir

    found = find_registration(runtime_dir(), str(workspace.resolve()))
    if found is None:
        raise ClientError(_NOBODY.format(workspace.resolve(), workspace))
    return found.address


def _parse_parameters(text: str) -> Params:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"no JSON: {error}", param_hint="JSON") from None
    if not isinstance(given, dict):
        raise typer.BadParameter(
            f'a map is wanted, e.g. {{"path": "/work/net.py"}}, not {text[:80]}', param_hint="JSON"
        )
    return {key: _from_here(value) if key in _PATHS else value for key, value in given.items()}


def _from_here(value: Any) -> Any:
    return os.path.normpath(Path(value).expanduser().absolute()) if isinstance(value, str) and value else value


def _as_text(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value)


# `mase-server workers`: the processes of a workspace's running daemon.

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
    from mase_server.cli.attached import Detached, connect_daemon, daemon_of

    found = daemon_of(workspace)
    if found is None:
        where = workspace.resolve()
        _fail_command(f"no daemon serves {where}: open it in an editor, or run `mase-server serve {workspace}`")
    try:
        with connect_daemon(found) as client:
            if restart:
                client.call("mase/restartWorkers", {})
            told = {method: client.call(f"mase/{method}") for method in ("files", "workers", "statistics")}
    except Detached as error:
        _fail_command(str(error))
    if as_json:
        say_json({"daemon": _daemon_facts(found, told), "files": _file_rows(told)})
    else:
        _print_workers(found, told)
    sys.stdout.flush()


def _fail_command(text: str) -> NoReturn:
    say(f"error: {text}", error=True)
    raise typer.Exit(1)


#: The answers of mase/files, mase/workers and mase/statistics by those names.
AnswersByMethod = Mapping[str, Answer]


class DaemonFacts(TypedDict):
    """A daemon as `mase-server workers` shows it. memory: bytes."""

    workspace: str
    kind: str
    version: str
    pid: int
    address: str
    memory: int
    nodes: int


class FileRow(TypedDict):
    """A file of a daemon. pid, memory, idle: of its process, None where it has none."""

    path: str
    open: bool
    state: str
    message: str
    pid: int | None
    memory: int | None
    idle: float | None


def _daemon_facts(found: Registration, told: AnswersByMethod) -> DaemonFacts:
    statistics = told["statistics"]
    return {
        "workspace": found.workspace, "kind": found.kind, "version": found.version, "pid": found.pid,
        "address": found.address, "memory": statistics["memory"], "nodes": statistics["nodes"],
    }  # fmt: skip


def _file_rows(told: AnswersByMethod) -> list[FileRow]:
    """A map for each file with "pid", "memory" and "idle", which are None if its process is not alive."""
    live = {worker["path"]: worker for worker in told["workers"]["workers"]}
    rows: list[FileRow] = []
    for file in told["files"]["files"]:
        worker, status = live.get(file["path"], {}), file["status"] or {}
        rows.append({
            "path": file["path"], "open": file["open"],
            "state": status.get("state", "queued"), "message": status.get("message", ""),
            "pid": worker.get("pid"), "memory": worker.get("memory"), "idle": worker.get("idle"),
        })  # fmt: skip
    return rows


def _print_workers(found: Registration, told: AnswersByMethod) -> None:
    from mase_server.cli.terminal import Line, print_lines
    from mase_server.lsp.wording import format_count, in_bytes

    daemon, rows = _daemon_facts(found, told), _file_rows(told)
    memory = f"{in_bytes(daemon['memory'])}, {format_count(daemon['nodes'], 'node')} shown"
    head = f"{found.kind} {found.version} of {found.workspace} (process {found.pid}): {memory}"
    cells = [_worker_cells(row) for row in rows]
    table = align_table_columns(_HEAD, cells, right={2, 3, 4}) if cells else ["no file was opened yet"]
    print_lines([Line(((head, "bold"),)), *(Line(((text, ""),)) for text in table)])


def _worker_cells(row: FileRow) -> tuple[str, ...]:
    from mase_server.cli.terminal import from_here
    from mase_server.lsp.wording import in_bytes

    if row["pid"] is None or row["memory"] is None:
        process, memory, idle = "", "", ""
    else:
        process, memory, idle = str(row["pid"]), in_bytes(row["memory"]), f"{row['idle']:.0f} s"
    why = row["message"] if row["state"] != "ready" else ""
    state = row["state"] + ("" if row["open"] else ", closed")
    return from_here(row["path"]), state, process, memory, idle, why.split("\n")[0]
