"""All seeded bugs."""

from tests.bugs.layers import LAYERS
from tests.bugs.python import PYTHON
from tests.bugs.shapes import SHAPES

BUGS = [*LAYERS, *SHAPES, *PYTHON]
