"""Pipelines of a file whose child is played: what is shown, what is kept, and what is told."""

import asyncio
import re
from dataclasses import replace

import pytest

from mase_server.daemon.pipelines import PassError
from mase_server.protocol.arguments import Step

from .fake_child import PATH, FakeFile

ONE, TWO, FAIL = Step("one"), Step("two", {"width": 8}), Step("fail")


async def applied(*steps, **options):
    file = FakeFile(**options)
    for step in steps:
        await file.passes.apply(PATH, None, step)
    return file


async def test_an_applied_pass_is_shown_with_its_formats_before_its_errors_are_known():
    file = FakeFile()
    file.child.errors.clear()
    answer = asyncio.create_task(file.passes.apply(PATH, None, ONE))
    await file.becomes("f32.one")
    (model,) = file.store.view(PATH).models()
    assert (model.transform["texts"], model.transform["complete"]) == (["one()"], False)
    assert not answer.done()
    file.child.errors.set()
    told = await answer
    assert told == {"model": "Net", "steps": ["one()"], "undone": [], "summary": {"sqnr": 40.0}, "problem": None,
                    "complete": True, "running": False}  # fmt: skip
    assert (PATH, "Net", "formats", 0.5) in file.ear.said
    assert (PATH, "Net") in file.ear.said


async def test_the_original_value_stays_known():
    file = await applied(ONE)
    (site,) = file.store.view(PATH).sites(1, 1)
    assert (site.values[0].value, site.values[0].original) == (["f32.one", [2], None], ["f32", [2], None])
    await file.passes.undo(PATH, None)
    (site,) = file.store.view(PATH).sites(1, 1)
    assert (site.values[0].value, site.values[0].original) == (["f32", [2], None], None)


async def test_undo_and_redo_of_what_was_seen_ask_nobody():
    file = await applied(ONE, TWO)
    asked = len(file.child.asked)
    for change, value in [("undo", "f32.one"), ("undo", "f32"), ("redo", "f32.one"), ("redo", "f32.one.two")]:
        await getattr(file.passes, change)(PATH, None)
        assert file.shown() == value
    assert len(file.child.asked) == asked


async def test_redo_of_what_was_not_yet_measured_goes_on_measuring():
    file = FakeFile()
    file.child.errors.clear()
    answer = asyncio.create_task(file.passes.apply(PATH, None, ONE))
    await file.becomes("f32.one")
    assert (await file.passes.undo(PATH, None))["running"] is False
    assert (await answer)["steps"] == []
    told = await file.passes.redo(PATH, None)
    assert (told["running"], told["complete"], file.shown()) == (True, False, "f32.one")
    file.child.errors.set()
    await file.rests()
    assert file.passes.tell(PATH)["summary"] == {"sqnr": 40.0}


async def test_undo_tells_what_redo_would_bring_back():
    file = await applied(ONE, TWO)
    await file.passes.undo(PATH, None)
    assert (await file.passes.undo(PATH, None))["undone"] == ["one()", "two(width=8)"]
    assert (await file.passes.redo(PATH, None))["steps"] == ["one()"]


async def test_reset_can_be_redone_step_by_step():
    file = await applied(ONE, TWO)
    told = await file.passes.reset(PATH, None)
    assert (told["steps"], told["undone"], file.shown()) == ([], ["one()", "two(width=8)"], "f32")
    await file.passes.redo(PATH, None)
    assert file.shown() == "f32.one"


async def test_a_new_pass_forgets_what_was_undone():
    file = await applied(ONE, TWO)
    await file.passes.undo(PATH, None)
    assert (await file.passes.apply(PATH, None, Step("three")))["undone"] == []


async def test_nothing_to_undo_or_redo_is_said():
    file = FakeFile()
    with pytest.raises(ValueError, match=r"^there is nothing to undo: no pass is applied to Net$"):
        await file.passes.undo(PATH, None)
    with pytest.raises(ValueError, match=r"^there is nothing to redo on Net$"):
        await file.passes.redo(PATH, None)


