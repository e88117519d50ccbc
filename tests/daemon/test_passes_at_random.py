"""Whatever is done to a pipeline, in whatever order: what is shown is what its steps make, as a plain list tells."""

import asyncio

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from mase_server.daemon.changes import Changes
from mase_server.daemon.pipelines import PassError
from mase_server.protocol.arguments import Step

from .fake_child import PATH, FakeFile

GOOD = ("one", "two", "big")
REFUSED = ("fail", "late", "argument")
TITLES = st.sampled_from(["Net", "Other"])


class Pipelines(RuleBasedStateMachine):
    """A file with two models; `steps` and `undone` are what a person would write down."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.file = self.run(self._file())
        self.steps = {title: [] for title in self.file.titles}
        self.undone = {title: [] for title in self.file.titles}

    async def _file(self):
        return FakeFile("Net", "Other")

    def run(self, work):
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    def teardown(self):
        self.run(self.file.passes.shutdown())
        self.loop.close()

    def settled(self, work):
        """Do it, and wait until nothing runs any more; what it gave, or the error."""

        async def whole():
            try:
                return await work
            except (PassError, ValueError, asyncio.CancelledError) as error:
                return error
            finally:
                await self.file.rests()

        return self.run(whole())

    @rule(title=TITLES, name=st.sampled_from(GOOD))
    def apply(self, title, name):
        told = self.settled(self.file.passes.apply(PATH, title, Step(name)))
        assert isinstance(told, PassError) == self._has_failing(title)
        if not self._has_failing(title):
            self.steps[title].append(name)
            self.undone[title] = []

    @rule(title=TITLES, name=st.sampled_from(REFUSED))
    def apply_what_fails(self, title, name):
        if name == "late" and "big" in self.steps[title]:
            return  # what is not measured does not fail when it is measured
        assert isinstance(self.settled(self.file.passes.apply(PATH, title, Step(name))), PassError)

    @rule(title=TITLES)
    def undo(self, title):
        told = self.settled(self.file.passes.undo(PATH, title))
        assert isinstance(told, ValueError) == (not self.steps[title])
        self.undone[title][:0] = self.steps[title][-1:]
        self.steps[title] = self.steps[title][:-1]

    @rule(title=TITLES)
    def redo(self, title):
        told = self.settled(self.file.passes.redo(PATH, title))
        assert isinstance(told, ValueError) == (not self.undone[title])
        self.steps[title] += self.undone[title][:1]
        self.undone[title] = self.undone[title][1:]

    @rule(title=TITLES)
    def reset(self, title):
        self.settled(self.file.passes.reset(PATH, title))
        self.undone[title] = self.steps[title] + self.undone[title]
        self.steps[title] = []

    @rule(title=TITLES, names=st.lists(st.sampled_from([*GOOD, "fail"]), max_size=3))
    def replace(self, title, names):
        self.settled(self.file.passes.replace(PATH, title, [Step(name) for name in names]))
        self.steps[title], self.undone[title] = list(names), []

    @rule(tells=st.booleans())
    def save(self, tells):
        self.file.tells = tells
        self.settled(self._save())

    @rule()
    def lose_the_child(self):
        self.file.child.die()
        self.settled(self._save())

    async def _save(self):
        self.file.save()

    @rule(title=TITLES)
    def save_during_a_pass(self, title):
        if not self._has_failing(title):
            self.settled(self._save_during(title, "formats"))
            self.steps[title].append("one")
            self.undone[title] = []

    @rule(title=TITLES)
    def save_while_measuring(self, title):
        if not self._has_failing(title):
            self.settled(self._save_during(title, "errors"))
            self.steps[title].append("one")
            self.undone[title] = []

    async def _save_during(self, title, gate):
        child = self.file.child
        applying = await self._held(child, gate, title)
        self.file.save()
        await applying

    @rule(title=TITLES, gate=st.sampled_from(["formats", "errors"]))
    def cancel_a_pass(self, title, gate):
        self.settled(self._cancel(title, gate))

    async def _cancel(self, title, gate):
        child = self.file.child
        applying = await self._held(child, gate, title)
        applying.cancel()
        getattr(child, gate).set()
        await asyncio.wait((applying,))

    @precondition(lambda self: not any(map(self._has_failing, self.steps)))
    @rule(title=TITLES)
    def undo_a_pass_that_is_tried(self, title):
        self.settled(self._undo_tried(title))

    async def _undo_tried(self, title):
        child = self.file.child
        applying = await self._held(child, "formats", title)
        await self.file.passes.undo(PATH, title)
        child.formats.set()
        await asyncio.wait((applying,))
        assert applying.exception().kind == "cancelled"

    async def _held(self, child, gate, title):
        """A pass that waits at a gate of the child."""
        before = len(child.asked)
        getattr(child, gate).clear()
        applying = asyncio.create_task(self.file.passes.apply(PATH, title, Step("one")))
        await self.file.ear.until(lambda: len(child.asked) > before)
        return applying

    @rule(first=st.sampled_from([*GOOD, "fail"]), second=st.sampled_from(["undo", "redo", "reset"]), title=TITLES)
    def two_at_once(self, first, second, title):
        async def both():
            passes = self.file.passes
            work = passes.apply(PATH, title, Step(first)), getattr(passes, second)(PATH, title)
            await asyncio.gather(*work, return_exceptions=True)

        self.settled(both())
        told = self.file.passes.tell(PATH, title)  # whichever came first
        self.steps[title], self.undone[title] = ([text[:-2] for text in told[key]] for key in ("steps", "undone"))

    def _has_failing(self, title):
        return "fail" in self.steps[title]

    @invariant()
    def the_pipelines_are_as_written_down(self):
        for title in self.steps:
            told = self.file.passes.tell(PATH, title)
            assert [told["steps"], told["undone"]] == [
                [f"{name}()" for name in names[title]] for names in (self.steps, self.undone)
            ]

    @invariant()
    def what_is_shown_is_what_the_steps_make(self):
        for index, (title, names) in enumerate(self.steps.items()):
            kept = names[: names.index("fail")] if "fail" in names else names
            assert self.file.shown(index) == ".".join(["f32", *kept]), title

    @invariant()
    def there_is_a_warning_for_each_model_with_a_failing_step(self):
        problems = self.file.store.view(PATH).problems()
        assert len(problems) == sum(map(self._has_failing, self.steps))


TestPipelines = Pipelines.TestCase
TestPipelines.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


def test_the_machine_notices_an_undo_that_shows_what_was_shown_before(monkeypatch):
    shows = Changes._show
    monkeypatch.setattr(Changes, "_show", lambda self, *given: given[2] and shows(self, *given))
    quick = settings(max_examples=20, deadline=None, phases=[Phase.generate], database=None)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Pipelines, settings=quick)
