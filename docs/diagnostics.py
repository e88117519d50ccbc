"""Every code that a diagnostic may have; the table is part of the package, since reports for other tools hold it."""

from mase_server.codes import CODES

__all__ = ["CODES"]
