"""Hardware as an editor has it: actions, documents, both sides of the source map, figures. The daemon is the fake one.

Its hardware of `Net` has `fc` (lines 5 and 6) and `out` (line 8), from the two calls of `TWO`.
"""

import asyncio
from pathlib import Path

import pytest
from editing import capabilities
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.uris import to_fs_path

TWO = """\
# model Net
# nodes
class Net:
    def forward(self, x):  # => f32[B:2, 10]
        y = self.fc(x)  # => f32[B:2, 10]
        z = self.out(y)  # => f32[B:2, 10]
        return z  # => f32[B:2, 10]
"""
OTHER = """\

class Other:
    def forward(self, x):  # => f32[B:2, 10]
        y = self.first(x)  # => f32[B:2, 10]
        return y  # => f32[B:2, 10]
"""
SETTINGS = {"multipliers": 8}
CLASS, FC, OUT = 2, 4, 5


async def opened(editor, text=TWO):
    path = editor.folder / "net.py"
    editor.open(path, text)
    assert await editor.end_state(path) == "ready"
    return path


async def emit(editor, path, **more):
    return await editor.command("mase.emitVerilog", {"uri": path.as_uri(), "build": SETTINGS, "show": False, **more})


async def content(editor, uri):
    return (await editor.client.workspace_text_document_content_async(lsp.TextDocumentContentParams(uri))).text


async def save(editor, path, old, new):
    editor.retype(path, old, new)
    editor.save(path, new)
    return await editor.end_state(path)


def position(line, character=0):
    return {"line": line, "character": character}


async def counterparts(editor, uri, line, character=10):
    """[(uri, names, [(first line, last line)])]"""
    found = await editor.request("mase/counterparts", {"uri": uri, "position": position(line, character)})
    return [
        (each["uri"], list(each["names"]), [(area["start"]["line"], area["end"]["line"]) for area in each["ranges"]])
        for each in found
    ]


async def documents(new_editor, text=TWO):
    """(editor that shows documents, path, URI of the hardware)"""
    editor = await new_editor(can=capabilities(graphs=True))
    path = await opened(editor, text)
    told = await emit(editor, path)
    return editor, path, told["uri"]


async def actions(editor, path, line, character=0):
    found = await editor.actions(path, line, character) or ()
    return {each.title.removeprefix("MASE: "): each.command for each in found if "Verilog" in each.title}


# Asking


async def test_a_class_offers_its_hardware_and_with_a_build_what_can_be_done_with_it(editor):
    path = await opened(editor)
    assert list(await actions(editor, path, CLASS)) == ["Emit the Verilog of Net..."]
    await emit(editor, path)
    assert list(await actions(editor, path, CLASS)) == [
        "Show the Verilog of Net",
        "Simulate the Verilog of Net",
        "Save the Verilog of Net to a folder...",
        "Change how the Verilog of Net is built...",
        "Close the Verilog of Net",
    ]


async def test_a_layer_offers_itself_alone(editor):
    path = await opened(editor)
    offered = await actions(editor, path, FC, 14)
    assert [(title, command.arguments[0]["scope"]) for title, command in offered.items()] == [
        ("Emit the Verilog of fc alone", "Net_y")
    ]


async def test_format_and_pace_are_asked_once_and_then_remembered(new_editor):
    editor = await new_editor(answer=lsp.MessageActionItem("At most 64 multipliers"))
    path = await opened(editor)
    await editor.command("mase.applyPass", {"uri": path.as_uri(), "pass": "quantize", "arguments": {"default": "x"}})
    told = await editor.command("mase.emitVerilog", {"uri": path.as_uri(), "show": False})
    question = await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    assert question.message == "How fast should the hardware of Net be?"
    assert [action.title for action in question.actions][:2] == ["One multiplier per layer", "At most 16 multipliers"]
    assert told["build"]["multipliers"] == 64
    assert (await editor.command("mase.emitVerilog", {"uri": path.as_uri(), "show": False}))["build"] == told["build"]
    again = await editor.command("mase.verilogSettings", {"uri": path.as_uri(), "show": False})
    await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    assert again["build"] == told["build"]


