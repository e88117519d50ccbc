"""The Python client of a daemon; needs no torch."""

from mase_server.client.arrays import Array, fetch, fetch_async
from mase_server.client.asynchronous import AsyncClient
from mase_server.client.blocking import Client
from mase_server.client.errors import ClientError, RpcError

__all__ = ["Array", "AsyncClient", "Client", "ClientError", "RpcError", "fetch", "fetch_async"]
