"""The extension alone, against a server without a compiler."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import code_server
import pytest
from conftest import Log, OpenWindow
from playwright.sync_api import expect
from window import PATIENCE_MS

Fake = tuple[Path, Log]


def eventually(log: Log, event: str, count: int) -> list[dict[str, object]]:
    """The events of that name, once there are `count` of them."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while len(found := log.events(event)) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} events {event!r}: {log.path.read_text()}"
        time.sleep(0.05)
    return found


def test_the_server_is_told_the_trust_and_each_folders_interpreter(fake: Fake, open_window: OpenWindow) -> None:
    folder, log = fake
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/usr/bin/env")
    (folder / ".vscode" / "settings.json").write_text(with_settings(folder, **{"mase.interpreter": str(python)}))
    window = open_window(folder, "model.py")
    window.expect_status("MASE: ready")
    [options] = log.events("initialize")
    assert options["trusted"] is True
    assert options["interpreter"] == {folder.as_uri(): str(python)}


def test_hints_show_and_the_status_item_reads_ready(fake: Fake, open_window: OpenWindow) -> None:
    folder, _ = fake
    window = open_window(folder, "model.py")
    window.expect_line("first: f32[B, 1] = 1")
    window.expect_line("second: f32[B, 2] = 2")
    window.expect_status("MASE: ready")


def test_restart_ends_the_old_server_in_order_and_starts_another(fake: Fake, open_window: OpenWindow) -> None:
    folder, log = fake
    window = open_window(folder, "model.py")
    window.expect_status("MASE: ready")
    window.command("MASE: Restart Server")
    old, new = eventually(log, "started", 2)
    eventually(log, "opened", 2)
    assert [event["pid"] for event in log.events("shutdown")] == [old["pid"]]
    assert not alive(int(str(old["pid"])))
    assert alive(int(str(new["pid"])))
    window.expect_status("MASE: ready")


def test_the_palette_asks_for_a_new_trace_of_the_active_file(fake: Fake, open_window: OpenWindow) -> None:
    folder, log = fake
    window = open_window(folder, "model.py")
    window.expect_status("MASE: ready")
    window.command("MASE: Trace This File Again")
    [retrace] = eventually(log, "retrace", 1)
    assert retrace["uri"] == (folder / "model.py").as_uri()


def test_another_interpreter_reaches_the_running_server(fake: Fake, open_window: OpenWindow) -> None:
    folder, log = fake
    window = open_window(folder, "model.py")
    window.expect_status("MASE: ready")
    (folder / ".vscode" / "settings.json").write_text(with_settings(folder, **{"mase.interpreter": "/usr/bin/env"}))
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while log.events("configuration")[-1]["interpreter"] != "/usr/bin/env":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(log.events("started")) == 1, "workers restart, not the server"


@pytest.mark.timeout(180)
def test_a_server_that_crashes_five_times_is_given_up_until_the_person_restarts_it(
    fake: Fake, open_window: OpenWindow
) -> None:
    folder, log = fake
    window = open_window(folder, "model.py")
    for crash in range(1, 6):
        eventually(log, "opened", crash)
        os.kill(int(str(log.events("started")[-1]["pid"])), signal.SIGKILL)
    notice = window.page.locator(".notification-list-item", has_text="ended 5 times within 3 minutes")
    notice.wait_for()
    window.expect_status("MASE: server crashed")
    assert len(log.events("started")) == 5
    window.picture("server-given-up")
    notice.get_by_text("Restart Server").click()
    eventually(log, "opened", 6)
    window.expect_status("MASE: ready")


def test_closing_the_window_ends_the_server(fake: Fake, open_window: OpenWindow) -> None:
    folder, log = fake
    window = open_window(folder, "model.py")
    window.expect_status("MASE: ready")
    window.close()
    [end] = eventually(log, "shutdown", 1)
    wait_until(lambda: not alive(int(str(end["pid"]))))


def test_an_untrusted_workspace_starts_nothing_until_it_is_trusted(
    fake: Fake, open_window: OpenWindow, tmp_path: Path
) -> None:
    folder, log = fake
    prompt = {"security.workspace.trust.startupPrompt": "never", "security.workspace.trust.banner": "never"}
    with code_server.running(tmp_path / "home", trust=True, **prompt) as server:
        window = open_window(folder, "model.py", on=server)
        window.page.get_by_text("Restricted Mode").first.wait_for()
        expect(window.page.locator("[id='mase.mase-vscode.status']")).to_have_count(0)
        assert not log.path.exists()
        window.command("Workspaces: Manage Workspace Trust")
        window.page.get_by_role("button", name="Trust", exact=True).first.click()
        assert eventually(log, "initialize", 1)[0]["trusted"] is True
        window.close()


def test_a_python_without_the_server_says_what_to_do(
    tmp_path: Path, open_window: OpenWindow
) -> None:
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode" / "settings.json").write_text('{"mase.interpreter": "/bin/false"}')
    (tmp_path / "model.py").write_text("x = 1\n")
    window = open_window(tmp_path, "model.py")
    notice = window.page.locator(".notification-list-item", has_text="MASE needs the mase-server package")
    expect(notice).to_contain_text("It is not in /bin/false")
    expect(notice.get_by_text("Copy Install Command")).to_be_visible()
    window.expect_status("MASE: no server")
    window.picture("server-missing")


def with_settings(folder: Path, **settings: object) -> str:
    import json

    path = folder / ".vscode" / "settings.json"
    return json.dumps(json.loads(path.read_text()) | settings)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
