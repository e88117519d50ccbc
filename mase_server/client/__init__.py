"""The Python client of a daemon; needs no torch."""

from mase_server.client.asynchronous import AsyncClient
from mase_server.client.blocking import Client
from mase_server.client.errors import ClientError, RpcError

__all__ = ["AsyncClient", "Client", "ClientError", "RpcError"]
