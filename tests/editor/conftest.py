"""What the editor tests share: the packaged extension, a browser, and windows that leave a picture when they fail."""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import code_server
import pytest
from fake_project import FakeProject
from playwright.sync_api import Browser, sync_playwright
from window import Window

EXAMPLES = code_server.ROOT / "examples"
CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
OpenWindow = Callable[..., Window]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in here:
        item.add_marker(pytest.mark.editor)


@pytest.fixture(scope="package", autouse=True)
def tools() -> None:
    for path, target in ((code_server.ENTRY, "tools"), (code_server.VSIX, "vsix")):
        if not path.exists():
            pytest.fail(f"{path} is missing: run `make {target}`")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[code_server.CodeServer]:
    home = tmp_path_factory.mktemp("code-server")
    with code_server.running(home, **{"mase.interpreter": sys.executable}) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the examples, free to be edited."""
    return Path(shutil.copytree(EXAMPLES, tmp_path / "examples"))


@pytest.fixture
def open_window(
    browser: Browser, server: code_server.CodeServer, request: pytest.FixtureRequest
) -> Iterator[OpenWindow]:
    """Opens windows, closes them; a test that fails leaves a picture of each."""
    windows: list[Window] = []

    def opened(folder: Path, file: str, on: code_server.CodeServer = server) -> Window:
        windows.append(Window(browser, on, folder, file))
        return windows[-1]

    failed_before = request.session.testsfailed
    yield opened
    for number, window in enumerate(windows):
        if request.session.testsfailed > failed_before:
            window.picture(f"failed-{request.node.name}-{number}")
        window.close()


@pytest.fixture
def fake(tmp_path: Path) -> FakeProject:
    """A project whose server is the fake one."""
    return FakeProject(tmp_path / "project", tmp_path / "fake.jsonl")
