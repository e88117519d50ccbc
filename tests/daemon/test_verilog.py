"""Hardware of a file whose child is played: what is remembered, what follows a save, and what is told meanwhile."""

import asyncio

import pytest

from mase_server.building import EMISSION_KEYS
from mase_server.daemon.pipelines import PassError
from mase_server.daemon.status import FolderSettings
from mase_server.protocol.arguments import Step

from .fake_child import PATH, FakeFile

ONE, TWO = Step("one"), Step("two")


async def emitted(*names, **build):
    file = FakeFile(*names)
    await file.verilog.emit(PATH, None, {"multipliers": 4, **build})
    return file


def text(file, title=None):
    return file.verilog.emission(PATH, title).told["text"]


async def settles(file, title=None):
    """Wait until the emission is one of the present text."""
    await file.ear.until(lambda: not file.verilog.emission(PATH, title).stale)


def asked(file):
    return [params for method, params in file.child.asked if method == "verilog"]


def model_view(file, index=0):
    return file.store.snapshot(PATH).models(PATH)[index]


def node_view(file, row=0):
    return file.store.snapshot(PATH).node(row)


def codes(file):
    return [(problem.line, problem.severity, problem.code) for problem in file.store.view(PATH).problems()]


def messages(file):
    return [problem.message for problem in file.store.view(PATH).problems()]


def related(file):
    problems = file.store.view(PATH).problems()
    return [[(place["line"], place["message"]) for place in problem.related] for problem in problems]


async def test_a_build_is_remembered_once_it_was_emitted():
    file = FakeFile()
    before = file.verilog.tell(PATH)
    assert (before["build"], before["emission"], before["stale"]) == (None, None, False)
    assert before["default"]["precision"] == "fixed(8,auto)"
    told = await file.verilog.emit(PATH, None, {"multipliers": 4})
    assert told.keys() == EMISSION_KEYS.keys()
    assert told["text"] == "Net 4 of text 1"
    now = file.verilog.tell(PATH)
    assert (now["model"], now["build"]["multipliers"]) == ("Net", 4)
    assert (now["stale"], now["running"], now["problem"]) == (False, False, "")
    assert now["emission"] == {key: value for key, value in told.items() if key != "text"}


async def test_what_is_not_said_of_a_build_is_as_the_settings_have_it():
    file = FakeFile()
    file.settings = FolderSettings(trusted=True, build=file.settings.build.from_wire({"precision": "fixed(6,3)"}))
    await file.verilog.emit(PATH, None, {"multipliers": 9})
    (params,) = asked(file)
    assert (params["build"]["precision"], params["build"]["multipliers"]) == ("fixed(6,3)", 9)


async def test_without_a_build_it_is_the_one_that_was_asked_for_last():
    file = await emitted()
    file.save()
    await settles(file)
    assert (await file.verilog.emit(PATH, None))["text"] == "Net 4 of text 2"


async def test_a_build_that_cannot_be_changes_nothing_and_asks_nobody():
    file = await emitted()
    for given_, why in [({"interval": 0}, "it takes a whole number from 1"), ({"wat": 1}, "a build has no wat")]:
        with pytest.raises(ValueError, match=why):
            await file.verilog.emit(PATH, None, given_)
    assert len(asked(file)) == 1
    assert file.verilog.tell(PATH)["build"]["multipliers"] == 4


async def test_a_build_that_the_child_refuses_is_not_remembered():
    file = FakeFile()
    file.no_hardware = "'fixed(99)' is no format"
    with pytest.raises(PassError, match="is no format"):
        await file.verilog.emit(PATH, None, {"precision": "fixed(99)"})
    assert file.verilog.tell(PATH)["build"] is None
    file.save()
    assert asked(file) == []


async def test_what_is_known_is_not_asked_for_again():
    file = await emitted()
    await file.verilog.emit(PATH, None, {"multipliers": 7})
    await file.verilog.emit(PATH, None, {"multipliers": 4})
    assert text(file) == "Net 4 of text 1"
    assert [params["build"]["multipliers"] for params in asked(file)] == [4, 7]


async def test_a_save_emits_the_text_again_once_the_trace_has_ended():
    file = await emitted()
    file.begin()
    assert file.verilog.emission(PATH).stale
    assert (text(file), len(asked(file))) == ("Net 4 of text 1", 1)
    file.finish()
    assert (file.verilog.tell(PATH)["stale"], file.verilog.tell(PATH)["running"]) == (True, True)
    await settles(file)
    (params,) = asked(file)
    assert (text(file), params["folder"], "vectors" in params) == ("Net 4 of text 2", "", False)
    assert ("verilog", PATH, "Net") in file.ear.said


