"""The figures of whole networks: the smallest of them as `make hardware-nightly` has it, and what counts as fine."""

import importlib.util
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rtl.build import lend_programs

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))


@pytest.fixture(scope="module")
def exact():
    """The benchmark as a module."""
    spec = importlib.util.spec_from_file_location("exact", BENCHMARKS / "exact.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["exact"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["exact"]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of its own, with the programs that are kept from one run of the tests to the next."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with lend_programs(tmp_path / "cache" / "mase-server" / "simulations"):
        yield


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed")
def test_the_jet_mlp_is_exact_from_its_file_at_the_pace_that_is_promised(exact, cache, tmp_path):
    """16-64-32-32-5 with 52 multipliers: 6,304 products in no more than 135 cycles; all trials, each integer."""
    found = exact.measure(exact.CASES["jet_mlp"], 52, 1000, tmp_path / "out")
    assert isinstance(found, exact.Result), found
    assert found.is_fine
    assert list(found.trials) == ["plain", "stalls", "late", "reset"]
    assert {(each["status"], each["vectors"]) for each in found.trials.values()} == {("equal", 1000)}
    plain, totals = found.trials["plain"], found.told["totals"]
    assert totals["multipliers"] <= 52
    assert plain["cycles_per_vector"] <= 135
    assert plain["cycles_per_vector"] == pytest.approx(totals["interval"], rel=0.02)
    assert plain["latency"] == pytest.approx(totals["latency"], rel=0.02)
    assert found.trials["late"]["cycles"] > plain["cycles"]

    trials = dict(found.trials)
    for status in ("different", "stood still", "failed"):
        trials["reset"] = found.trials["reset"] | {"status": status}
        assert not replace(found, trials=trials).is_fine
    missing = dict(found.told) | {"unsupported": [{"node": "cumsum"}]}
    assert not replace(found, told=missing).is_fine


def test_every_network_of_the_figures_is_a_file_with_its_budgets(exact):
    """As the figures are promised: vectors and foldings."""
    promised = {
        "jet_mlp": (10_000, 4),
        "lenet": (200, 1),
        "small_resnet": (1, 1),
        "encoder_block": (20, 1),
        "vit_tiny": (20, 1),
    }
    for name, (vectors, foldings) in promised.items():
        network = exact.CASES[name]
        assert network.file.is_file()
        assert network.vectors >= vectors
        assert len(network.budgets) >= foldings
        assert not network.is_large
