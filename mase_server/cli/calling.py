"""`mase-server rpc`: one question to the daemon of a workspace, as JSON."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mase_server.cli.terminal import say, say_json

if TYPE_CHECKING:
    from mase_server.client import Client

#: Parameters that are paths: from where the command is typed.
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
            say(_found(workspace))
            return
        given = _parameters(sys.stdin.read() if params == "-" else params)
        with Client(address, workspace=workspace, token_file=token_file, timeout=timeout, reconnect=False) as client:
            if method is None:
                return _list(client)
            answer = _answer(client, method if "/" in method else f"mase/{method}", given)
            if "subscription" in answer:
                return _follow(client, timeout)
    except RpcError as error:
        say_json(error.map, error=True)
        raise typer.Exit(1) from None
    except (ClientError, OSError) as error:
        say(f"error: {error}", error=True)
        raise typer.Exit(1) from None
    say_json(answer, indent=2 if sys.stdout.isatty() else None, default=_as_text)
    return None


def _list(client: Client) -> None:
    """A line for each method: what it takes, and the first sentence that is said of it."""
    methods = client.info(methods=True)["methods"]
    taken = [f"{each['name']} {' '.join(_takes(each['params']))}".rstrip() for each in methods]
    width = min(48, max(map(len, taken)))
    for head, each in zip(taken, methods, strict=True):
        say(f"{head:{width}}  {each['description'].partition(chr(10))[0]}")


def _takes(schema: Mapping[str, Any]) -> list[str]:
    return [key if key in schema["required"] else f"{key}?" for key in schema["properties"]]


def _follow(client: Client, timeout: float | None) -> None:
    """Print news until the person, or the silence, ends it."""
    with contextlib.suppress(KeyboardInterrupt):
        for event in client.events(timeout):
            say_json(event)


def _answer(client: Client, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """A file that nobody looks at is opened for the question: who types a command does not stay to look at it."""
    from mase_server.client import RpcError

    try:
        return client.call(method, params)
    except RpcError as error:
        if error.code != "not-open" or method == "mase/close":
            raise
        path = error.data["path"]
    client.call("mase/open", {"path": path})
    return client.call(method, params)


def _found(workspace: Path) -> str:
    from mase_server.client import ClientError
    from mase_server.rpc.registry import find, runtime_dir

    found = find(runtime_dir(), str(workspace.resolve()))
    if found is None:
        raise ClientError(_NOBODY.format(workspace.resolve(), workspace))
    return found.address


def _parameters(text: str) -> dict[str, Any]:
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