async def test_a_pipeline_is_replayed_at_every_save_and_its_errors_follow():
    file = await applied(ONE, TWO)
    for _ in range(2):
        file.save()
        assert file.asked == {"Net": (ONE, TWO)}
        assert file.shown() == "f32.one.two"
        await file.rests()
        assert file.passes.tell(PATH)["complete"]
    assert [method for method, _ in file.child.asked][:1] == ["transform"]


async def test_a_pipeline_is_replayed_where_the_trace_does_not_tell_formats():
    file = await applied(ONE, tells=False)
    file.save()
    assert file.shown() == "f32"
    await file.becomes("f32.one")


async def test_undo_after_a_save_asks_the_child_again():
    file = await applied(ONE, TWO)
    file.save()
    await file.passes.undo(PATH, None)
    assert file.shown() == "f32.one"


async def test_undo_while_a_trace_runs_is_what_is_shown_after_it():
    file = await applied(ONE, TWO)
    file.begin()
    undone = asyncio.create_task(file.passes.undo(PATH, None))
    await asyncio.sleep(0)
    file.finish()
    await undone
    await file.becomes("f32.one")
    assert file.passes.tell(PATH)["steps"] == ["one()"]


@pytest.mark.parametrize("step", ["fail", "late", "silent", "argument"])
async def test_a_pass_that_fails_is_not_kept_and_nothing_is_lost(step):
    file = await applied(ONE, TWO)
    await file.passes.undo(PATH, None)
    before = file.passes.tell(PATH)
    with pytest.raises(PassError) as failed:
        await file.passes.apply(PATH, None, Step(step))
    assert failed.value.kind == ("argument" if step == "argument" else "pass")
    await file.rests()
    assert file.passes.tell(PATH) == before
    assert file.shown() == "f32.one"


async def test_the_error_of_a_pass_is_the_childs_own_text():
    file = await applied(ONE)
    with pytest.raises(PassError, match=r"^fail failed at step 2$"):
        await file.passes.apply(PATH, None, FAIL)
    with pytest.raises(PassError, match=r"^width is -1, at least 1 is needed$"):
        await file.passes.apply(PATH, None, Step("argument"))


async def test_what_is_too_big_to_be_measured_keeps_its_formats_and_says_why():
    file = FakeFile()
    told = await file.passes.apply(PATH, None, Step("big"))
    assert (told["steps"], told["complete"], file.shown()) == (["big()"], True, "f32.big")
    settings = "(settings mase.passes.seconds and mase.limits.memory)"
    assert told["problem"] == f"the model takes 9 GiB, the limit is 4 GiB {settings}"
    assert file.store.view(PATH).problems() == []


async def test_what_is_too_big_to_be_run_at_all_is_not_kept():
    file = await applied(ONE)
    with pytest.raises(PassError, match="9 GiB") as failed:
        await file.passes.apply(PATH, None, Step("heavy"))
    assert (failed.value.kind, file.shown(), file.passes.tell(PATH)["steps"]) == ("limit", "f32.one", ["one()"])


async def test_a_step_that_fails_after_a_save_stays_and_is_a_warning_at_the_class():
    file = await applied(ONE)
    await file.passes.replace(PATH, None, [ONE, FAIL, TWO])
    await file.rests()
    for _ in range(2):
        assert file.passes.tell(PATH)["steps"] == ["one()", "fail()", "two(width=8)"]
        assert file.shown() == "f32.one"
        (problem,) = file.store.view(PATH).problems()
        place = (problem.line, problem.column, problem.end_line, problem.end_column)
        assert (problem.severity, problem.code, place) == ("warning", "pass-failed", (1, 6, 1, 9))
        assert problem.message.startswith("Net: fail failed at step 2")
        file.save()
        await file.rests()
    await file.passes.reset(PATH, None)
    assert file.store.view(PATH).problems() == []


async def test_the_warning_of_an_older_text_is_not_told():
    file = FakeFile()
    await file.passes.replace(PATH, None, [FAIL])
    entry = file.store.entry(PATH)
    assert len(entry.told) == 1
    assert replace(entry, stale=True).told == ()


async def test_a_pass_that_raised_without_telling_of_others_is_a_warning_too():
    file = FakeFile()
    await file.passes.replace(PATH, None, [Step("silent")])
    (problem,) = file.store.view(PATH).problems()
    assert problem.message.startswith("Net: the plain pass raised")


