"""A program's handlers for our signals are taken and not used; all others are its own."""

import os
import signal

import pytest

from mase_server.tracing.execution.guard import signals_kept


def theirs(number, frame):
    raise AssertionError("the program's handler ran")


@pytest.mark.parametrize("name", ["SIGALRM", "SIGUSR1", "SIGUSR2"])
def test_our_handler_stays_and_the_program_is_told_what_it_expects(name):
    number, heard = getattr(signal, name), []
    before = signal.signal(number, lambda *_: heard.append(name))
    try:
        with signals_kept():
            assert signal.signal(number, theirs) == signal.SIG_DFL
            assert signal.signal(number, signal.SIG_IGN) is theirs
            os.kill(os.getpid(), number)
        assert heard == [name]
    finally:
        signal.signal(number, before)


def test_a_programs_alarm_never_rings_and_does_not_stop_ours():
    signal.setitimer(signal.ITIMER_REAL, 600)
    try:
        with signals_kept():
            assert signal.alarm(1) == 0
            assert signal.setitimer(signal.ITIMER_REAL, 0) == (0.0, 0.0)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 600
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 300
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def test_other_signals_and_timers_are_the_programs():
    before = signal.getsignal(signal.SIGTERM)
    with signals_kept():
        assert signal.signal(signal.SIGTERM, theirs) == before
        assert signal.getsignal(signal.SIGTERM) is theirs
        signal.signal(signal.SIGTERM, before)
        signal.setitimer(signal.ITIMER_VIRTUAL, 600)
        assert signal.setitimer(signal.ITIMER_VIRTUAL, 0)[0] > 0
    assert signal.getsignal(signal.SIGTERM) == before
