"""One server for all tests; each has its own files and clients."""

import pytest
import pytest_asyncio
from rpc_serving import Served

from mase_server.rpc.dispatch import Limits


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def shared(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("rpc")
    (tmp / "workspace").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        served = await Served(tmp / "workspace", tmp, patch).start()
        yield served
        await served.close()


@pytest.fixture
def served(shared):
    yield shared
    shared.trusted = True


@pytest_asyncio.fixture(loop_scope="session")
async def client(served):
    async with served.client() as raw:
        yield raw


@pytest_asyncio.fixture(loop_scope="session")
async def limited(tmp_path, monkeypatch):
    """A server of the test's own; call it with the limits that it shall have."""
    made = []

    async def make(**limits):
        folder = tmp_path / f"workspace{len(made)}"
        folder.mkdir()
        made.append(await Served(folder, tmp_path, monkeypatch, Limits(**limits)).start())
        return made[-1]

    yield make
    for served in made:
        await served.close()
