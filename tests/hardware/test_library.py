"""Which components a design needs."""

import re

import pytest

from mase_server.building import rtl_folder
from mase_server.hardware.verilog import find_components


def test_a_component_comes_with_all_that_it_instantiates():
    for path in rtl_folder().glob("*.sv"):
        found = find_components(path.stem)
        assert path in found
        # Every name before a parameter list or an instance's name, in any of the files, is one of the files.
        used = {name for each in found for name in re.findall(r"^ +(\w+) #\($", each.read_text(), re.MULTILINE)}
        # Behind a macro, an ECP5's multiplier stands for registers that Yosys would leave unused.
        assert used - {"module", "MULT18X18D"} <= {each.stem for each in found}, path


def test_a_component_that_there_is_not_is_told():
    with pytest.raises(ValueError, match="there is no component fixed_lineal"):
        find_components("fixed_lineal")
