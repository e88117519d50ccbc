"""The extension alone, against a server without a compiler. One window serves most tests."""

import os
import signal
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import code_server
import pytest
from conftest import OpenWindow
from fake_project import FakeProject, alive, wait_until
from playwright.sync_api import BrowserContext, expect
from window import PATIENCE_MS, Window

MODEL = "model.py"


@dataclass(slots=True)
class Client:
    """The fake project, and the window on it; `window` is None until one is open."""

    fake: FakeProject
    window: Window | None = None


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    folder = tmp_path_factory.mktemp("client")
    return Client(FakeProject(folder / "project", folder / "fake.jsonl"))


@pytest.fixture
def window(
    client: Client, context: BrowserContext, server: code_server.CodeServer, request: pytest.FixtureRequest
) -> Iterator[Window]:
    """The window on the fake project, its server ready."""
    client.fake.begin()
    if client.window is None:
        folder = client.fake.folder
        client.window = Window(context.new_page(), server.url(folder, ("openFile", folder / MODEL)), folder)
        client.window.showing(folder / MODEL)
    client.window.expect_status("MASE: ready")
    client.fake.begin()  # what the start of the window told counts no more
    failed_before = request.session.testsfailed
    yield client.window
    if not client.window.page.is_closed() and request.session.testsfailed > failed_before:
        client.window.picture(f"failed-{request.node.name}")
        client.window.close()
    if client.window.page.is_closed():
        client.window = None
        return
    client.window.page.mouse.move(3, 3)
    client.window.command("Notifications: Clear All Notifications")


@pytest.fixture
def fake(client: Client) -> FakeProject:
    return client.fake


def test_a_new_server_is_told_the_trust_and_the_chosen_interpreter(fake: FakeProject, window: Window) -> None:
    fake.configure(**{"mase.interpreter": "${workspaceFolder}/own/python"})
    chosen = str(fake.folder / "own" / "python")
    wait_until(lambda: told_interpreters(fake)[-1:] == [chosen], "the server knew the interpreter")
    window.command("MASE: Restart Server")
    [options] = fake.wait_for("initialize")
    assert options["trusted"] is True
    assert options["interpreter"] == {fake.folder.as_uri(): chosen}
    window.expect_status("MASE: ready")


def told_interpreters(fake: FakeProject) -> list[str | None]:
    """What the server was told in this test, one after the other."""
    return [event["interpreter"] for event in fake.events("configuration")]


def test_hints_show_and_the_palette_traces_again(fake: FakeProject, window: Window) -> None:
    window.expect_line("first: f32[B, 1] = 1")
    window.expect_line("second: f32[B, 2] = 2")
    window.command("MASE: Trace This File Again")
    [retrace] = fake.wait_for("retrace")
    assert retrace["uri"] == (fake.folder / MODEL).as_uri()


def test_an_interpreter_that_nobody_chose_is_left_for_the_server_to_find(fake: FakeProject, window: Window) -> None:
    fake.configure(**{"mase.interpreter": ""})
    wait_until(lambda: told_interpreters(fake)[-1:] == [None], "the server knew that none was chosen")
    window.command("MASE: Restart Server")
    [options] = fake.wait_for("initialize")
    assert options["interpreter"] == {}


def test_another_interpreter_or_setting_reaches_the_running_server(fake: FakeProject, window: Window) -> None:
    fake.configure(**{"mase.runMain": False})
    wait_until(lambda: run_main(fake)[-1:] == [False], "the server knew the setting")
    fake.configure(**{"mase.interpreter": "${workspaceFolder}/other/python"})
    expected = str(fake.folder / "other" / "python")
    wait_until(lambda: told_interpreters(fake)[-1:] == [expected], "the server knew the interpreter")
    assert fake.events("started") == [], "workers restart, not the server"


def run_main(fake: FakeProject) -> list[bool]:
    return [event["run_main"] for event in fake.events("configuration")]


def test_the_status_tells_the_interpreter_the_server_and_what_can_be_done(fake: FakeProject, window: Window) -> None:
    fake.configure(**{"mase.interpreter": "${workspaceFolder}/own/python"})
    wait_until(lambda: told_interpreters(fake) != [], "the server knew the interpreter")
    window.status.hover()
    card = window.page.locator(".monaco-hover:visible")
    expect(card).to_contain_text(f"Python: {fake.folder / 'own' / 'python'}", timeout=PATIENCE_MS)
    expect(card).to_contain_text("Server: as mase.server.command says")
    for action in ("Trace again", "Restart server", "Log", "Settings"):
        expect(card.get_by_role("link", name=action)).to_be_visible()
    window.picture("status")
    window.page.mouse.move(3, 3)
    window.status.click()
    pick = window.page.locator(".quick-input-widget:visible")
    expect(pick).to_contain_text("Graph")
    window.picture("status-actions")
    window.page.keyboard.type("trace this")
    window.page.keyboard.press("Enter")
    fake.wait_for("retrace")


