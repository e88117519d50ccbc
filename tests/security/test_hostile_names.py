"""A model's names may be any text: they are shown as text, and nothing is written elsewhere because of them."""

import os
import re
import sys
from xml.etree import ElementTree

import pytest
import pytest_asyncio
from editing import Editor
from hostile import SERVER
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from mase_server.hardware.verilog import make_identifier
from mase_server.lsp.labels import label_values
from mase_server.visible import escape_code as code
from mase_server.visible import escape_markdown as prose
from mase_server.visible import reveal

in_order = pytest.mark.asyncio(loop_scope="module")
#: What a name of a part may not have is a full stop; of a class, nothing.
PARTS = [
    "](command:mase,restart) <img src=x onerror=alert(1)>", "</script><script>alert(1)</script>",
    "]]></svg><svg onload=alert(1)>", "*/ endmodule // $(touch x) `touch x` ``[y](command:mase,restart)", "/etc/passwd",
    "CON", "x" * 300, "\N{RIGHT-TO-LEFT OVERRIDE}gnp\N{POP DIRECTIONAL FORMATTING}",
]  # fmt: skip
CLASS = "[x](command:mase.restart) <img src=x onerror=alert(1)> | ``t`\n# h </script> */ endmodule // ../../escaped"
KEY = "key\n```\n[x](command:mase.restart)"
MODEL = f"""\
from collections import OrderedDict
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(OrderedDict((name, nn.Linear(4, 4)) for name in {PARTS!r}))

    def forward(self, x):
        y = self.body(x)
        told = {{{KEY!r}: y}}
        return y

Net.__name__ = {CLASS!r}

if __name__ == "__main__":
    Net()(torch.zeros(3, 4))
"""
#: Where the pointer is: the class, a parameter, a value, a map of values.
PLACES = ((4, 6), (9, 22), (10, 8), (11, 10))
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
_OWN = ("command:mase.showGraph?", "command:mase.showCosts?", "file://")


def tokens(text):
    for block in MARKDOWN.parse(text):
        yield block
        yield from block.children or ()


def foreign(text):
    """What of a Markdown text is a link of somebody else, a picture or HTML."""
    found = [each for each in tokens(text) if each.type in ("link_open", "image", "html_inline", "html_block")]
    return [each for each in found if not str(each.attrGet("href")).startswith(_OWN)]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def editor(tmp_path_factory, private_home):
    folder = tmp_path_factory.mktemp("names") / "outer" / "workspace"
    folder.mkdir(parents=True)
    links = ["mase.showGraph", "mase.showCosts"]
    options = {"trusted": True, "interpreter": sys.executable, "commandLinks": links}
    editor = Editor(folder, options=options)
    await editor.client.start_io(*SERVER, "lsp", env={**os.environ, **private_home})
    await editor.initialize()
    editor.path = folder / "model.py"
    editor.open(editor.path, MODEL)
    assert await editor.end_state(editor.path) == "ready"
    yield editor
    editor.unread.clear()
    await editor.stop()


async def asked(editor, method, **params):
    return await editor.request(method, {"uri": editor.path.as_uri(), "model": CLASS, **params})


@in_order
async def test_cards_have_no_links_pictures_or_html_of_the_models_own(editor):
    for place in PLACES:
        card = (await editor.hover(editor.path, *place)).contents.value
        assert "command:mase.showGraph" in card or place == PLACES[3]
        assert foreign(card) == []


@in_order
async def test_hints_and_lenses_are_one_line_each(editor):
    told = [*(await editor.hints(editor.path)).values()]
    told += [title for titles in (await editor.lenses(editor.path)).values() for title in titles]
    assert any(KEY.split("\n")[0] in each for each in told)
    assert [each for each in told if not each.isprintable()] == []


@in_order
async def test_a_drawing_holds_names_as_text(editor):
    drawn = ElementTree.fromstring((await asked(editor, "mase/draw")).svg)
    kinds = {each.tag.rpartition("}")[2].lower() for each in drawn.iter()}
    assert not kinds & {"script", "img", "image", "iframe", "a", "animate", "set"}
    assert [name for each in drawn.iter() for name in each.attrib if name.lower().startswith("on")] == []
    assert any("onerror=alert" in (each.text or "") for each in drawn.iter())


@in_order
async def test_hardware_is_written_below_its_folder_under_plain_names(editor):
    outer = editor.folder.parent.parent
    before = {each for each in outer.rglob("*") if not each.is_relative_to(editor.folder)}
    target = editor.folder / "emitted"
    told = await asked(editor, "mase/emitVerilog", folder=str(target), vectors=1)
    assert {each for each in outer.rglob("*") if not each.is_relative_to(editor.folder)} == before
    names = [name for name, _ in told.files]
    assert len(set(names)) == len(names) > 16
    assert [name for name in names if not re.fullmatch(r"[A-Za-z0-9_]+(/[A-Za-z0-9_]+)?(\.[a-z]+)?", name)] == []
    assert {each.resolve().is_relative_to(target) for each in target.rglob("*")} == {True}
    for name in names:
        for line in (target / name).read_text().splitlines():
            assert "onerror=alert(1)" not in line or line.startswith(("/// ", "# \\[x\\]")), f"{name}: {line}"
    head = (target / f"{told.module}.sv").read_text().split("\nmodule ")[0]
    assert [line for line in head.splitlines() if not line.startswith("/// ")] == []


HOSTILE = st.text(st.sampled_from("`[]()<>!*_|\\#&~\n\r\t\u2028\u202ea.:/=\"' "), max_size=40)


@given(HOSTILE)
def test_prose_is_nothing_but_text(text):
    kinds = {each.type for each in tokens(f"a {prose(text)} z")}
    assert kinds <= {"paragraph_open", "inline", "text", "text_special", "softbreak", "hardbreak", "paragraph_close"}


@given(HOSTILE)
def test_code_is_one_piece_of_code(text):
    shown = reveal(re.sub(r"[ \t\n]+", " ", text).strip())
    found = [each for each in tokens(f"a {code(text)} z") if each.type not in ("paragraph_open", "paragraph_close")]
    if not shown.strip():
        return
    assert [each.type for each in found] == ["inline", "text", "code_inline", "text"]
    assert found[2].content.strip() == shown.replace("|", "\\|").strip()


@given(HOSTILE)
def test_a_table_keeps_its_cells(text):
    cells = [
        each for each in tokens(f"|  |  |\n| --- | --- |\n| {code(text)} | {prose(text)} |") if each.type == "td_open"
    ]
    assert len(cells) == 2
    assert foreign(f"|  |  |\n| --- | --- |\n| {code(text)} | {prose(text)} |") == []


@given(HOSTILE)
@example("key\n```\n[x](command:mase.restart)")
def test_a_label_cannot_end_the_block_that_it_stands_in(text):
    shown = label_values([{"dict": {text: ["f32", [2], ["2"]]}}, {"dict": {f"{text}x": ["f32", [2], ["2"]]}}])
    blocks = [each.type for each in MARKDOWN.parse(f"```text\n{shown}\n```")]
    assert blocks == ["fence"]
    assert shown.isprintable()


@given(st.text(max_size=400), st.text(max_size=400))
def test_identifiers_are_plain_short_and_differ_where_long_names_do(one, other):
    for name in (one, other):
        assert re.fullmatch(r"[A-Za-z0-9_]{0,130}", make_identifier(name))
    long = "x" * 200
    assert (make_identifier(long + one) == make_identifier(long + other)) == (one == other)
