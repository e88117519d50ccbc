"""Which components a design needs."""

import re

import pytest

from mase_server.components import rtl_folder
from mase_server.hardware.library import components


@pytest.mark.parametrize("path", sorted(rtl_folder().glob("*.sv")), ids=lambda path: path.stem)
def test_a_component_comes_with_all_that_it_instantiates(path):
    found = components(path.stem)
    names = {each.stem for each in found}
    assert path in found
    # Every name before a parameter list or an instance's name, in any of the files, is one of the files.
    used = {name for each in found for name in re.findall(r"^ +(\w+) #\($", each.read_text(), re.MULTILINE)}
    assert used - {"module"} <= names


def test_a_component_that_there_is_not_is_told():
    with pytest.raises(ValueError, match="there is no component fixed_lineal"):
        components("fixed_lineal")
