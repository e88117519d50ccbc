"""The errors of requests to a daemon."""

from __future__ import annotations

from typing import Any


class ClientError(Exception):
    """The daemon cannot be found or reached, or the connection was lost; the text says which, and what to do."""


class RpcError(ClientError):
    """The daemon's refusal. code: stable, e.g. "not-open".  data: plain values that explain it.  map: all of it."""

    def __init__(self, told: Any) -> None:
        self.map: dict[str, Any] = told if isinstance(told, dict) else {"code": "error", "message": str(told)}
        self.code: str = str(self.map.get("code", "error"))
        self.data: dict[str, Any] = self.map.get("data") or {}
        super().__init__(str(self.map.get("message", self.code)))
