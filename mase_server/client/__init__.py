"""The Python client of a daemon; needs no torch."""

from typing import TYPE_CHECKING, Any

from mase_server.client.blocking import Client
from mase_server.client.stream import Array, ClientError, RpcError, fetch, fetch_async

if TYPE_CHECKING:
    from mase_server.client.asynchronous import AsyncClient

__all__ = ["Array", "AsyncClient", "Client", "ClientError", "RpcError", "fetch", "fetch_async"]


def __getattr__(name: str) -> Any:
    """Import the asynchronous client only on use: asyncio would take most of the import time."""
    if name != "AsyncClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mase_server.client.asynchronous import AsyncClient

    return AsyncClient
