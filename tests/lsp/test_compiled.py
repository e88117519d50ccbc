"""What compilers make of a model, from the editor to a real trace child and back. Lines are worked out by hand."""

import sys

import pytest
import pytest_asyncio
from editing import Editor, capabilities
from lsprotocol import types as lsp

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER = (sys.executable, "-m", "mase_server", "lsp")
NET = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        h = self.a(x)
        if h.sum() > 0:
            h = h + 1
        return self.b(h)


if __name__ == "__main__":
    Net()(torch.ones(2, 4))
"""
BREAK, LAST = 11, 13


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(tmp_path_factory):
    """(editor, net.py traced in it)"""
    folder = tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        environment.setenv("XDG_STATE_HOME", str(folder / "state"))
        (folder / "work").mkdir()
        options = {"trusted": True, "interpreter": sys.executable}
        can = capabilities(graphs=True)
        can.experimental = {"commands": {"commands": ["mase.showCosts"]}}
        editor = Editor(folder / "work", can=can, options=options)
        editor.initialized = await editor.start(*SERVER)
    path = folder / "work" / "net.py"
    path.write_text(NET)
    editor.open(path)
    assert await editor.end_state(path) == "ready"
    yield editor, path
    await editor.stop()


async def content(editor, uri):
    return (await editor.client.workspace_text_document_content_async(lsp.TextDocumentContentParams(uri))).text


async def counterparts(editor, uri, line):
    """{uri: first lines of the ranges}"""
    found = await editor.request("mase/counterparts", {"uri": uri, "position": {"line": line, "character": 0}})
    return {each["uri"]: [area["start"]["line"] for area in each["ranges"]] for each in found}


async def show(editor, path, view):
    told = await editor.command("mase.showCompiled", {"uri": path.as_uri(), "view": view, "show": False})
    return told["uri"]


async def save(editor, path, before, after):
    path.write_text(after)
    editor.retype(path, before, after)
    editor.save(path, after)
    return await editor.end_state(path)


async def test_each_side_lights_the_other(session):
    editor, path = session
    for view, first in (("dynamo", "# Graph 1"), ("inductor", "# AOT ID: ['0_inference']")):
        uri = await show(editor, path, view)
        assert uri == f"mase-compiled://{path}/Net.{view}.py"
        lines = (await content(editor, uri)).split("\n")
        assert lines[0] == first
        there = (await counterparts(editor, path.as_uri(), LAST))[uri]
        assert any("linear" in lines[number] or "addmm" in lines[number] for number in there)
        back = await counterparts(editor, uri, there[-1])
        assert back[path.as_uri()] == [LAST]
        assert there[-1] in back[uri]
        # Editors without the extension ask for definitions, implementations and highlights.
        client, document, at = editor.client, lsp.TextDocumentIdentifier(uri), lsp.Position(there[-1], 8)
        places = await client.text_document_definition_async(lsp.DefinitionParams(document, at))
        assert [(each.uri, each.range.start.line) for each in places] == [(path.as_uri(), LAST)]
        lit = await client.text_document_document_highlight_async(lsp.DocumentHighlightParams(document, at))
        assert [each.range.start.line for each in lit] == back[uri]
        source, at = lsp.TextDocumentIdentifier(path.as_uri()), lsp.Position(LAST, 8)
        places = await client.text_document_implementation_async(lsp.ImplementationParams(source, at))
        assert [each.range.start.line for each in places if each.uri == uri] == there


async def test_a_document_follows_saves_and_says_when_it_is_stale(session):
    editor, path = session
    uri = await show(editor, path, "dynamo")
    fresh = await content(editor, uri)
    broken = "def (\n" + NET
    assert await save(editor, path, NET, broken) == "failed"
    await editor.expect(lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH)
    stale = (await content(editor, uri)).split("\n")
    assert stale == ["# STALE, net.py cannot be traced now: Graph 1", *fresh.split("\n")[1:]]
    wider = NET.replace("self.b(h)", "self.b(h) * 3")
    assert await save(editor, path, broken, wider) == "ready"
    while "* 3" not in await content(editor, uri):
        await editor.expect(lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH)
    assert await save(editor, path, wider, NET) == "ready"
    while "* 3" in await content(editor, uri):
        await editor.expect(lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH)


async def test_hovers_in_a_view_tell_shapes_bytes_and_the_line(session):
    editor, path = session

    async def hover(view, text):
        uri = await show(editor, path, view)
        lines = (await content(editor, uri)).split("\n")
        place = lsp.Position(next(number for number, line in enumerate(lines) if text in line), 4)
        found = await editor.client.text_document_hover_async(lsp.HoverParams(lsp.TextDocumentIdentifier(uri), place))
        return found and found.contents.value.split("\n\n")

    assert await hover("joint", "addmm: ") == [
        "`addmm: f32[2, 4]`, 32 B", "`primals_2: f32[4]`, 16 B", "`primals_3: f32[2, 4]`, 32 B", "`t: f32[4, 4]`, 64 B",
        "net.py:11",
    ]  # fmt: skip
    kernel, *_, source = await hover("inductor", "extern_kernels.addmm(")
    assert (kernel, source) == (
        "`extern_kernels.addmm (graph 1)`: linear; 1 call: reads 112 B, writes 32 B",
        "net.py:11",
    )
    assert await hover("inductor", "import torch") is None


async def test_a_view_is_compared_with_what_it_was_with_passes_and_with_another(session):
    editor, path = session
    assert await save(editor, path, NET, NET.replace("self.b(h)", "self.b(h) * 7")) == "ready"

    async def compare(view, other, **more):
        asked = {"uri": path.as_uri(), "view": view, "with": other, **more}
        return await editor.command("mase.compareCompiled", asked)

    sides = await compare("aten", "before", show=False)
    assert sides["before"].endswith("/Net.aten.before.py")
    assert "* 7" in await content(editor, sides["after"])
    assert "# Nothing yet" in await content(editor, sides["before"])
    assert await save(editor, path, NET.replace("self.b(h)", "self.b(h) * 7"), NET) == "ready"
    while "* 7" in await content(editor, sides["after"]):
        await editor.expect(lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH)
    assert "* 7" in await content(editor, sides["before"])
    sides = await compare("dynamo", "passes", show=False)
    assert "fixed(" not in await content(editor, sides["after"])
    saved = sides["before"].replace(".dynamo.py", ".dynamo.before.py")
    before = await content(editor, saved)
    await editor.command("mase.applyPass", {"uri": path.as_uri(), "pass": "quantize", "arguments": {}})
    while "fixed(" not in await content(editor, sides["after"]):
        await editor.expect(lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH)
    assert "fixed(" not in await content(editor, sides["before"])
    assert await content(editor, saved) == before, "the model itself has not changed"
    await editor.command("mase.resetPasses", {"uri": path.as_uri()})
    told = await compare("dynamo", "fx")
    await editor.expect(lsp.WINDOW_SHOW_DOCUMENT)
    assert told["text"].startswith("--- Net.original.py\n+++ Net.dynamo.py\n")


async def breaks(editor, path, code="graph-break"):
    return [each for each in (await editor.diagnostics(path)).items if each.code == code]


async def test_a_click_in_the_lens_tells_breaks_with_their_fixes(session):
    editor, path = session
    assert await breaks(editor, path) == []
    lenses = await editor.client.text_document_code_lens_async(
        lsp.CodeLensParams(lsp.TextDocumentIdentifier(path.as_uri()))
    )
    [click] = [lens.command for lens in lenses if lens.command.title == "breaks"]
    await editor.command(click.command, *click.arguments)
    while not (found := await breaks(editor, path)):
        await editor.expect(lsp.WORKSPACE_DIAGNOSTIC_REFRESH)
    [one] = found
    assert (one.range.start.line, one.severity, one.code) == (BREAK, lsp.DiagnosticSeverity.Information, "graph-break")
    assert "Data-dependent branching" in one.message
    assert "torch.where" in one.message
    params = lsp.CodeActionParams(
        lsp.TextDocumentIdentifier(path.as_uri()), one.range, lsp.CodeActionContext([], [lsp.CodeActionKind.QuickFix])
    )

    async def offered():
        return {each.title: each for each in await editor.client.text_document_code_action_async(params) or ()}

    while not (action := (await offered()).get("Choose with `torch.where`")):  # the break is told before
        await editor.expect(lsp.WORKSPACE_DIAGNOSTIC_REFRESH)
    assert [each.message for each in action.diagnostics] == [one.message]
    assert action.is_preferred
    [change] = action.edit.document_changes
    [edit] = change.edits
    assert edit.new_text == "h = torch.where(h.sum() > 0, h + 1, h)"
    assert (edit.range.start, edit.range.end) == (lsp.Position(BREAK, 8), lsp.Position(BREAK + 1, 21))
    await editor.command(click.command, *click.arguments)
    assert await breaks(editor, path) == []


async def test_a_click_in_the_lens_tells_what_is_compiled_again_at_the_line_that_asked(session):
    editor, path = session
    whole = NET.replace("        if h.sum() > 0:\n            h = h + 1\n", "")
    assert await save(editor, path, NET, whole) == "ready"
    await editor.command("mase.showBreaks", {"uri": path.as_uri()})
    while not (found := await breaks(editor, path, "recompilation")):
        await editor.expect(lsp.WORKSPACE_DIAGNOSTIC_REFRESH)
    [one] = found
    assert one.range.start == lsp.Position(10, whole.split("\n")[10].index("x)"))
    assert one.message == "torch.compile compiles forward again at other sizes: x.shape[0] (B): 2, then 5"
    await editor.command("mase.showBreaks", {"uri": path.as_uri()})
    assert await save(editor, path, whole, NET) == "ready"


async def test_a_save_while_breaks_are_looked_for_is_compiled_as_well(session):
    editor, path = session
    await editor.command("mase.showBreaks", {"uri": path.as_uri()})
    printed = NET.replace("        return self.b(h)", "        print('here')\n        return self.b(h)")
    assert await save(editor, path, NET, printed) == "ready"
    while {each.range.start.line for each in await breaks(editor, path)} != {BREAK, LAST}:
        await editor.expect(lsp.WORKSPACE_DIAGNOSTIC_REFRESH)
    await editor.command("mase.showBreaks", {"uri": path.as_uri()})
    assert await save(editor, path, printed, NET) == "ready"


KERNELS = """import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x):
        h = self.a(x)
        h = self.norm(h)
        h = F.gelu(h)
        return h + 1


