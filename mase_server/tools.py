"""Small helpers for people who write passes."""

from __future__ import annotations

import logging
import sys

_FORMAT = "%(levelname)-8s %(message)s"


class _Stderr(logging.Handler):
    """Writes to the current sys.stderr, so that redirecting it works."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(self.format(record) + "\n")


def get_logger(name: str) -> logging.Logger:
    """The logger of this name, which writes to standard error; further calls return the same logger.

    name: as for logging.getLogger.
    Source: `chop.tools.get_logger`.

    >>> logger = get_logger("my_pass")
    >>> logger.setLevel("INFO")
    >>> logger is get_logger("my_pass")
    True
    """
    logger = logging.getLogger(name)
    if not any(isinstance(handler, _Stderr) for handler in logger.handlers):
        handler = _Stderr()
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)
        logger.propagate = False
    return logger