def test_restart_ends_the_old_server_in_order_and_starts_another(fake: FakeProject, window: Window) -> None:
    old = fake.pid
    window.command("MASE: Restart Server")
    [new] = fake.wait_for("started")
    fake.wait_for("opened")
    assert [event["pid"] for event in fake.events("shutdown")] == [old]
    wait_until(lambda: not alive(old), "the old server had ended")
    assert alive(new["pid"])
    window.expect_status("MASE: ready")


def test_messages_have_a_channel_of_their_own_once_they_are_asked_for(fake: FakeProject, window: Window) -> None:
    channels = window.page.locator(".quick-input-list .monaco-list-row")
    window.command("Output: Show Output Channels...")
    channels.filter(has_text="MASE").first.wait_for()
    expect(channels.filter(has_text="MASE Trace")).to_have_count(0)
    window.page.keyboard.press("Escape")
    fake.configure(**{"mase.trace.server": "messages"})
    wait_until(lambda: told_interpreters(fake) != [], "the settings were read again")
    window.command("MASE: Trace This File Again")
    fake.wait_for("retrace")
    window.command("Output: Show Output Channels...")
    channels.filter(has_text="MASE Trace").first.click()
    panel = window.page.locator(".part.panel")
    panel.locator(":focus").wait_for(state="attached")
    window.command("MASE: Trace This File Again")  # of the file, though the output has the focus
    fake.wait_for("retrace", 2)
    expect(panel.locator(".view-lines")).to_contain_text("mase/status", timeout=PATIENCE_MS)
    window.expect_status("MASE: ready")
    window.command("View: Toggle Panel Visibility")
    panel.wait_for(state="hidden")


def test_without_a_python_that_runs_the_server_it_says_what_to_do(fake: FakeProject, window: Window) -> None:
    fake.configure(**{"mase.server.command": [], "mase.interpreter": "/bin/false"})
    notice = window.notice("The MASE server needs Python 3.11 or newer. /bin/false cannot run it.")
    expect(notice).to_contain_text("Choose another interpreter, or set mase.server.command.")
    expect(notice.get_by_text("Open Settings")).to_be_visible()
    window.expect_status("MASE: no server")
    window.picture("server-missing")


@pytest.mark.timeout(180)
def test_a_server_that_crashes_five_times_is_given_up_until_the_person_restarts_it(
    fake: FakeProject, window: Window
) -> None:
    os.kill(fake.pid, signal.SIGKILL)
    for crash in range(1, 5):
        os.kill(fake.wait_for("opened", crash)[-1]["pid"], signal.SIGKILL)
    notice = window.notice("The MASE server ended 5 times within 3 minutes and was not started again.")
    window.expect_status("MASE: server crashed")
    assert len(fake.events("started")) == 4
    window.picture("server-given-up")
    notice.get_by_text("Restart Server").click()
    fake.wait_for("opened", 5)
    window.expect_status("MASE: ready")


def test_closing_the_window_ends_the_server(fake: FakeProject, window: Window) -> None:
    pid = fake.pid
    window.close()
    [end] = fake.wait_for("shutdown")
    assert end["pid"] == pid
    wait_until(lambda: not alive(pid), "the server had ended")


def test_an_untrusted_workspace_starts_nothing_until_it_is_trusted(open_window: OpenWindow, tmp_path: Path) -> None:
    """The setting that names the server is the workspace's own: a program that it brought would be started by it."""
    fake = FakeProject(tmp_path / "project", tmp_path / "fake.jsonl")
    quiet = {"security.workspace.trust.startupPrompt": "never", "security.workspace.trust.banner": "never"}
    with code_server.running(tmp_path / "home", trust=True, **quiet) as server:
        window = open_window(fake.folder, MODEL, on=server)
        window.page.get_by_text("Restricted Mode").first.wait_for()
        expect(window.status).to_have_count(0)
        assert not fake.log.exists()
        window.command("Workspaces: Manage Workspace Trust")
        window.page.get_by_role("button", name="Trust", exact=True).first.click()
        assert fake.wait_for("initialize")[0]["trusted"] is True
        window.close()


def test_the_extension_is_small_and_has_the_pictures_of_its_walkthrough() -> None:
    assert code_server.VSIX.stat().st_size < 6_000_000
    with zipfile.ZipFile(code_server.VSIX) as packed:
        names = set(packed.namelist())
    pictures = {f"extension/dist/pictures/{name}.png" for name in ("editor", "error", "quantised", "graph", "verilog")}
    assert pictures | {"extension/dist/example.py"} <= names
