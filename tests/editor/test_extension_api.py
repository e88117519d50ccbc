"""VS Code's own extension tests (extension_tests.js), run by VS Code."""

import re
from pathlib import Path

import code_server
from fake_project import FakeProject, wait_until
from playwright.sync_api import Browser

TESTS = Path(__file__).with_name("extension_tests.js")
CLIENT = code_server.ROOT / "mase_client_vscode"


def test_the_tests_that_run_inside_vs_code_pass(fake: FakeProject, browser: Browser, tmp_path: Path) -> None:
    wanted = re.findall(r"^  async '(.+)'\(", TESTS.read_text(), re.MULTILINE)
    codes: list[int] = []
    said: list[str] = []
    with code_server.running(tmp_path / "home", testing=True) as server:
        page = browser.new_page()
        # playwright wants functions that it can mark, hence the lambda
        page.expose_function("codeAutomationExit", lambda code: codes.append(code))
        page.expose_function("codeAutomationLog", lambda _, arguments: said.append(" ".join(map(str, arguments))))
        paths = {"extensionDevelopmentPath": str(CLIENT), "extensionTestsPath": str(TESTS)}
        page.goto(server.url(fake.folder, **paths))
        wait_until(lambda: bool(page.evaluate("1") and codes), "VS Code's tests had ended")
        page.close()
    assert codes == [0], "\n".join(said)
    assert [line.removeprefix("TEST passed: ") for line in said if line.startswith("TEST passed")] == wanted