async def test_a_save_during_a_pass_begins_it_anew_on_the_new_text():
    file = FakeFile()
    first = file.child
    first.formats.clear()
    answer = asyncio.create_task(file.passes.apply(PATH, None, ONE))
    await first.hears("transform")
    file.save()
    assert (await answer)["steps"] == ["one()"]
    assert [params["model"] for params in first.cancelled] == ["Net"]
    assert file.shown() == "f32.one"


async def test_a_save_while_errors_are_measured_keeps_the_pass():
    file = FakeFile()
    file.child.errors.clear()
    answer = asyncio.create_task(file.passes.apply(PATH, None, ONE))
    await file.becomes("f32.one")
    file.begin()
    assert (await answer)["steps"] == ["one()"]
    file.finish()
    assert file.shown() == "f32.one"
    await file.rests()
    assert file.passes.tell(PATH)["complete"]


async def test_a_child_that_dies_during_a_pass_is_an_error_and_the_next_try_traces_first():
    file = await applied(ONE)
    file.child.formats.clear()
    asked = len(file.child.asked)
    answer = asyncio.create_task(file.passes.apply(PATH, None, TWO))
    await file.ear.until(lambda: len(file.child.asked) == asked + 1)
    file.child.die()
    with pytest.raises(PassError, match=r"net\.py ended meanwhile") as failed:
        await answer
    assert (failed.value.kind, file.shown(), file.passes.tell(PATH)["steps"]) == ("gone", "f32.one", ["one()"])
    await file.passes.apply(PATH, None, TWO)
    assert (file.generation, file.shown()) == (2, "f32.one.two")


async def test_a_child_that_is_ended_for_want_of_memory_begins_the_pass_anew():
    file = FakeFile()
    file.child.formats.clear()
    answer = asyncio.create_task(file.passes.apply(PATH, None, ONE))
    await file.child.hears("transform")
    file.child.die(retired=True)
    assert (await answer)["steps"] == ["one()"]
    assert (file.generation, file.shown()) == (2, "f32.one")


async def test_a_child_that_dies_while_errors_are_measured_leaves_the_formats():
    file = FakeFile()
    file.child.errors.clear()
    answer = asyncio.create_task(file.passes.apply(PATH, None, ONE))
    await file.becomes("f32.one")
    file.child.die()
    told = await answer
    assert (told["steps"], told["complete"], told["problem"]) == (["one()"], True, "it has ended")


async def test_cancelling_the_request_takes_the_pass_back():
    file = await applied(ONE)
    file.child.errors.clear()
    answer = asyncio.create_task(file.passes.apply(PATH, None, TWO))
    await file.becomes("f32.one.two")
    answer.cancel()
    await asyncio.wait((answer,))
    assert (answer.cancelled(), file.shown(), file.passes.tell(PATH)["steps"]) == (True, "f32.one", ["one()"])
    await file.rests()
    assert [len(params["steps"]) for params in file.child.cancelled] == [2]


async def test_undo_during_a_pass_cancels_it():
    file = await applied(ONE)
    file.child.formats.clear()
    asked = len(file.child.asked)
    answer = asyncio.create_task(file.passes.apply(PATH, None, TWO))
    await file.ear.until(lambda: len(file.child.asked) == asked + 1)
    told = await file.passes.undo(PATH, None)
    with pytest.raises(PassError, match=r"^two was cancelled; nothing has changed\.$") as cancelled:
        await answer
    assert cancelled.value.kind == "cancelled"
    assert (told["steps"], file.shown()) == (["one()"], "f32.one")


async def test_cancelling_a_measurement_keeps_what_is_known():
    file = await applied(ONE)
    file.begin()
    file.finish()
    file.child.errors.clear()
    await file.child.hears("transform")
    file.passes.cancel(PATH)
    await file.rests()
    told = file.passes.tell(PATH)
    assert (told["complete"], told["problem"], file.shown()) == (True, "Measuring it was cancelled.", "f32.one")


