"""What the Makefile names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMED = sorted(set(re.findall(r"(?:tests|benchmarks|docs)/[\w/]+\.py", (ROOT / "Makefile").read_text())))


@pytest.mark.parametrize("file", NAMED)
def test_a_file_that_the_makefile_names_is_there(file):
    assert (ROOT / file).is_file()
