"""What goes wrong with checkpoints."""

from __future__ import annotations


class CheckpointError(ValueError):
    """A checkpoint that cannot be written or read. The text names the file, what is wrong, and what to do."""