async def test_the_format_is_asked_for_where_no_pass_gave_one_and_no_answer_is_no_hardware(editor):
    path = await opened(editor)
    assert await editor.command("mase.emitVerilog", {"uri": path.as_uri()}) is None
    question = await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    assert question.message == "Which number format for the hardware of Net?"
    assert question.actions[0].title == "fixed(8,auto)"
    assert list(await actions(editor, path, CLASS)) == ["Emit the Verilog of Net..."]


async def test_what_a_form_leaves_empty_is_not_given(editor):
    path = await opened(editor)
    told = await emit(editor, path, build={"data": None, "scope": None, "interval": None})
    assert (told["build"]["data"], told["build"]["scope"], told["build"]["interval"]) == ("", "", None)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        ({"multipliers": "none at all"}, "multipliers is 'none at all', expected a whole number of at least 0"),
        (
            {"multiplyers": 3},
            "a build has no multiplyers; did you mean 'multipliers'\\? It has precision, data",
        ),
    ],
)
async def test_a_build_that_cannot_be_says_why(editor, build, message):
    path = await opened(editor)
    with pytest.raises(JsonRpcException, match=message):
        await emit(editor, path, build=build)


async def test_the_form_has_what_is_remembered_and_judges_what_is_typed(editor):
    path = await opened(editor)
    await emit(editor, path)
    form = await editor.request("mase/buildForm", {"uri": path.as_uri()})
    assert form.given._asdict() == {"multipliers": 8}
    assert [each.name for each in form.arguments][:4] == ["precision", "data", "multipliers", "interval"]
    assert form.arguments[0].default == "fixed(8,auto)"
    asked = {"uri": path.as_uri(), "pass": "emitVerilog", "argument": "interval"}
    assert (await editor.request("mase/checkArgument", {**asked, "value": "128"})).value == 128
    told = await editor.request("mase/checkArgument", {**asked, "value": "0"})
    assert told.problem == "interval is '0', expected a whole number of at least 1"


async def test_what_is_refused_says_why_and_offers_a_part(new_editor):
    editor = await new_editor(answer=lsp.MessageActionItem("Build fc"))
    path = await opened(editor, TWO + "# refuse\n")
    told = await emit(editor, path)
    question = await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    assert question.message == "Net: it takes 9,000 multipliers, and 8,192 are allowed"
    assert (await editor.expect(lsp.WINDOW_SHOW_DOCUMENT)).uri.endswith("/Net.sv")
    known = await editor.request("mase/verilog", {"uri": path.as_uri(), "model": "Net"})
    assert (told["build"]["scope"], known.build.scope) == ("", "fc")
    assert (await editor.lenses(path))[CLASS][1].startswith("Verilog of fc alone")


@pytest.mark.parametrize(
    ("comment", "line", "titles"),
    [
        ("# sort", OUT, ["Build fc alone"]),
        ("# refuse", CLASS, ["Build fc alone", "Change how the Verilog of Net is built..."]),
    ],
)
async def test_what_keeps_it_from_hardware_is_a_problem_that_offers_a_part(editor, comment, line, titles):
    path = await opened(editor, f"{TWO}{comment}\n")
    await emit(editor, path)
    [problem] = (await editor.diagnostics(path)).items
    assert (problem.range.start.line, problem.severity) == (line, lsp.DiagnosticSeverity.Information)
    found = await editor.actions(path, line, problem.range.start.character, [lsp.CodeActionKind.QuickFix])
    found = [each for each in found if each.diagnostics and each.diagnostics[0].code == problem.code]
    assert [each.title for each in found] == titles
    elsewhere = await editor.actions(path, FC, 0, [lsp.CodeActionKind.QuickFix])
    assert not [each for each in elsewhere if each.title in titles]
    [given] = found[0].command.arguments
    told = await editor.command(found[0].command.command, {**given, "show": False})
    assert told["build"]["scope"] == "fc"
    assert (await editor.diagnostics(path)).items == ()
    for question in [told for method, told in editor.unread if method == lsp.WINDOW_SHOW_MESSAGE_REQUEST]:
        editor.unread.remove((lsp.WINDOW_SHOW_MESSAGE_REQUEST, question))


