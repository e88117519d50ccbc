"""Every component that a netlist may have has its costs and its times."""

import re

from mase_server.hardware.estimates.estimating import COSTS
from mase_server.hardware.kinds import KINDS
from mase_server.hardware.timing.components import TIMINGS
from mase_server.hardware.verilog import rtl_folder
from tests.rtl.build import ROOT


def instantiated():
    """The names of modules that kinds and netlists speak of."""
    known = {path.stem for path in rtl_folder().glob("*.sv")}
    folder = ROOT / "mase_server" / "hardware"
    sources = [*(folder / "kinds").glob("*.py"), folder / "netlist.py"]
    texts = [line for path in sources for line in path.read_text().splitlines() if 'module != "' not in line]
    return {name for text in texts for name in re.findall(r'"(\w+)"', text)} & known


def test_every_component_of_a_netlist_has_a_row():
    assert len(instantiated()) > len(KINDS)
    assert instantiated() <= set(COSTS)
    assert set(TIMINGS) == set(COSTS)


def test_rows_are_of_components_that_there_are():
    assert set(COSTS) <= {path.stem for path in rtl_folder().glob("*.sv")}