async def test_the_last_text_stays_and_is_stale_while_the_file_does_not_trace():
    file = await emitted()
    file.fail()
    told = file.verilog.tell(PATH)
    assert (told["stale"], told["running"], text(file)) == (True, False, "Net 4 of text 1")
    file.save()
    await settles(file)
    assert text(file) == "Net 4 of text 3"


async def test_a_newer_save_stops_what_is_made_of_the_older_one():
    file = await emitted()
    file.begin()
    file.finish()
    file.child.hardware.clear()
    await file.child.hears("verilog")
    before = file.child
    file.begin()
    await file.ear.until(lambda: before.cancelled)
    file.finish()
    await settles(file)
    assert text(file) == "Net 4 of text 3"


async def test_what_cannot_be_made_of_a_new_text_is_a_warning_and_the_last_one_stays():
    file = await emitted()
    file.no_hardware = "quantize: there is nothing to round."
    file.save()
    await file.ear.until(lambda: file.verilog.tell(PATH)["problem"])
    told = file.verilog.tell(PATH)
    assert (told["stale"], told["running"], text(file)) == (True, False, "Net 4 of text 1")
    assert codes(file) == [(1, "warning", "verilog-failed")]
    why = (
        "Net: the changed model gives no hardware: quantize: there is nothing to round. The last hardware stays shown."
    )
    assert messages(file) == [why]
    file.no_hardware = None
    file.save()
    assert codes(file) == []
    await settles(file)
    assert text(file) == "Net 4 of text 3"


async def test_rows_of_another_text_are_never_told():
    file = await emitted()
    (operation,) = node_view(file).hardware
    assert (operation["name"], operation["module"]) == ("fc", "fixed_linear")
    assert model_view(file).hardware.told["totals"] == {"multipliers": 4}
    file.begin()
    assert node_view(file).hardware == ()
    file.finish()
    assert node_view(file).hardware == ()
    assert model_view(file).hardware.stale
    assert model_view(file).hardware.told["totals"] == {"multipliers": 4}
    await settles(file)
    assert len(node_view(file).hardware) == 1
    assert not model_view(file).hardware.stale


async def test_another_pipeline_emits_again_and_undo_asks_nobody():
    file = await emitted()
    await file.passes.apply(PATH, None, ONE)
    await settles(file)
    assert text(file) == "Net 4 one of text 1"
    await file.passes.undo(PATH, None)
    assert (text(file), file.verilog.emission(PATH).stale) == ("Net 4 of text 1", False)
    await file.passes.redo(PATH, None)
    assert (text(file), file.verilog.emission(PATH).stale) == ("Net 4 one of text 1", False)
    assert len(asked(file)) == 2


async def test_errors_that_arrive_for_the_same_pipeline_emit_nothing_again():
    file = await emitted()
    file.child.errors.clear()
    answer = asyncio.create_task(file.passes.apply(PATH, None, ONE))
    await file.becomes("f32.one")
    await settles(file)
    file.child.errors.set()
    await answer
    assert len(asked(file)) == 2


async def test_errors_that_arrive_while_hardware_is_made_do_not_begin_it_anew():
    file = await emitted()
    file.child.errors.clear()
    file.child.hardware.clear()
    answer = asyncio.create_task(file.passes.apply(PATH, None, ONE))
    await file.ear.until(lambda: len(asked(file)) == 2)
    file.child.errors.set()
    await answer
    file.child.hardware.set()
    await settles(file)
    assert (len(asked(file)), file.child.cancelled) == (2, [])


async def test_a_pass_that_is_applied_while_a_person_waits_counts_in_the_end():
    file = FakeFile()
    file.child.hardware.clear()
    answer = asyncio.create_task(file.verilog.emit(PATH, None))
    await file.child.hears("verilog")
    await file.passes.apply(PATH, None, ONE)
    file.child.hardware.set()
    assert (await answer)["steps"] == []
    await settles(file)
    assert text(file) == "Net None one of text 1"


