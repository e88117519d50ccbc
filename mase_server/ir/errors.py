"""What goes wrong with checkpoints."""

from __future__ import annotations


class CheckpointError(ValueError):
    """A checkpoint that cannot be written or read. The text names the file, what is wrong, and what to do.

    >>> from pathlib import Path
    >>> _ = Path("broken.pt").write_bytes(b""), Path("broken.mz").write_bytes(b"no checkpoint")
    >>> try:
    ...     MaseGraph.from_checkpoint("broken")
    ... except CheckpointError as error:
    ...     print("broken.mz" in str(error))
    True
    """