async def test_what_takes_long_shows_progress_and_cancel_ends_it(new_editor):
    editor = await new_editor(can=capabilities(progress=True))
    path = await opened(editor, TWO + "# slow\n")
    running = asyncio.ensure_future(emit(editor, path))
    created = await editor.expect(lsp.WINDOW_WORK_DONE_PROGRESS_CREATE)
    begun = (await editor.expect(lsp.PROGRESS)).value
    assert (begun["title"], begun["message"]) == ("Emitting the Verilog of Net", "packing memories")
    editor.client.window_work_done_progress_cancel(lsp.WorkDoneProgressCancelParams(created.token))
    assert await running is None
    assert (await editor.expect(lsp.PROGRESS)).value["kind"] == "end"
    assert list(await actions(editor, path, CLASS)) == ["Emit the Verilog of Net..."]


async def test_a_simulation_is_cancelled_like_everything_else(new_editor):
    editor = await new_editor(can=capabilities(progress=True))
    path = await opened(editor, TWO + "# long simulation\n")
    await emit(editor, path)
    running = asyncio.ensure_future(editor.command("mase.simulateVerilog", {"uri": path.as_uri()}))
    created = await editor.expect(lsp.WINDOW_WORK_DONE_PROGRESS_CREATE)
    assert (await editor.expect(lsp.PROGRESS)).value["title"] == "Simulating Net"
    editor.client.window_work_done_progress_cancel(lsp.WorkDoneProgressCancelParams(created.token))
    assert await running is None
    assert (await editor.expect(lsp.PROGRESS)).value["kind"] == "end"


async def test_what_is_not_traced_yet_says_what_to_wait_for(editor):
    path = editor.folder / "net.py"
    editor.open(path, TWO + "# hang\n")
    with pytest.raises(JsonRpcException, match=r"net\.py has no model yet: open it, and wait until its shapes"):
        await emit(editor, path)


async def test_a_person_who_changes_the_pass_or_the_model_keeps_the_build(editor):
    path = await opened(editor)
    await emit(editor, path, build={"multipliers": 8, "interval": 100})
    told = await emit(editor, path, build=None, scope="fc")
    assert (told["build"]["multipliers"], told["build"]["interval"], told["build"]["scope"]) == (8, 100, "fc")
    told = await emit(editor, path, build=None, scope="")
    assert (told["build"]["multipliers"], told["build"]["scope"]) == (8, "")


# Documents


async def test_the_document_is_there_follows_a_save_and_says_when_it_is_stale(new_editor):
    editor, path, uri = await documents(new_editor)
    assert "mase-verilog" in editor.initialized.capabilities.workspace.text_document_content.schemes
    assert uri == f"mase-verilog://{path}/Net.sv"
    assert (await content(editor, uri)).startswith("/// Net: 2 operations, 8 multipliers.\nmodule net (")
    await emit(editor, path, build={"multipliers": 16})
    assert (await editor.expect(lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH)).uri == uri
    fresh = await content(editor, uri)
    assert fresh.startswith("/// Net: 2 operations, 16 multipliers.")
    broken = "def (\n" + TWO
    assert await save(editor, path, TWO, broken) == "failed"
    await editor.expect(lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH)
    stale = await content(editor, uri)
    assert stale.split("\n")[0] == "/// STALE, net.py cannot be traced now: Net: 2 operations, 16 multipliers."
    assert stale.split("\n")[1:] == fresh.split("\n")[1:]
    assert await save(editor, path, broken, TWO) == "ready"
    await editor.expect(lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH)
    assert await content(editor, uri) == fresh


async def test_why_nothing_can_be_made_of_a_new_text_stands_in_the_first_line(new_editor):
    editor, path, uri = await documents(new_editor)
    fresh = await content(editor, uri)
    assert await save(editor, path, TWO, TWO + "# no hardware\n") == "ready"
    await editor.expect(lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH)
    stale = (await content(editor, uri)).split("\n")
    words = "STALE, quantize: there is nothing to round: Net: 2 operations, 8 multipliers."
    assert stale == [f"/// {words}", *fresh.split("\n")[1:]]


async def test_a_save_that_leaves_the_hardware_as_it_is_asks_for_no_text(new_editor):
    editor, path, uri = await documents(new_editor)
    await content(editor, uri)
    assert await save(editor, path, TWO, "# a comment\n" + TWO) == "ready"
    refreshed = [told for method, told in editor.unread if method == lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH]
    assert refreshed == []


