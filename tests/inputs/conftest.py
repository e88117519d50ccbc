"""The corpus and the projects are files to be looked at, their own tests included."""

import sys

import pytest

collect_ignore = ["corpus", "projects"]


@pytest.fixture
def workspace(tmp_path):
    """An empty folder of a user's."""
    (tmp_path / "scratch").mkdir()
    (tmp_path / "project").mkdir()
    yield tmp_path / "project"
    # Other tests have modules of the same names.
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