async def test_while_the_newest_text_does_not_trace_nothing_is_of_it():
    file = await emitted()
    file.fail()
    await file.passes.apply(PATH, None, ONE)
    assert (len(asked(file)), file.verilog.emission(PATH).stale) == (1, True)
    told = await file.verilog.emit(PATH, None)
    assert told["text"] == "Net 4 one of text 1"
    assert (file.verilog.emission(PATH).stale, file.verilog.tell(PATH)["running"]) == (True, False)


async def test_with_a_step_that_cannot_be_applied_no_hardware_is_made():
    file = FakeFile()
    await file.passes.replace(PATH, None, [ONE, Step("fail"), TWO])
    with pytest.raises(PassError, match="because a pass before it failed") as refused:
        await file.verilog.emit(PATH, None)
    assert refused.value.kind == "pass"


async def test_a_save_while_a_person_waits_begins_it_anew():
    file = FakeFile()
    file.child.hardware.clear()
    answer = asyncio.create_task(file.verilog.emit(PATH, None, {"multipliers": 2}))
    await file.child.hears("verilog")
    file.save()
    assert (await answer)["text"] == "Net 2 of text 2"
    assert file.verilog.tell(PATH)["stale"] is False


async def test_a_file_that_is_saved_again_and_again_is_given_up_at_last():
    file = FakeFile()
    file.child.hardware.clear()
    answer = asyncio.create_task(file.verilog.emit(PATH, None))
    for _ in range(5):
        await file.child.hears("verilog")
        file.begin()
        file.finish()
        file.child.hardware.clear()
    with pytest.raises(PassError, match=r"^net.py was saved again and again meanwhile; nothing was emitted.$") as gone:
        await answer
    assert (gone.value.kind, file.verilog.tell(PATH)["build"]) == ("cancelled", None)


async def test_the_limits_are_those_of_the_folder():
    file = FakeFile()
    file.settings = FolderSettings(trusted=True, pass_seconds=17.0, memory_limit=3 << 30)
    await file.verilog.emit(PATH, None)
    (params,) = asked(file)
    assert (params["seconds"], params["memory"]) == (17.0, 3 << 30)


async def test_a_child_that_died_is_told_and_nothing_is_remembered():
    file = FakeFile()
    file.child.hardware.clear()
    answer = asyncio.create_task(file.verilog.emit(PATH, None))
    await file.child.hears("verilog")
    file.child.die()
    with pytest.raises(PassError, match=r"^The process that held the graphs of net.py ended meanwhile"):
        await answer
    assert file.verilog.tell(PATH)["build"] is None


async def test_who_gives_up_is_heard_by_the_child_and_nothing_is_remembered():
    file = FakeFile()
    file.child.hardware.clear()
    answer = asyncio.create_task(file.verilog.emit(PATH, None))
    await file.child.hears("verilog")
    answer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answer
    assert len(file.child.cancelled) == 1
    assert file.verilog.tell(PATH)["build"] is None
    assert ("verilog ended", PATH, "Net") in file.ear.said


async def test_progress_is_told_to_whoever_asked_and_a_save_is_quiet():
    file = await emitted()
    progress = [one for one in file.ear.said if isinstance(one, tuple) and one[0] == "verilog" and len(one) == 5]
    assert progress == [("verilog", PATH, "Net", "lowering", None)]
    file.ear.said.clear()
    file.save()
    await settles(file)
    assert not [one for one in file.ear.said if isinstance(one, tuple) and len(one) == 5]


async def test_what_is_forgotten_is_neither_shown_nor_made_again():
    file = await emitted()
    file.ear.said.clear()
    assert file.verilog.forget(PATH)
    assert file.ear.said[-1] == ("verilog", PATH, "Net")
    assert not file.verilog.forget(PATH)
    assert (file.verilog.tell(PATH)["build"], file.verilog.emission(PATH)) == (None, None)
    assert (model_view(file).hardware, node_view(file).hardware) == (None, ())
    file.save()
    assert asked(file) == []


async def test_forgetting_stops_what_is_made():
    file = await emitted()
    file.save()
    file.child.hardware.clear()
    await file.child.hears("verilog")
    file.verilog.forget(PATH)
    await file.ear.until(lambda: file.child.cancelled)


async def test_hardware_is_never_laid_over_a_trace_that_it_is_not_of():
    file = await emitted()
    # Nothing announced this one.
    file.verilog.interrupt = lambda path: None
    file.verilog.traced = lambda path: None
    file.save()
    assert (model_view(file).hardware.stale, node_view(file).hardware) == (True, ())