async def test_a_closed_document_says_so(new_editor):
    editor, path, uri = await documents(new_editor)
    await editor.command("mase.closeVerilog", {"uri": path.as_uri()})
    assert "nothing was emitted, or it was closed" in await content(editor, uri)
    assert list(await actions(editor, path, CLASS)) == ["Emit the Verilog of Net..."]


async def test_a_client_without_documents_gets_files_that_follow(editor):
    path = await opened(editor)
    told = await emit(editor, path, show=True)
    shown = await editor.expect(lsp.WINDOW_SHOW_DOCUMENT)
    file = Path(to_fs_path(shown.uri))
    assert (file.name, shown.uri) == ("Net.sv", told["uri"])
    assert "8 multipliers" in file.read_text()
    editor.open(file)  # its own documents are never traced
    await emit(editor, path, build={"multipliers": 16})
    await save(editor, path, TWO, TWO + "# a comment\n")
    while "16 multipliers" not in file.read_text():
        await asyncio.sleep(0.01)  # a file has no event
    assert await counterparts(editor, shown.uri, 4) == [
        (path.as_uri(), ["fc"], [(FC, FC)]),
        (shown.uri, ["fc"], [(4, 5)]),
    ]
    assert not [s for method, s in editor.unread if method == "mase/status" and s.uri == shown.uri]


@pytest.mark.parametrize("uri", ["mase-verilog:nonsense", "mase-verilog:///nowhere.py/Net.sv"])
async def test_a_document_of_nothing_says_so(new_editor, uri):
    editor = await new_editor(can=capabilities(graphs=True))
    text = await content(editor, uri)
    assert "has no document" in text or "There is no hardware of Net" in text


# Both sides


async def test_a_layer_in_python_is_its_instance_and_the_other_way_round(new_editor):
    editor, path, uri = await documents(new_editor)
    there, back = (uri, ["fc"], [(4, 5)]), (path.as_uri(), ["fc"], [(FC, FC)])
    assert await counterparts(editor, path.as_uri(), FC) == [there, back]
    assert await counterparts(editor, uri, 4) == await counterparts(editor, uri, 5) == [back, there]
    assert await counterparts(editor, uri, 3) == await counterparts(editor, uri, 6) == []
    assert await counterparts(editor, path.as_uri(), CLASS) == []
    assert await counterparts(editor, uri, 1) == []


async def test_lines_that_moved_and_lines_that_were_edited(new_editor):
    editor, path, uri = await documents(new_editor)
    editor.change(path, (0, 0, 0, 0, "import os\nimport sys\n"))
    assert await counterparts(editor, path.as_uri(), FC) == []
    assert (await counterparts(editor, path.as_uri(), FC + 2))[0] == (uri, ["fc"], [(4, 5)])
    assert (await counterparts(editor, uri, 5))[0] == (path.as_uri(), ["fc"], [(FC + 2, FC + 2)])
    editor.change(path, (FC + 2, 20, FC + 2, 20, " "))
    assert await counterparts(editor, path.as_uri(), FC + 2) == []
    assert await counterparts(editor, uri, 5) == [(uri, ["fc"], [(4, 5)])]
    assert (await counterparts(editor, uri, 7))[0] == (path.as_uri(), ["out"], [(OUT + 2, OUT + 2)])


async def test_the_map_is_right_again_after_a_save(new_editor):
    editor, path, uri = await documents(new_editor)
    await save(editor, path, TWO, "import os\n" + TWO)
    assert (await counterparts(editor, uri, 7))[0] == (path.as_uri(), ["out"], [(OUT + 1, OUT + 1)])
    assert (await counterparts(editor, path.as_uri(), OUT + 1))[0] == (uri, ["out"], [(7, 7)])


async def test_both_sides_still_find_each_other_while_the_text_cannot_be_traced(new_editor):
    editor, path, uri = await documents(new_editor)
    assert await save(editor, path, TWO, "def (\n" + TWO) == "failed"
    assert (await counterparts(editor, path.as_uri(), FC + 1))[0] == (uri, ["fc"], [(4, 5)])
    assert (await counterparts(editor, uri, 7))[0] == (path.as_uri(), ["out"], [(OUT + 1, OUT + 1)])


