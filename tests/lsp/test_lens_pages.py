"""The line above a class: what must be distrusted, size and cost, links; at most 80 columns, about one model."""

import pytest
from editing import capabilities
from lsprotocol import types as lsp

from mase_server.lsp.lens import WIDTH, fit_texts

NET = "# model Net\nclass Net:\n    def forward(self, x):  # => f32[B:2, 64]\n        return x\n"


async def lenses(editor):
    path = editor.folder / "net.py"
    editor.open(path, NET)
    await editor.end_state(path)
    return await editor.client.text_document_code_lens_async(lsp.CodeLensParams(editor.id(path)))


async def test_a_client_that_announces_the_pages_gets_a_lens_for_each(new_editor):
    can = capabilities()
    can.experimental = {"commands": {"commands": ["mase.showGraph", "mase.showCosts"]}}
    found = {each.command.title: each.command for each in await lenses(await new_editor(can=can))}
    for title, command in {"graph": "mase.showGraph", "costs": "mase.showCosts"}.items():
        assert found[title].command == command
        [given] = found[title].arguments
        assert given["path"].endswith("net.py")
        assert given["model"] == "Net"


async def test_other_clients_get_no_lens_that_does_nothing(editor):
    assert not {"graph", "costs"} & {each.command.title for each in await lenses(editor)}


async def test_the_line_begins_with_guesses_then_size_then_links_and_each_does_what_it_says(new_editor):
    can = capabilities()
    can.experimental = {"commands": {"commands": ["mase.showGraph", "mase.showCosts", "mase.changeInputs"]}}
    found = await lenses(await new_editor(can=can))
    assert [(each.command.title, each.command.command) for each in found] == [
        ("guessed B=2", "mase.changeInputs"),
        ("1,010 parameters · 2.00 kFLOPs", "mase.showCosts"),
        ("costs", "mase.showCosts"),
        ("graph", "mase.showGraph"),
        ("inputs", "mase.changeInputs"),
        ("breaks", "mase.showBreaks"),
    ]
    assert len({tuple(each.command.arguments[0].items()) for each in found}) == 1, "all are about one model"


async def test_a_time_says_what_it_is_the_time_of_and_traces_again_where_there_is_room(new_editor):
    can = capabilities()
    can.experimental = {"commands": {"commands": ["mase.changeInputs"]}}
    *_, last = await lenses(await new_editor(can=can))
    assert (last.command.title, last.command.command) == ("traced in 12 ms", "mase.retrace")


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ([("a" * 70,), ("links", "")], ["a" * 70, "links"]),
        ([("a" * 70,), ("links", ""), ("more", "")], ["a" * 70, "links", ""]),
        ([("a" * 70, "short"), ("links",), ("more", "mo")], ["short", "links", "more"]),
        ([("a" * 90,), ("links",)], ["a" * 90, "links"]),
    ],
)
def test_the_last_parts_become_shorter_first(parts, shown):
    assert fit_texts(parts) == shown
    assert WIDTH == 80