async def test_models_of_one_file_have_builds_of_their_own():
    file = FakeFile("Net", "Other")
    await file.verilog.emit(PATH, "Net", {"multipliers": 4})
    await file.verilog.emit(PATH, "Other", {"multipliers": 5})
    assert [node_view(file, row).hardware[0]["rows"] for row in (0, 1)] == [[0], [1]]
    file.save()
    await settles(file, "Net")
    await settles(file, "Other")
    assert (text(file, "Net"), text(file, "Other")) == ("Net 4 of text 2", "Other 5 of text 2")
    file.verilog.forget(PATH, "Net")
    assert text(file, "Other") == "Other 5 of text 2"
    assert [model_view(file, index).hardware is None for index in (0, 1)] == [True, False]


async def test_a_model_that_is_gone_from_the_text_keeps_its_last_hardware():
    file = await emitted("Net", "Other")
    file.names = ("Other",)
    file.save()
    assert (text(file, "Net"), file.verilog.emission(PATH, "Net").stale) == ("Net 4 of text 1", True)
    file.names = ("Net", "Other")
    file.save()
    await settles(file, "Net")
    assert text(file, "Net") == "Net 4 of text 3"


async def test_a_model_that_there_is_not_is_named_with_those_that_there_are():
    file = FakeFile("Net", "Other")
    with pytest.raises(ValueError, match=r"no model 'Wat' is shown in /w/net.py; it has Net, Other$"):
        await file.verilog.emit(PATH, "Wat")


async def test_a_pass_that_fails_is_told_once_though_no_hardware_can_be_made_either():
    file = await emitted()
    await file.passes.replace(PATH, None, [Step("fail")])
    file.save()
    await file.ear.until(lambda: file.verilog.tell(PATH)["problem"])
    assert codes(file) == [(1, "warning", "pass-failed")]


async def test_a_forward_that_fails_is_told_by_the_trace_alone():
    file = await emitted()
    file.no_hardware = "the forward of Net fails (RuntimeError: 3 and 4): mend it first"
    file.save()
    await file.ear.until(lambda: file.verilog.tell(PATH)["problem"])
    assert codes(file) == []


async def test_nodes_without_hardware_are_told_once_for_each_cause():
    file = FakeFile()
    why = "there is no component for fft"
    nodes = [("fft", 0), ("fft_1", 0), ("fft_2", 0), ("fft_3", 0), ("made", -1)]
    file.told = {"unsupported": [{"node": node, "operator": "fft", "why": why, "row": row} for node, row in nodes]}
    await file.verilog.emit(PATH, None)
    assert codes(file) == [(11, "information", "no-hardware")]
    assert messages(file) == ["Net: fft has no hardware (fft, fft_1, fft_2 and 1 more): there is no component for fft."]
    assert related(file) == [[(1, "fft has none either (made): there is no component for fft.")]]
    file.begin()
    assert codes(file) == []


async def test_what_one_call_becomes_and_what_names_other_nodes_is_one_cause():
    """A library's function that becomes several operators, and one operator whose reason names what it reads."""
    file = FakeFile("Net", "Other", "Third")
    missing = [("sort", 0, "no component for sort"), ("select", 0, "it depends on fc"), ("fft", 1, "none for fft"),
               ("select", 1, "it depends on sort_0"), ("select", 2, "it depends on select_1")]  # fmt: skip
    file.told = {"unsupported": [
        {"node": f"{operator}_{row}", "operator": operator, "why": why, "row": row} for operator, row, why in missing
    ]}  # fmt: skip
    await file.verilog.emit(PATH, "Net")
    assert len(codes(file)) == 1
    (places,) = related(file)
    assert len(places) == 4


async def test_two_causes_are_two_diagnostics():
    file = FakeFile("Net", "Other")
    missing = [("sort", 0), ("fft", 1)]
    file.told = {"unsupported": [
        {"node": operator, "operator": operator, "why": f"no component for {operator}", "row": row}
        for operator, row in missing
    ]}  # fmt: skip
    await file.verilog.emit(PATH, "Net")
    assert [message.split(" has ")[0] for message in messages(file)] == ["Net: sort", "Net: fft"]


