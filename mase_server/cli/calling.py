"""`mase-server rpc`: one question to the daemon of a workspace, as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from mase_server.client import Client

_NOBODY = "no daemon serves {}: open it in an editor, or run `mase-server serve {}`"


def rpc(
    method: Annotated[str | None, typer.Argument(help="E.g. mase/info, or info.")] = None,
    params: Annotated[str, typer.Argument(metavar="[JSON]", help="Its parameters; - reads them from stdin.")] = "{}",
    where: Annotated[bool, typer.Option("--where", help="Print the address of the workspace's daemon alone.")] = False,
    workspace: Annotated[Path, typer.Option(help="A folder or file of the workspace.")] = Path(),
    address: Annotated[str | None, typer.Option(help="Ask the daemon at this address instead.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="Where the token for --address stands.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds to wait; without it, as long as it takes.")] = None,
) -> None:
    """Ask a running daemon; the answer is JSON. `mase-server rpc info '{"methods": true}'` tells all that can be asked.

    Exit status: 0 answered, 1 refused or there is no daemon, 2 wrong usage.
    """
    from mase_server.client import Client, ClientError, RpcError

    try:
        if where:
            print(_found(workspace))
            return
        if method is None:
            raise typer.BadParameter("name a method, e.g. mase/info", param_hint="METHOD")
        given = _parameters(sys.stdin.read() if params == "-" else params)
        with Client(address, workspace=workspace, token_file=token_file, timeout=timeout, reconnect=False) as client:
            answer = _answer(client, method if "/" in method else f"mase/{method}", given)
    except RpcError as error:
        print(json.dumps(error.map, ensure_ascii=False), file=sys.stderr)
        raise typer.Exit(1) from None
    except (ClientError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    print(json.dumps(answer, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None, default=_as_text))


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
    return given


def _as_text(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value)
