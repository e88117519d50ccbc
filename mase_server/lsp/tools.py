"""Other tools beside the editor: the same daemon answers them over a socket, with the same graphs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mase_server.rpc.front import Front
from mase_server.rpc.listening import Listening

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

_LOG = logging.getLogger(__name__)


class Tools:
    """The socket of one editor's server. Where it cannot be had, the editor is served all the same."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listening: Listening | None = None

    async def start(self) -> None:
        """Listen, and be found by the workspace's folders."""
        listening = Listening(Front(self._server.daemon))
        try:
            await listening.start()
        except (OSError, ValueError) as error:
            _LOG.warning("other tools cannot connect: %s", error)
            await listening.close()
            return
        self._listening = listening
        await self.follow()

    async def follow(self) -> None:
        """Be found by the folders that there are now."""
        if self._listening is not None:
            await self._listening.register(self._server.folders.paths(), "editor")

    async def stop(self) -> None:
        """End every connection."""
        if self._listening is not None:
            await self._listening.close()
            self._listening = None
