"""What the tests of trust share: a folder of somebody who wishes no good."""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
for folder in (TESTS / "security", TESTS / "lsp", TESTS / "rpc"):
    sys.path.insert(0, str(folder))

from hostile import Hostile  # noqa: E402


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    """A workspace with a trap on every way that its code could come to run."""
    return Hostile(tmp_path_factory.mktemp("downloaded"))


@pytest.fixture(scope="session")
def private_home(tmp_path_factory):
    """The environment of a server that keeps its things to itself."""
    home = tmp_path_factory.mktemp("home")
    (home / "run").mkdir(mode=0o700)
    return {
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_STATE_HOME": str(home / "state"),
        "MASE_RUNTIME_DIR": str(home / "run"),
    }
