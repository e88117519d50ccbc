"""Whatever an editor and another tool do, in whatever order: each question is answered once, nothing stale is shown.

A real server with real workers, used by many runs; at the end of each it holds nothing of it. Environment variables:

- MASE_FUZZ_STEPS: how many steps to take, at random, instead of the few of every test run.
- MASE_FUZZ_SEED: where they begin.
- MASE_FUZZ_REPLAY: steps to play once, as a failure printed them.
"""

from __future__ import annotations

import json
import os

import pytest
from fuzz_driver import MOST, NAMES, Servers, many, replay
from fuzz_steps import STEPS, Step
from fuzz_texts import FAULTS
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

NUMBERS = st.integers(0, MOST)
ONE_STEP = st.tuples(st.sampled_from(NAMES), NUMBERS, NUMBERS, NUMBERS)
#: Of the run that every `make test` does.
RUNS, LENGTH, SHORT = 10, 60, ("pull", "plain")


@pytest.fixture(scope="module")
def servers():
    """Servers that end with the module, in order."""
    made = Servers()
    yield made
    made.stop()


def machine(servers):
    """Runs over these servers, as hypothesis makes and simplifies them."""

    class Editor(RuleBasedStateMachine):
        run = None

        @initialize(style=st.sampled_from(SHORT))
        def begin(self, style):
            self.run = servers.begin(style)

        @rule(one=ONE_STEP)
        def step(self, one: Step):
            servers.step(self.run, one)

        def teardown(self):
            if self.run is not None:
                servers.finish(self.run)

    return Editor


@pytest.mark.timeout(900)
def test_whatever_is_done_every_question_is_answered_once_and_no_hint_is_stale(servers):
    at_random = bool(os.environ.get("MASE_SEARCH"))
    few = settings(
        max_examples=RUNS, stateful_step_count=LENGTH, deadline=None, derandomize=not at_random, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate], print_blob=False,
    )  # fmt: skip
    run_state_machine_as_test(machine(servers), settings=few)
    assert servers.runs >= RUNS
    assert servers.requests > servers.steps / 4


@pytest.mark.parametrize("style", SHORT)
def test_a_file_that_is_closed_while_its_mistake_is_traced_keeps_no_diagnostics(servers, style):
    mistake = list(FAULTS).index("mismatch")
    replay(style, [("settle", 0, 0, 0), ("break_it", 0, mistake, 0), ("save", 0, 0, 0), ("close", 0, 0, 0)], servers)


@pytest.mark.timeout(0)
@pytest.mark.skipif("MASE_FUZZ_STEPS" not in os.environ, reason="many steps, as in make nightly-fuzz: MASE_FUZZ_STEPS")
def test_as_many_steps_as_are_wanted():
    steps, seed = int(os.environ["MASE_FUZZ_STEPS"]), int(os.environ.get("MASE_FUZZ_SEED", "1"))
    failures = [failed for _, failed in many(steps, seed) if failed]
    assert not failures, "\n\n".join(failures)


@pytest.mark.skipif("MASE_FUZZ_REPLAY" not in os.environ, reason="plays the steps of a failure: MASE_FUZZ_REPLAY")
def test_the_steps_of_a_failure():
    replay(*json.loads(os.environ["MASE_FUZZ_REPLAY"]))


def test_every_step_is_done_in_a_run_of_some_length():
    assert set(STEPS) == set(NAMES)
