"""The log: one JSON line for each event, with no text of anybody's, in bounded files and from a thread of its own."""

import json
import logging
import os
import stat
import subprocess
import sys
import threading

import pytest

from mase_server.telemetry import logs
from mase_server.telemetry.logs import SERVERS, Logs, folder_of, log_session
from mase_server.telemetry.metrics import Measured, Metrics
from mase_server.telemetry.records import REQUEST, current_request, describe_exception, log_event, path_in_log

CANARY = "canary_4711"
OURS = logging.getLogger("mase_server.somewhere")


@pytest.fixture
def lines(tmp_path):
    """Runs something under a log; the lines that its file has then."""

    def run(work, level="warning"):
        with log_session("test", level, tmp_path) as log:
            work()
        return [json.loads(line) for line in log.path.read_text().splitlines()] if log.path.exists() else []

    return run


def test_an_event_is_one_line_with_time_level_component_and_its_facts(lines):
    [line] = lines(lambda: log_event("trace", path="a/net.py", seconds=0.1234567891, stack=["net.py:3 forward"]))
    assert line.pop("time").endswith("Z")
    expected = {"level": "info", "component": f"server {os.getpid()}", "event": "trace", "path": "a/net.py"}
    assert line == {**expected, "seconds": 0.123457, "stack": ["net.py:3 forward"]}


def test_what_is_put_into_a_message_is_not_in_the_file_but_on_standard_error(lines, capfd):
    [line] = lines(lambda: OURS.warning("setting %s is %r", "mase.x", CANARY))
    assert (line["event"], line["from"], line["text"]) == ("message", OURS.name, "setting %s is %r")
    assert f"WARNING mase_server.somewhere: setting mase.x is '{CANARY}'" in capfd.readouterr().err


def test_an_exception_is_told_by_its_type_and_places_without_its_text_or_source(lines):
    def fail():
        try:
            raise KeyError(CANARY)  # canary_4711 stands in this line, too
        except KeyError:
            OURS.exception("it failed")

    [line] = lines(fail)
    assert line["error"]["type"] == "KeyError"
    assert [frame.split(":")[0] for frame in line["error"]["frames"]] == ["test_log.py"]
    assert CANARY not in json.dumps(line)


def test_the_system_s_errors_have_their_number():
    assert describe_exception(OSError(28, "No space left on device", f"/home/{CANARY}"))["errno"] == 28


def test_of_libraries_the_file_has_warnings_without_their_words(lines):
    def speak():
        logging.getLogger("pygls").warning(f"received {CANARY}")
        logging.getLogger("pygls").info("received something")

    [line] = lines(speak, "info")
    assert (line["from"], line["text"]) == ("pygls", "test_log.speak")


def test_a_value_that_is_not_plain_is_told_by_its_type(lines):
    class Secret:
        def __repr__(self):
            return CANARY

    [line] = lines(lambda: log_event("odd", value=Secret(), inner={"x": [Secret(), None, 3]}))
    assert (line["value"], line["inner"]) == ("Secret", {"x": ["Secret", None, 3]})


@pytest.mark.parametrize(
    ("level", "in_file", "for_people"),
    [(None, [20, 30, 40], [30, 40]), ("debug", [10, 20, 30, 40], [10, 20, 30, 40]), ("error", [20, 30, 40], [40])],
)
def test_the_level_is_for_people_and_the_file_has_what_happened(level, in_file, for_people, tmp_path, capfd):
    log = Logs("test", "warning", tmp_path)
    log.start()
    log.level("info")
    log.level(level)
    for number in (10, 20, 30, 40):
        log_event(f"n{number}", number)
    log.stop()
    assert [json.loads(line)["event"] for line in log.path.read_text().splitlines()] == [f"n{each}" for each in in_file]
    assert [line.split()[1] for line in capfd.readouterr().err.splitlines()] == [f"n{each}" for each in for_people]


def test_a_log_that_has_ended_leaves_logging_as_it_was(lines):
    root = logging.getLogger()
    before = (root.level, list(root.handlers), logging.getLogger("mase_server").level)
    lines(lambda: log_event("x"))
    assert (root.level, list(root.handlers), logging.getLogger("mase_server").level) == before


def test_only_the_owner_may_read_the_files(tmp_path):
    with log_session("test", "info", tmp_path) as log:
        log_event("x")
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder_of(tmp_path).stat().st_mode) == 0o700


