"""What a kind raises while hardware is made: it is told of the operation, and the rest is made without that one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mase_server.hardware.design import Design, Operation


class OperationError(Exception):
    """No hardware could be made of an operation. Its text says what happened, in a line."""

    def __init__(self, operation: Operation, error: Exception) -> None:
        super().__init__(failure(error))
        self.operation = operation

    def node(self, design: Design) -> str | None:
        """The graph's node whose hardware it is; of what was put in, that of the first reader. None for neither."""
        operation = self.operation
        while not operation.nodes and (users := design.users(operation.name)):
            operation = users[0]
        return operation.nodes[0] if operation.nodes else None


@contextmanager
def made(operation: Operation) -> Iterator[None]:
    """OperationError for whatever is raised inside."""
    try:
        yield
    # The border to kinds: one that fails must not take the others with it.
    except Exception as error:
        raise OperationError(operation, error) from error


def failure(error: Exception) -> str:
    """An error that nobody foresaw, as a reason."""
    return f"working it out failed with {type(error).__name__}: {error}".partition("\n")[0]
