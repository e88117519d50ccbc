"""Every code of a diagnostic; the table is part of the package, because reports for other tools contain it."""

from mase_server.protocol.codes import CODES

__all__ = ["CODES"]
