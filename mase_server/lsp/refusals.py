"""What a client is told it cannot have is no fault of the server's, and no traceback in its log."""

from __future__ import annotations

import logging

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

_PYGLS = logging.getLogger("pygls.protocol.json_rpc")
#: What editors do all day: they take back what was answered a moment before, and tell what nobody asked for.
_ROUTINE = ("Cancel notification for unknown message id", "Ignoring notification for unknown method")


def is_refusal(error: BaseException | None) -> bool:
    """Was a request answered with an error that says what the client can do about it?"""
    return isinstance(error, JsonRpcException) and error.code != lsp.ErrorCodes.InternalError.value


class _Filter(logging.Filter):
    """Leaves out pygls' records of refusals, which it takes for exceptions, and of what every editor does."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not is_refusal(error) and not str(record.msg).startswith(_ROUTINE)


_FILTER = _Filter()


def keep_out_of_the_log() -> None:
    """Have pygls log faults alone, from now on in this process."""
    _PYGLS.addFilter(_FILTER)