async def test_a_model_without_any_hardware_is_told_at_what_lacks_it_alone():
    file = FakeFile()
    missing = {"node": "sort", "operator": "sort", "why": "no component for sort", "row": 0}
    file.told = {"unsupported": [missing], "operations": [], "text": "", "totals": {}}
    file.told["refusal"] = "no part of it has hardware"
    await file.verilog.emit(PATH, None)
    assert codes(file) == [(11, "information", "no-hardware")]


async def test_a_refusal_is_told_at_the_class_with_the_parts_that_can_be_built():
    file = FakeFile()
    refusal = "9000 multipliers are needed, and the limit is 8192"
    file.told = {"refusal": refusal, "text": "", "scopes": ["blocks.0", "blocks.1", "head", "stem"]}
    await file.verilog.emit(PATH, None)
    assert codes(file) == [(1, "information", "verilog-refused")]
    assert messages(file) == [f"Net: {refusal}. A part can be built alone: blocks.0, blocks.1, head and 1 more."]
    assert file.verilog.tell(PATH)["emission"]["refusal"] == refusal


async def test_nothing_is_told_of_hardware_that_nobody_asked_for():
    file = FakeFile()
    file.told = {"refusal": "too much"}
    file.save()
    assert codes(file) == []
    assert asked(file) == []


async def test_operations_that_come_in_pieces_are_put_together():
    file = FakeFile("Net", "Other")
    operations = [{"name": f"op{row}", "rows": rows} for row, rows in enumerate([[0], [0, 1], [1]])]
    file.told = {"operations": operations}
    assert (await file.verilog.emit(PATH, "Net"))["operations"] == operations
    assert [[each["name"] for each in file.verilog.emission(PATH, "Net").of_row(row)] for row in (0, 1, 2)] == [
        ["op0", "op1"],
        ["op1", "op2"],
        [],
    ]


async def test_what_cannot_be_read_is_an_error_of_our_own():
    file = await emitted()
    file.told = {"operations": [{"name": "fc"}]}
    file.save()
    await file.ear.until(lambda: file.verilog.tell(PATH)["problem"])
    assert file.verilog.tell(PATH)["problem"] == (
        "The worker's answer about the hardware of Net cannot be read: KeyError: 'rows'"
    )


async def test_a_child_that_dies_behind_a_save_is_told():
    file = await emitted()
    file.save()
    file.child.hardware.clear()
    await file.child.hears("verilog")
    file.child.die()
    await file.ear.until(lambda: file.verilog.tell(PATH)["problem"])
    assert file.verilog.tell(PATH)["problem"].startswith("The process that held the graphs of net.py ended meanwhile")


async def test_not_all_models_of_a_file_are_followed_at_the_same_moment():
    titles = ["Net", "Other", "Third"]
    file = FakeFile(*titles)
    for title in titles:
        await file.verilog.emit(PATH, title)
    file.save()
    file.child.hardware.clear()
    await file.ear.until(lambda: len(asked(file)) == 2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(asked(file)) == 2
    file.child.hardware.set()
    for title in titles:
        await settles(file, title)
    assert len(asked(file)) == 3


async def test_a_folder_that_is_not_trusted_is_refused():
    file = FakeFile()
    file.settings = FolderSettings(trusted=False)
    with pytest.raises(PassError) as refused:
        await file.verilog.emit(PATH, None)
    assert (refused.value.kind, asked(file)) == ("untrusted", [])


async def test_a_folder_of_somebody_else_is_refused_before_the_child_is_asked(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    file = FakeFile()
    with pytest.raises(PassError, match="holds files that were not written by mase-server"):
        await file.verilog.emit(PATH, None, folder=str(tmp_path))
    assert asked(file) == []
    told = await file.verilog.emit(PATH, None, folder=str(tmp_path), overwrite=True, vectors=7, inputs="/w/x.npz")
    (params,) = asked(file)
    assert (params["folder"], params["vectors"], params["inputs"]) == (str(tmp_path), 7, "/w/x.npz")
    assert told["folder"] == str(tmp_path)


async def test_a_folder_is_written_though_its_text_is_known(tmp_path):
    file = await emitted()
    told = await file.verilog.emit(PATH, None, folder=str(tmp_path / "out"))
    assert (told["folder"], len(asked(file))) == (str(tmp_path / "out"), 2)


async def test_shutting_down_stops_what_is_made():
    file = await emitted()
    file.save()
    file.child.hardware.clear()
    await file.child.hears("verilog")
    await file.verilog.shutdown()
    assert len(file.child.cancelled) == 1
