"""Cards in the three forms that editors can show, each written out by hand."""

import asyncio

import pytest
from editing import capabilities
from lsprotocol import types as lsp

from mase_server.lsp.card import markdown_table, markdown_to_plain, tables_to_lists
from mase_server.visible import escape_code as code
from mase_server.visible import escape_markdown as prose

CARD = """**`hidden`** · name in `Net.forward`

```text
f32[B, 32]
```

⚠ *stale: the file has changed*

|  |  |
| --- | --- |
| this run | `[8, 32]` with B = 8 |
| module | `body` `Linear(a\\|b)` |

*Net: as the \\*file\\* calls it, see [the docs](https://example.org/a_b)*"""

LISTS = """**`hidden`** · name in `Net.forward`

```text
f32[B, 32]
```

⚠ *stale: the file has changed*

- this run: `[8, 32]` with B = 8
- module: `body` `Linear(a|b)`

*Net: as the \\*file\\* calls it, see [the docs](https://example.org/a_b)*"""

PLAIN = """hidden · name in Net.forward

f32[B, 32]

⚠ stale: the file has changed

this run  [8, 32] with B = 8
module    body Linear(a|b)

Net: as the *file* calls it, see the docs"""


def test_tables_become_lists():
    assert tables_to_lists(CARD) == LISTS


def test_plain_text_has_the_words_alone():
    assert markdown_to_plain(CARD) == PLAIN


def test_text_between_fences_stays_what_it_is():
    assert markdown_to_plain("```text\n**kwargs_of_a | b\n```") == "**kwargs_of_a | b"


@pytest.mark.parametrize("text", ["a`b", "a|b", "x*y*z", "[0](1)", "__init__", "# no head", "<b>"])
def test_a_name_of_the_person_s_reads_the_same_in_plain_text(text):
    assert markdown_to_plain(markdown_table(("", ""), [(code(text), prose(text))])) == f"{text}  {text}"
    assert markdown_to_plain(prose(text)) == text


def speaking(formats=None, parser=None):
    """What a client can do that reads hovers in these formats, with this Markdown parser."""
    can = capabilities()
    can.text_document.hover = lsp.HoverClientCapabilities(content_format=formats)
    can.general.markdown = lsp.MarkdownClientCapabilities(parser) if parser else None
    return can


NET = "# model Net\nclass Net:\n    def forward(self, x):\n        y = f(x)  # => f32[B:2, 10]\n"


@pytest.mark.parametrize(
    ("formats", "parser", "kind", "fact"),
    [
        (["markdown", "plaintext"], "marked", "markdown", "| this run | `[2, 10]`"),
        (["markdown", "plaintext"], None, "markdown", "- this run: `[2, 10]`"),
        (None, None, "markdown", "- this run: `[2, 10]`"),
        (["plaintext"], None, "plaintext", "this run  [2, 10]"),
    ],
)
async def test_a_hover_comes_as_the_client_reads_it(new_editor, formats, parser, kind, fact):
    editor = await new_editor(can=speaking(formats, parser))
    path = editor.folder / "net.py"
    editor.open(path, NET)
    await editor.end_state(path)
    told = (await asyncio.wait_for(editor.hover(path, 3, 8), 30)).contents
    assert (told.kind.value, fact in told.value) == (kind, True), told.value
