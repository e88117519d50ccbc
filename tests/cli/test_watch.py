"""`mase-server shapes --watch`, as a person has it in a second window: saves, errors, deletion, Ctrl-C."""

import signal

import pytest

from tests.cli.conftest import NET


class Watched:
    """Reads what a process prints, line by line, until something is seen."""

    def __init__(self, process):
        self.process = process

    def until(self, text):
        lines = []
        for line in self.process.stdout:
            lines.append(line.rstrip("\n"))
            if text in line:
                return lines
        raise AssertionError(f"it ended before {text!r}: {lines} {self.process.stderr.read()}")


@pytest.fixture(params=["--daemon", "--no-daemon"])
def watched(live, request):
    path = live.write(f"watched{request.param}.py", NET)
    process = live.start("shapes", "--watch", request.param, path, cwd=live.folder)
    yield path, Watched(process)
    if process.poll() is None:
        process.kill()
        process.wait()


def test_every_save_is_shown_until_interrupted(watched):
    path, screen = watched
    assert "        h: f32[B, 64] = self.a(x).relu()" in screen.until("Net()(torch")
    path.write_text(NET.replace("width=64", "width=32"))
    block = screen.until("Net()(torch")
    assert block[:2] == ["", "── saved (1)"]
    assert "        h: f32[B, 32] = self.a(x).relu()" in block
    path.write_text(NET + "def (\n")
    assert f"{path}:19:5: error[syntax-error]: " in screen.until("syntax-error")[-1]
    path.rename(path.with_suffix(".bak"))
    assert screen.until("is gone")[-1] == f"{path} is gone; it will be shown when it is back"
    path.write_text(NET)
    assert "        h: f32[B, 64] = self.a(x).relu()" in screen.until("Net()(torch")
    screen.process.send_signal(signal.SIGINT)
    assert screen.process.wait(30) == 0
    assert screen.process.stderr.read() == ""