if __name__ == "__main__":
    Net()(torch.ones(2, 4))
"""


async def test_once_inductors_code_was_asked_for_hovers_and_lenses_tell_what_became_of_a_line(session):
    editor, path = session
    assert await save(editor, path, path.read_text(), KERNELS) == "ready"

    async def hover(line):
        found = await editor.client.text_document_hover_async(
            lsp.HoverParams(lsp.TextDocumentIdentifier(path.as_uri()), lsp.Position(line, 8))
        )
        return found.contents.value

    async def lens():
        given = lsp.CodeLensParams(lsp.TextDocumentIdentifier(path.as_uri()))
        return [each.command.title for each in await editor.client.text_document_code_lens_async(given)]

    assert "kernel" not in await hover(13) + "".join(await lens())
    await content(editor, await show(editor, path, "inductor"))
    # 2 x 4 numbers of 4 bytes go in, with a weight and a bias of 4; as many come out.
    assert "fused into 1 kernel with 2 others: layer\\_norm, add; reads 64 B, writes 32 B" in await hover(13)
    # The same, and 4 x 4 weights with 4 biases.
    assert "computed by 1 kernel of its own; reads 112 B, writes 32 B" in await hover(11)
    assert "0 breaks, 2 kernels, 1 fused" in await lens()  # "compiled: 1 graph, " would make the line 83 columns