async def test_two_models_of_one_file_have_two_documents(new_editor):
    editor, path, uri = await documents(new_editor, TWO + OTHER)
    other = (await emit(editor, path, model="Other"))["uri"]
    assert other == uri.replace("Net.sv", "Other.sv")
    first = TWO.count("\n") + 3
    assert [each[0] for each in await counterparts(editor, path.as_uri(), FC)] == [uri, path.as_uri()]
    assert [each[0] for each in await counterparts(editor, path.as_uri(), first)] == [other, path.as_uri()]
    assert (await content(editor, other)).startswith("/// Other:")


async def test_any_client_has_highlights_definitions_and_implementations(new_editor):
    editor, path, uri = await documents(new_editor)
    document = lsp.TextDocumentIdentifier(uri)
    at = lsp.Position(4, 17)
    found = await editor.client.text_document_document_highlight_async(lsp.DocumentHighlightParams(document, at))
    assert [each.range for each in found] == [
        lsp.Range(lsp.Position(4, 0), lsp.Position(5, len("  ) fc_i (.clk(clk));")))
    ]
    [python] = await editor.client.text_document_definition_async(lsp.DefinitionParams(document, at))
    assert (python.uri, python.range.start) == (path.as_uri(), lsp.Position(FC, 12))
    asked = lsp.ImplementationParams(editor.id(path), lsp.Position(OUT, 14))
    [verilog] = await editor.client.text_document_implementation_async(asked)
    assert (verilog.uri, verilog.range.start.line) == (uri, 7)
    for uri_without in (path.as_uri(), "mase-verilog:///nowhere.py/Net.sv"):
        asked = lsp.DefinitionParams(lsp.TextDocumentIdentifier(uri_without), at)
        assert not await editor.client.text_document_definition_async(asked)


async def test_the_name_of_a_component_leads_to_its_source_and_from_there_to_those_within(new_editor):
    editor, _, uri = await documents(new_editor)
    asked = lsp.DefinitionParams(lsp.TextDocumentIdentifier(uri), lsp.Position(4, 5))
    [place] = await editor.client.text_document_definition_async(asked)
    assert place.uri == uri.replace("/Net.sv", "/Net/rtl/fixed_linear.sv")
    text = await content(editor, place.uri)
    assert text.split("\n")[place.range.start.line].startswith("module fixed_linear")
    row = next(row for row, line in enumerate(text.split("\n")) if line.startswith("  fixed_linear_core"))
    asked = lsp.DefinitionParams(lsp.TextDocumentIdentifier(place.uri), lsp.Position(row, 4))
    [within] = await editor.client.text_document_definition_async(asked)
    assert within.uri.endswith("/Net/rtl/fixed_linear_core.sv")
    itself = lsp.DefinitionParams(lsp.TextDocumentIdentifier(place.uri), place.range.start)
    assert not await editor.client.text_document_definition_async(itself)


async def test_lines_are_shown_by_command(new_editor):
    editor, path, uri = await documents(new_editor)
    told = await editor.command("mase.showVerilogLine", {"uri": path.as_uri(), "position": position(OUT, 14)})
    shown = await editor.expect(lsp.WINDOW_SHOW_DOCUMENT)
    assert (told["uri"], shown.uri, shown.selection.start.line, shown.take_focus) == (uri, uri, 7, False)
    await editor.command("mase.showPythonLine", {"uri": uri, "position": position(7)})
    shown = await editor.expect(lsp.WINDOW_SHOW_DOCUMENT)
    assert (shown.uri, shown.selection.start.line) == (path.as_uri(), OUT)
    assert await editor.command("mase.showVerilogLine", {"uri": path.as_uri(), "position": position(0)}) is None
    with pytest.raises(JsonRpcException, match="name a place"):
        await editor.command("mase.showVerilogLine", {"uri": path.as_uri()})


# Figures


async def test_lenses_tell_the_whole_and_where_each_instance_is_from(new_editor):
    editor, path, uri = await documents(new_editor)
    pace = "20 cycles per sample · latency 50 · slowest: fc"
    totals = f"8 multipliers · 600 LUTs · 3.20 kbit · {pace} · random weights (seed 0)"
    assert (await editor.lenses(path))[CLASS][1:] == [
        "Verilog: 8 multipliers", "simulate",
    ]  # fmt: skip
    params = lsp.CodeLensParams(lsp.TextDocumentIdentifier(uri))
    found = await editor.client.text_document_code_lens_async(params)
    lenses = [(lens.range.start.line, lens.command.title) for lens in found]
    cost = "4 multipliers · 300 LUTs · 1.60 kbit · 20 cycles per sample · latency 7"
    assert lenses[:4] == [(0, totals), (0, "simulate"), (0, "save to folder"), (0, "settings")]
    assert lenses[4:] == [(4, f"fc · net.py:5 · {cost}"), (7, f"out · net.py:6 · {cost}")]
    [given] = found[-1].command.arguments
    await editor.command(found[-1].command.command, given)
    assert (await editor.expect(lsp.WINDOW_SHOW_DOCUMENT)).selection.start.line == OUT


