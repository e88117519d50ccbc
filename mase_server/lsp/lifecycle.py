"""Start and end of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from mase_server.lsp.encoding import Encoding
from mase_server.lsp.links import link_commands

if TYPE_CHECKING:
    from mase_server.lsp.server import Server


async def initialize(ls: Server, params: lsp.InitializeParams) -> None:
    """initialize: pygls answers; what the client said of itself is read here."""
    offered = params.capabilities.general and params.capabilities.general.position_encodings
    ls.encoding = Encoding(str(offered[0])) if offered else Encoding.UTF16
    ls.links = link_commands(params.initialization_options)
    ls.folders.initialize(params)
    ls.watch_client(params.process_id)


async def initialized(ls: Server, params: lsp.InitializedParams) -> None:
    """initialized: start the daemon, learn the settings."""
    ls.initialized = True
    await ls.daemon.start()
    if ls.tools is not None:
        ls.spawn(ls.tools.start())
    await ls.folders.pull()


async def shutdown(ls: Server, params: None) -> None:
    """shutdown: end every worker before the answer, so that the editor may end this process at once."""
    await ls.stop()


async def leave(ls: Server, params: None) -> None:
    """exit: the status says whether shutdown was asked for before."""
    ls.end(0 if ls.stopped else 1)
