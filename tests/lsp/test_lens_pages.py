"""Lenses that open the graph and the costs of a model, in clients that have such pages and in no others."""

from editing import capabilities
from lsprotocol import types as lsp

#: Long where a model takes much: how its inputs were found.
ORIGINS = "inputs found by search: x = f32[2, 10] · assumed B = 2"
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


async def test_buttons_stand_before_what_may_be_too_long_for_the_editor(new_editor):
    can = capabilities()
    can.experimental = {"commands": {"commands": ["mase.showGraph", "mase.changeInputs"]}}
    [facts, *others] = await lenses(await new_editor(can=can))
    assert facts.command.title.startswith("3 nodes · 1,010 parameters · ")
    assert [each.command.title for each in others] == ["change inputs", "graph", ORIGINS]
    assert others[-1].command.command == "mase.changeInputs"
    assert others[-1].command.arguments == others[0].command.arguments