async def test_the_model_says_what_its_hardware_takes_only_while_it_has_some(editor):
    path = await opened(editor)
    assert len((await editor.lenses(path))[CLASS]) == 1
    await emit(editor, path)
    card = (await editor.hover(path, CLASS, 8)).contents.value
    assert "| cost | 8 multipliers · 600 LUTs · 3.20 kbit |" in card
    assert "| weights | random weights (seed 0) |" in card
    assert "| pace | 20 cycles per sample, latency 50 |" in card
    await editor.command("mase.closeVerilog", {"uri": path.as_uri()})
    assert "Verilog" not in (await editor.hover(path, CLASS, 8)).contents.value
    assert len((await editor.lenses(path))[CLASS]) == 1


# Simulating and saving


async def test_a_simulation_tells_its_figures_beside_the_estimate(new_editor):
    editor = await new_editor(answer=lsp.MessageActionItem("Open Folder"))
    path = await opened(editor)
    await emit(editor, path)
    told = await editor.command("mase.simulateVerilog", {"uri": path.as_uri(), "vectors": 40})
    words = "40 vectors, 0 mismatches, 20.0 cycles per vector (estimate 20), latency 52 cycles (estimate 50)"
    assert told["summary"] == f"Net: {words}"
    assert (await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)).message == told["summary"]
    shown = await editor.expect(lsp.WINDOW_SHOW_DOCUMENT)
    assert (shown.uri, shown.external) == ("file:///cache/verilog/net", True)


@pytest.mark.parametrize(
    ("answer", "uri"),
    [
        ("Open Waveform", "file:///cache/verilog/net/sim/wave.vcd"),
        ("Open Picture", "file:///cache/verilog/net/sim/wave.svg"),
    ],
)
async def test_a_waveform_is_recorded_and_opened(new_editor, answer, uri):
    editor = await new_editor(answer=lsp.MessageActionItem(answer))
    path = await opened(editor)
    await emit(editor, path)
    told = await editor.command("mase.recordWaveform", {"uri": path.as_uri()})
    asked = await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    assert asked.message == told["summary"]
    assert [each.title for each in asked.actions] == ["Open Picture", "Open Waveform", "Open Folder"]
    assert (await editor.expect(lsp.WINDOW_SHOW_DOCUMENT)).uri == uri


async def test_the_estimate_of_an_older_text_is_not_told_beside_a_simulation(editor):
    path = await opened(editor)
    await emit(editor, path)
    assert await save(editor, path, TWO, "def (\n" + TWO) == "failed"
    told = await editor.command("mase.simulateVerilog", {"uri": path.as_uri(), "show": False})
    assert told["summary"] == "Net: 100 vectors, 0 mismatches, 20.0 cycles per vector, latency 52 cycles"


async def test_a_folder_is_written_and_one_with_other_files_only_when_the_person_says_so(new_editor):
    editor = await new_editor(answer=lsp.MessageActionItem("Overwrite"))
    path = await opened(editor)
    await emit(editor, path)
    folder = editor.folder / "out"
    told = await editor.command("mase.saveVerilog", {"uri": path.as_uri(), "folder": str(folder), "show": False})
    assert (told["folder"], "text" in told) == (str(folder), False)
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    told = await editor.command("mase.saveVerilog", {"uri": path.as_uri(), "folder": str(folder), "show": False})
    question = await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    assert "holds files of others" in question.message
    assert told["folder"] == str(folder)


async def test_without_a_folder_the_person_is_asked_for_one(new_editor):
    editor = await new_editor()
    path = await opened(editor)
    await emit(editor, path)
    assert await editor.command("mase.saveVerilog", {"uri": path.as_uri()}) is None
    question = await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    assert question.actions[0].title == str(editor.folder / "net_verilog")