async def test_two_passes_one_after_the_other_measure_only_the_last():
    file = FakeFile()
    file.child.errors.clear()
    first = asyncio.create_task(file.passes.apply(PATH, None, ONE))
    await file.becomes("f32.one")
    second = asyncio.create_task(file.passes.apply(PATH, None, TWO))
    assert (await first)["steps"] in (["one()"], ["one()", "two(width=8)"])
    file.child.errors.set()
    assert (await second)["steps"] == ["one()", "two(width=8)"]
    assert [len(params["steps"]) for params in file.child.cancelled] == [1]


async def test_models_of_one_file_have_pipelines_of_their_own():
    file = FakeFile("Net", "Other", "Net")
    asked = [("Other", ONE), ("Net #2", TWO), (None, FAIL)]
    await asyncio.gather(*(file.passes.apply(PATH, title, step) for title, step in asked), return_exceptions=True)
    assert [file.shown(index) for index in range(3)] == ["f32", "f32.one", "f32.two"]
    file.save()
    assert [file.shown(index) for index in range(3)] == ["f32", "f32.one", "f32.two"]
    await file.passes.undo(PATH, "Other")
    assert [file.shown(index) for index in range(3)] == ["f32", "f32", "f32.two"]


async def test_a_model_that_comes_back_has_its_pipeline_again():
    file = await applied(ONE)
    file.names = ("Renamed",)
    file.save()
    assert (file.shown(), file.passes.tell(PATH)["steps"]) == ("f32", [])
    file.names = ("Net",)
    file.save()
    assert file.shown() == "f32.one"


async def test_a_model_that_is_not_there_is_named_with_those_that_are():
    file = FakeFile("Net", "Other")
    text = f"no model 'Nett' is shown in {PATH}; did you mean 'Net'? It has Net, Other"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        await file.passes.apply(PATH, "Nett", ONE)


SETTINGS = [
    ({"Net": ("one()",)}, ["f32.one", "f32", "f32.one", "f32"]),
    ({"Net #2": ("one()",), "Net": ("two()",)}, ["f32.two", "f32", "f32.one", "f32"]),
    ({"net.py": ("one()",)}, ["f32.one", "f32.one", "f32.one", "f32"]),
    ({"*.py": ("one()", "two()")}, ["f32.one.two", "f32.one.two", "f32.one.two", "f32"]),
    ({"other.py": ("one()",), "Rest": ("two()",)}, ["f32", "f32", "f32", "f32.two"]),
    ({"Net": ("no step",)}, ["f32", "f32", "f32", "f32"]),
]


@pytest.mark.parametrize(("settings", "expected"), SETTINGS)
async def test_settings_name_models_or_files(settings, expected):
    file = FakeFile("Net", "Other", "Net", "Rest", settings=settings)
    for index, value in enumerate(expected):
        await file.becomes(value, index)
    await file.rests()
    assert [file.shown(index) for index in range(4)] == expected


async def test_what_a_person_does_comes_on_top_of_settings_and_replaces_them():
    file = FakeFile(settings={"Net": ("one()",)})
    assert file.passes.settings_form(PATH) == {"Net": ["one()"]}
    await file.passes.apply(PATH, None, TWO)
    assert file.shown() == "f32.one.two"
    assert file.passes.settings_form(PATH) == {"Net": ["one()", "two(width=8)"]}
    await file.passes.reset(PATH, None)
    file.save()
    assert (file.shown(), file.passes.settings_form(PATH)) == ("f32", {})


async def test_an_untrusted_folder_is_refused():
    file = await applied(ONE)
    file.settings = type(file.settings)(trusted=False)
    with pytest.raises(PassError) as refused:
        await file.passes.apply(PATH, None, TWO)
    assert refused.value.kind == "untrusted"
    assert file.passes.tell(PATH)["steps"] == ["one()"]


async def test_the_code_is_that_of_the_pipeline_or_of_the_original():
    file = await applied(ONE, TWO)
    assert await file.passes.code(PATH, None, original=False) == "Net.one.two"
    assert await file.passes.code(PATH, None, original=True) == "Net"


async def test_the_list_of_passes_is_there_after_a_trace_without_waiting():
    file = FakeFile()
    assert file.passes.listed(PATH) == []
    await file.passes.refresh(PATH)
    assert file.passes.listed(PATH) == file.passes.listed() == [{"name": "one", "menu": True}]
