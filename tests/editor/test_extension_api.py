"""VS Code's own extension tests (extension_tests.js), run by VS Code."""

import json
import re
from pathlib import Path

import code_server
from fake_project import FakeProject, wait_until
from playwright.sync_api import Browser

TESTS = Path(__file__).with_name("extension_tests.js")
PYTHON = TESTS.with_name("python_extension")
CLIENT = code_server.ROOT / "mase_client_vscode"


def workspace_of(fake: FakeProject) -> Path:
    """A workspace of the fake project and of a second folder beside it, with a file of the same text."""
    second = fake.folder.with_name("second")
    second.mkdir()
    (second / "second.py").write_text((fake.folder / "model.py").read_text())
    workspace = second.with_name("both.code-workspace")
    workspace.write_text(json.dumps({"folders": [{"path": fake.folder.name}, {"path": second.name}]}))
    return workspace


def test_the_tests_that_run_inside_vs_code_pass(fake: FakeProject, browser: Browser, tmp_path: Path) -> None:
    wanted = re.findall(r"^  async '(.+)'\(", TESTS.read_text(), re.MULTILINE)
    codes: list[int] = []
    said: list[str] = []
    with code_server.running(tmp_path / "home", testing=True) as server:
        page = browser.new_page()
        # playwright wants functions that it can mark, hence the lambda
        page.expose_function("codeAutomationExit", lambda code: codes.append(code))
        page.expose_function("codeAutomationLog", lambda _, arguments: said.append(" ".join(map(str, arguments))))
        development = [("extensionDevelopmentPath", path) for path in (CLIENT, PYTHON)]
        page.goto(server.url(workspace_of(fake), *development, ("extensionTestsPath", TESTS)))
        wait_until(lambda: bool(page.evaluate("1") and codes), "VS Code's tests had ended")
        page.close()
    assert codes == [0], "\n".join(said)
    assert [line.removeprefix("TEST passed: ") for line in said if line.startswith("TEST passed")] == wanted
