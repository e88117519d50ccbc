"""Faults: an editor with a real server, whose processes are all told apart from everybody else's."""

import sys
from pathlib import Path

import pytest
import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parents[1] / "lsp"))

from faulting import Stand


@pytest.fixture(scope="module")
def options():
    """More initialization options of a file's server."""
    return {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory, options):
    """One server for all faults of a file, and two good files that stay open in it."""
    stand = Stand(tmp_path_factory.mktemp("faults"), options=options)
    await stand.start()
    yield stand
    await stand.stop()


@pytest_asyncio.fixture
async def new_stand(tmp_path):
    """A function that starts a server of the test's own; its arguments are Stand's."""
    stands = []

    async def start(**options):
        folder = tmp_path / f"stand{len(stands)}"
        folder.mkdir()
        stands.append(Stand(folder, **options))
        await stands[-1].start()
        return stands[-1]

    yield start
    for stand in stands:
        await stand.stop()
