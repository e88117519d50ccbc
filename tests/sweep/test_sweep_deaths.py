"""Whoever dies, no result is lost, and what was being measured is measured again."""

import os
import signal

import pytest

from tests.sweep.conftest import descendants, wait_for


@pytest.mark.parametrize("who", ["the warm parent", "the trace child", "the fork that runs the pass"])
def test_a_killed_worker_costs_one_try(sweeping, gate, who):
    level = ["the warm parent", "the trace child", "the fork that runs the pass"].index(who)
    process = sweeping.start(
        "net.py", "--pipeline", "quantize default='fixed(8,4)'", "--pipeline", f"gated gate={gate.path}", "--jobs", 1
    )
    gate.reached()
    before = sweeping.rows()
    below = descendants(process.pid)
    victims = below[level] if level < 2 else below[-1]
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    gate.open()
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, ""), out
    assert "2 points of 2" in out
    rows = sweeping.rows()
    assert rows[:1] == before
    assert [row["error"] for row in rows] == ["", ""]


def test_a_killed_sweep_leaves_its_results_and_no_process(sweeping, gate):
    words = (
        "net.py",
        "--pipeline",
        "quantize default='fixed(8,4)'",
        "--pipeline",
        f"gated gate={gate.path}",
        "--jobs",
        1,
    )
    process = sweeping.start(*words)
    gate.reached()
    below = [pid for level in descendants(process.pid) for pid in level]
    assert below
    process.kill()
    process.wait()
    wait_for(lambda: not any(map(_alive, below)))
    [row] = sweeping.rows()
    gate.open()
    assert sweeping(*words).returncode == 0
    assert sweeping.rows()[0] == row


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_pass_that_always_ends_its_process_is_given_up(sweeping, project):
    own = project / "gated.py"
    own.write_text(own.read_text().replace("return mg.nothing", "import os; os.kill(os.getpid(), 9)"))
    done = sweeping("net.py", "--pipeline", "broken", "--pipeline", "quantize default='fixed(8,4)'")
    assert done.returncode == 1
    assert "(tried 3 times)" in done.stdout
    assert "1 point failed; --retry tries again" in done.stdout
    assert sorted(row["kind"] for row in sweeping.rows()) == ["", "died"]
