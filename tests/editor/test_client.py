"""The extension alone, against a server without a compiler."""

import json
import os
import signal
from pathlib import Path

import code_server
import pytest
from conftest import OpenWindow
from fake_project import FakeProject, alive, wait_until
from playwright.sync_api import expect
from window import PATIENCE_MS

from tests.worker.pythons import make_python

MODEL = "model.py"


def test_hints_show_the_status_reads_ready_and_the_palette_traces_again(
    fake: FakeProject, open_window: OpenWindow
) -> None:
    window = open_window(fake.folder, MODEL)
    window.expect_line("first: f32[B, 1] = 1")
    window.expect_line("second: f32[B, 2] = 2")
    window.expect_status("MASE: ready")
    window.command("MASE: Trace This File Again")
    [retrace] = fake.wait_for("retrace")
    assert retrace["uri"] == (fake.folder / MODEL).as_uri()


def test_the_server_is_told_the_trust_and_the_chosen_interpreter(fake: FakeProject, open_window: OpenWindow) -> None:
    fake.configure(**{"mase.interpreter": "${workspaceFolder}/own/python"})
    window = open_window(fake.folder, MODEL)
    window.expect_status("MASE: ready")
    [options] = fake.events("initialize")
    assert options["trusted"] is True
    assert options["interpreter"] == {fake.folder.as_uri(): str(fake.folder / "own" / "python")}


def test_an_interpreter_that_nobody_chose_is_left_for_the_server_to_find(
    fake: FakeProject, open_window: OpenWindow
) -> None:
    fake.configure(**{"mase.interpreter": ""})
    window = open_window(fake.folder, MODEL)
    window.expect_status("MASE: ready")
    [options] = fake.events("initialize")
    assert options["interpreter"] == {}
    assert fake.wait_for("configuration")[-1]["interpreter"] is None


def test_another_interpreter_or_setting_reaches_the_running_server(fake: FakeProject, open_window: OpenWindow) -> None:
    window = open_window(fake.folder, MODEL)
    window.expect_status("MASE: ready")
    assert fake.wait_for("configuration")[-1]["run_main"] is True
    fake.configure(**{"mase.runMain": False})
    wait_until(lambda: fake.events("configuration")[-1]["run_main"] is False, "the server knew the setting")
    fake.configure(**{"mase.interpreter": "${workspaceFolder}/other/python"})
    expected = str(fake.folder / "other" / "python")
    wait_until(lambda: fake.events("configuration")[-1]["interpreter"] == expected, "the server knew the interpreter")
    assert len(fake.events("started")) == 1, "workers restart, not the server"


def test_the_status_tells_the_interpreter_and_what_can_be_done(fake: FakeProject, open_window: OpenWindow) -> None:
    fake.configure(**{"mase.interpreter": "${workspaceFolder}/own/python"})
    window = open_window(fake.folder, MODEL)
    window.expect_status("MASE: ready")
    window.status.hover()
    card = window.page.locator(".monaco-hover:visible")
    expect(card).to_contain_text(f"Python: {fake.folder / 'own' / 'python'}", timeout=PATIENCE_MS)
    for action in ("Trace again", "Restart server", "Log", "Settings"):
        expect(card.get_by_role("link", name=action)).to_be_visible()
    window.picture("status")


def test_restart_ends_the_old_server_in_order_and_starts_another(fake: FakeProject, open_window: OpenWindow) -> None:
    window = open_window(fake.folder, MODEL)
    window.expect_status("MASE: ready")
    window.command("MASE: Restart Server")
    old, new = fake.wait_for("started", 2)
    fake.wait_for("opened", 2)
    assert [event["pid"] for event in fake.events("shutdown")] == [old["pid"]]
    wait_until(lambda: not alive(old["pid"]), "the old server had ended")
    assert alive(new["pid"])
    window.expect_status("MASE: ready")


@pytest.mark.timeout(180)
def test_a_server_that_crashes_five_times_is_given_up_until_the_person_restarts_it(
    fake: FakeProject, open_window: OpenWindow
) -> None:
    window = open_window(fake.folder, MODEL)
    for crash in range(1, 6):
        os.kill(fake.wait_for("opened", crash)[-1]["pid"], signal.SIGKILL)
    notice = window.notice("The MASE server ended 5 times within 3 minutes and was not started again.")
    window.expect_status("MASE: server crashed")
    assert len(fake.events("started")) == 5
    window.picture("server-given-up")
    notice.get_by_text("Restart Server").click()
    fake.wait_for("opened", 6)
    window.expect_status("MASE: ready")


def test_closing_the_window_ends_the_server(fake: FakeProject, open_window: OpenWindow) -> None:
    window = open_window(fake.folder, MODEL)
    window.expect_status("MASE: ready")
    window.close()
    [end] = fake.wait_for("shutdown")
    wait_until(lambda: not alive(end["pid"]), "the server had ended")


def test_an_untrusted_workspace_starts_nothing_until_it_is_trusted(
    fake: FakeProject, open_window: OpenWindow, tmp_path: Path
) -> None:
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


def test_without_a_python_that_runs_the_server_it_says_what_to_do(fake: FakeProject, open_window: OpenWindow) -> None:
    fake.configure(**{"mase.server.command": [], "mase.interpreter": "/bin/false"})
    window = open_window(fake.folder, MODEL)
    notice = window.notice(
        "The MASE server needs Python 3.11 or newer. /bin/false cannot run it. Choose another interpreter, "
        "or set mase.server.command."
    )
    expect(notice.get_by_text("Open Settings")).to_be_visible()
    window.expect_status("MASE: no server")
    window.picture("server-missing")


def test_the_server_that_the_extension_brings_serves_a_python_that_has_none(
    project: Path, open_window: OpenWindow, tmp_path: Path
) -> None:
    python, _ = make_python(tmp_path / "env", torch=True)
    (project / ".vscode").mkdir()
    (project / ".vscode" / "settings.json").write_text(json.dumps({"mase.interpreter": python}))
    window = open_window(project, "mlp.py")
    window.expect_status("MASE: ready")
    window.expect_line("logits: f32[B, 5] = self.head(x)")


def test_the_extension_is_small() -> None:
    assert code_server.VSIX.stat().st_size < 6_000_000
