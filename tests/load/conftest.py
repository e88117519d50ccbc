"""The benchmarks' editor and their files, which these tests drive the real server with."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