def test_a_file_is_turned_over_and_no_more_than_two_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "FILE_BYTES", 2000)
    with log_session("test", "info", tmp_path) as log:
        for number in range(200):
            log_event("step", number=number)
    kept = sorted(folder_of(tmp_path).iterdir())
    assert [path.name for path in kept] == [log.path.name, f"{log.path.name}.1"]
    assert all(path.stat().st_size <= 2000 for path in kept)
    assert json.loads(log.path.read_text().splitlines()[-1])["number"] == 199


def test_the_files_of_servers_of_long_ago_are_thrown_away(tmp_path):
    folder = folder_of(tmp_path)
    folder.mkdir()
    for number in range(SERVERS + 3):
        for ending in ("jsonl", "jsonl.1"):
            path = folder / f"old-{number:02}.{ending}"
            path.write_text("{}\n")
            os.utime(path, (1000 + number, 1000 + number))
    with log_session("test", "info", tmp_path) as log:
        log_event("x")
    names = {path.name.partition(".")[0] for path in folder.iterdir()}
    assert names == {f"old-{number:02}" for number in range(4, SERVERS + 3)} | {log.path.stem}


def test_a_full_disk_costs_lines_and_nothing_else(tmp_path, capfd):
    class Full:
        def write(self, text):
            raise OSError(28, "No space left on device")

        def flush(self):
            pass

        def tell(self):
            return 0

        seek = close = lambda *given: 0

    log = Logs("test", "warning", tmp_path)
    log._file._open = Full
    log.start()
    log_event("x")
    log_event("y", logging.WARNING)
    log.stop()
    assert log.dropped == 2
    assert capfd.readouterr().err == "WARNING y\n"


def test_a_folder_that_cannot_be_made_leaves_standard_error(tmp_path, capfd):
    (tmp_path / "state").write_text("a file")
    with log_session("test", "warning", tmp_path / "state"):
        log_event("y", logging.WARNING)
    said = f"WARNING mase_server: no log is kept: {tmp_path / 'state'} is no folder; remove it\nWARNING y\n"
    assert capfd.readouterr().err == said


def test_who_logs_does_not_wait_for_the_disk_and_what_waits_is_bounded(tmp_path, monkeypatch):
    """The writer is held up at its first line; all others are only put into the queue, as far as they fit."""
    monkeypatch.setattr(logs, "WAITING", 50)
    reached, released = threading.Event(), threading.Event()
    log = Logs("test", "error", tmp_path)
    emit = log._file.emit

    def held(record):
        reached.set()
        released.wait()
        emit(record)

    log._file.emit = held
    log.start()
    log_event("first")
    reached.wait()
    for number in range(80):
        log_event("next", number=number)
    dropped = log.dropped
    released.set()
    log.stop()
    assert dropped == 30
    assert len(log.path.read_text().splitlines()) == 51


def test_a_request_has_one_name_for_all_that_is_done_for_it(lines):
    def ask():
        with Measured(Metrics(), "l", "mase/retrace", lambda: "net.py"):
            log_event("asked", request=current_request("s"))
            log_event("inner")
        log_event("outside")

    asked, inner, request, outside = lines(ask, "debug")
    assert asked["request"] == inner["request"] == request["request"]
    assert request["request"].startswith("l")
    assert (request["method"], request["path"], request["outcome"]) == ("mase/retrace", "net.py", "answered")
    assert "request" not in outside
    assert REQUEST.get() == ""


def test_a_quick_request_is_for_debug_and_one_that_failed_is_told_by_the_type_of_its_error(lines):
    metrics = Metrics()

    def ask():
        with Measured(metrics, "l", "quick", lambda: ""):
            pass
        with pytest.raises(ValueError, match=CANARY), Measured(metrics, "l", "wrong", lambda: ""):
            raise ValueError(CANARY)

    [line] = lines(ask)
    assert (line["method"], line["outcome"]) == ("wrong", "ValueError")
    told = metrics.requests.told()
    assert {name: (each["count"], each["errors"]) for name, each in told.items()} == {"quick": (1, 0), "wrong": (1, 1)}


@pytest.mark.parametrize(
    ("path", "folder", "told"),
    [("/w/a/net.py", "/w", "a/net.py"), ("/other/net.py", "/w", "net.py"), ("/w/net.py", "", "net.py")],
)
def test_a_path_is_told_below_its_workspace_or_by_its_name(path, folder, told):
    assert path_in_log(path, folder) == told


def test_without_a_log_nothing_is_written():
    said = "import logging; from mase_server.telemetry.records import log_event; log_event('died', logging.WARNING)"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
