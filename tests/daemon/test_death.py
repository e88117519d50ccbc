"""How a worker died and where: read from what faulthandler really writes."""

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mase_server.daemon.death import (
    Breach,
    Place,
    death_problem,
    how_it_ended,
    last_place,
    read_fault,
    tells_the_end,
)
from mase_server.protocol.wire import BROKEN, LOST_WIRE

PATH, FOLDER = "/w/net.py", "/w"
HEAD = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n"


def frames(*places):
    return "".join(f'  File "{file}", line {line} in {name}\n' for file, line, name in places)


def test_the_innermost_frame_of_the_workspace_is_taken():
    stack = frames(("/usr/lib/torch/nn.py", 9, "linear"), ("/w/part.py", 4, "forward"), (PATH, 12, "<module>"))
    assert last_place(HEAD + stack, PATH, FOLDER) == Place("/w/part.py", 4, "forward")


def test_packages_inside_the_workspace_are_not_its_own():
    stack = frames(("/w/.venv/lib/site-packages/torch/nn.py", 9, "linear"), (PATH, 12, "<module>"))
    assert last_place(HEAD + stack, PATH, FOLDER) == Place(PATH, 12, "<module>")


def test_of_several_samples_the_last_counts():
    text = HEAD + frames((PATH, 1, "a")) + "Stack (most recent call first):\n" + frames((PATH, 2, "b"))
    assert last_place(text, PATH, FOLDER) == Place(PATH, 2, "b")


def test_a_stack_that_was_cut_off_gives_way_to_the_one_before():
    cut = "Stack (most recent call first):\n" + frames(("/usr/lib/torch/nn.py", 9, "linear"))
    assert last_place(HEAD + frames((PATH, 1, "a")) + cut, PATH, FOLDER) == Place(PATH, 1, "a")


@given(st.text())
def test_nonsense_has_no_place_or_a_place_in_the_workspace(text):
    place = last_place(text, PATH, FOLDER)
    assert place is None or place.file.startswith("/w")


@pytest.mark.parametrize("name", ["net.py", "né t.py", "模型.py", "a'b.py", "\U0001f600.py"])
def test_what_faulthandler_writes_is_read_whatever_the_name(tmp_path, name):
    source = tmp_path / name
    source.write_text(
        "import faulthandler, sys\ndef f():\n    faulthandler.dump_traceback(open(sys.argv[1], 'w'))\nf()\n"
    )
    subprocess.run([sys.executable, source, tmp_path / "fault.txt"], check=True)
    assert last_place(read_fault(str(tmp_path)), str(source), str(tmp_path)) == Place(str(source), 3, "f")


def test_a_missing_fault_file_says_nothing(tmp_path):
    assert read_fault(str(tmp_path / "none")) == ""
    assert last_place("", PATH, FOLDER) is None


def status_of(action):
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", action], os.environ)
    return os.waitpid(pid, 0)[1]


@pytest.mark.parametrize(
    ("action", "code", "text"),
    [
        ("import os; os._exit(3)", "exited", "The code ended its own process with exit status 3"),
        ("import os; os.kill(os.getpid(), 9)", "crashed", "died of SIGKILL (killed from outside, perhaps because"),
        ("import os; os.kill(os.getpid(), 31)", "crashed", "died of SIGSYS"),
        ("import os; os.kill(os.getpid(), 35)", "crashed", "died of signal 35"),
    ],
)
def test_a_wait_status_is_said_in_words(action, code, text):
    found, said = how_it_ended(status_of(action))
    assert found == code
    assert text in said


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (LOST_WIRE, "The code closed or wrote to file descriptors that it did not open"),
        (
            BROKEN,
            "The process that ran this file could not go on, perhaps because the code changes what everything uses",
        ),
    ],
)
def test_what_the_process_says_of_itself_is_not_laid_to_the_codes_exit(status, text):
    found, said = how_it_ended(status << 8)
    assert found == "crashed"
    assert said.startswith(text)


def test_a_line_that_was_only_looked_at_before_the_end_is_not_told_as_the_end():
    message = death_problem("crashed", "It died", Place(PATH, 7), PATH, exact=False).message
    assert message.startswith("It died, last seen at line 7 of net.py. ")
    assert not tells_the_end("Stack (most recent call first):\n")
    assert tells_the_end(HEAD)
    assert tells_the_end("os._exit(3)\nStack (most recent call first):\n")


def test_limits_are_said_with_their_numbers():
    assert Breach("time-limit", 30.0).text() == "Tracing took longer than 30 s and was stopped"
    assert Breach("memory-limit", 4 << 30).text() == "Tracing used more than 4 GiB and was stopped"
    assert Breach("memory-limit", 1536 << 20).text() == "Tracing used more than 1.5 GiB and was stopped"


def test_the_problem_says_what_where_and_when_it_is_tried_again():
    problem = death_problem("crashed", "It died", Place(PATH, 7, "forward"), PATH, "noise\nlast words\n")
    assert (problem.file, problem.line, problem.end_line) == (PATH, 7, 8)
    assert problem.message == (
        "It died, at line 7 of net.py in forward. It is not traced again until the file changes or a retrace is asked "
        "for.\nIts last output: noise\nlast words"
    )


@pytest.mark.parametrize(
    ("code", "function", "step"),
    [
        ("time-limit", "forward", "raise the setting mase.limits.seconds"),
        ("memory-limit", "", "raise the setting mase.limits.memory"),
        ("exited", "<module>", 'put it under `if __name__ == "__main__":`'),
        ("exited", "forward", "Raise an exception instead"),
    ],
)
def test_each_death_has_its_next_step(code, function, step):
    assert step in death_problem(code, "It ended", Place(PATH, 7, function), PATH).message


def test_without_a_place_the_problem_stands_on_line_one_and_says_so():
    problem = death_problem("crashed", "It died", None, PATH)
    assert (problem.file, problem.line) == (PATH, 1)
    assert problem.message.startswith("It died, at a line that is not known. ")


def test_every_signal_has_a_name_or_a_number():
    for number in range(1, signal.NSIG):
        assert how_it_ended(number)[0] == "crashed"
