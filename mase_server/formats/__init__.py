"""Number formats: what values a tensor may have in hardware. One file each, behind one interface.

>>> from mase_server.formats import parse
>>> parse("fixed(8,4)").quantise(torch.tensor([0.1, 100.0]))
tensor([0.1250, 7.9375])

Nothing here knows of graphs: a format takes a tensor and gives one of the same shape and element type.
"""

from __future__ import annotations

from mase_server.formats.format import AUTO, NumberFormat, Open, Range
from mase_server.formats.functional import quantise, round_gradient, with_parameters
from mase_server.formats.registry import FORMATS, check_config, from_config, parse, register

__all__ = [
    "AUTO",
    "FORMATS",
    "NumberFormat",
    "Open",
    "Range",
    "check_config",
    "from_config",
    "parse",
    "quantise",
    "register",
    "round_gradient",
    "with_parameters",
]
