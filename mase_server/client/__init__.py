"""The Python client of a daemon; needs no torch."""

from typing import TYPE_CHECKING, Any

from mase_server.client.arrays import Array, fetch, fetch_async
from mase_server.client.blocking import Client
from mase_server.client.errors import ClientError, RpcError

if TYPE_CHECKING:
    from mase_server.client.asynchronous import AsyncClient

__all__ = ["Array", "AsyncClient", "Client", "ClientError", "RpcError", "fetch", "fetch_async"]


def __getattr__(name: str) -> Any:
    """The asynchronous client when it is asked for: asyncio is most of what an import of all would take."""
    if name != "AsyncClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mase_server.client.asynchronous import AsyncClient

    return AsyncClient
