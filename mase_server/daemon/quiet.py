"""A listener for whom the results are enough."""

from __future__ import annotations

from mase_server.daemon.status import Status


class Quiet:
    """A `daemon.status.Listener` that does nothing."""

    def status_changed(self, status: Status) -> None:
        """Nothing to do."""

    def views_changed(self, paths: frozenset[str]) -> None:
        """Nothing to do."""

    def progress(self, path: str, stage: str, message: str) -> None:
        """Nothing to do."""

    def pass_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """Nothing to do."""

    def pass_ended(self, path: str, model: str) -> None:
        """Nothing to do."""

    def verilog_changed(self, path: str, model: str) -> None:
        """Nothing to do."""

    def verilog_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """Nothing to do."""

    def verilog_ended(self, path: str, model: str) -> None:
        """Nothing to do."""

    def warned(self, text: str) -> None:
        """Nothing to do: the log has it."""
