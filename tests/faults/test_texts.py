"""How a text may be written, named and saved: the same shapes at the same places, whoever wrote it."""

import os
from functools import partial

import pytest
from good_net import GOOD, good, seen
from lsprotocol import types as lsp

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: name -> the text as it is saved, and the editor's text of the same bytes where that is another one.
TEXTS = {
    "crlf": GOOD.replace("\n", "\r\n"),
    "cr": GOOD.replace("\n", "\r"),
    "mixed_ends": GOOD.replace("\n", "\r\n", 5).replace("):\n", "):\r"),
    "form_feeds": GOOD.replace("\nclass", "\n\f\nclass"),
    "no_last_end": GOOD.rstrip("\n"),
    "separators": GOOD.replace("import torch\n", "import torch\n\nNAMES = '\u2028 \u2029 \x85 \x0b \x1c'\n", 1),
    "mark": "\ufeff" + GOOD,
}


def labels(hints, text):
    """{text in front: label} of hints, whatever ends the lines: as the protocol counts them."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    ends = {name: [hint for (line, column), hint in hints.items() if lines[line][:column].endswith(name)]
            for name in seen()}  # fmt: skip
    return {name: found[0] for name, found in ends.items() if found}


@pytest.mark.parametrize("name", TEXTS)
async def test_a_text_may_be_written_in_any_way(stand, name):
    path = stand.folder / f"text_{name}.py"
    assert await stand.open(path.name, TEXTS[name]) == "ready"
    assert not await stand.problems(path.name)
    assert labels(await stand.editor.hints(path), TEXTS[name]) == seen()
    stand.close(path.name)


BYTES = {
    "utf16": (GOOD.encode("utf-16"), "not-text", "This is a binary file, not text."),
    "nul": (GOOD.encode().replace(b"class", b"\0class", 1), "not-text", "This is a binary file, not text."),
    "latin": (
        b"# caf\xe9\n" + GOOD.encode(),
        "unknown-encoding",
        "The byte 0xe9 here is not valid UTF-8. Save the file as",
    ),
    "cut": (
        GOOD.encode() + "# \U0001f600".encode()[:-1],
        "unknown-encoding",
        "here is not valid UTF-8. Save the file as",
    ),
    "klingon": (b"# coding: klingon\n" + GOOD.encode(), "unknown-encoding", "Python knows no encoding 'klingon'."),
}


@pytest.mark.parametrize("name", BYTES)
async def test_bytes_that_are_no_text_are_told_and_the_next_save_is_traced(stand, name):
    data, code, message = BYTES[name]
    path = stand.folder / f"bytes_{name}.py"
    path.write_bytes(data)
    shown = data.decode("utf-8", "replace")
    stand.editor._versions[path] = 1
    item = lsp.TextDocumentItem(path.as_uri(), "python", 1, shown)
    stand.editor.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
    stand.texts[path] = shown
    assert await stand.editor.end_state(path) == "failed"
    [problem] = await stand.problems(path.name)
    assert problem.code == code
    assert message in problem.message
    await stand.others_answer()
    stand.editor.client.text_document_did_change(
        lsp.DidChangeTextDocumentParams(
            lsp.VersionedTextDocumentIdentifier(2, path.as_uri()), [lsp.TextDocumentContentChangeWholeDocument(GOOD)]
        )
    )
    stand.editor.save(path, GOOD)
    stand.texts[path] = GOOD
    assert await stand.editor.end_state(path) == "ready"
    assert await stand.shown(path.name) == seen()
    stand.close(path.name)


NAMES = [
    "with space.py",
    "per%20cent.py",
    "hash#tag.py",
    'it\'s "quoted".py',
    "new\nline.py",
    "x" * 200 + ".py",
    "größe \U0001d45b.py",
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
async def test_a_file_may_have_any_name(stand, name):
    assert await stand.open(name, good()) == "ready"
    assert await stand.shown(name) == seen()
    assert await stand.save(name, good().replace("width, 3", "width + 1, 3")) == "failed"
    code, _, line = await stand.problem(name)
    assert (code, line) == ("shape-mismatch", "return self.b(h)")
    assert await stand.save(name, good(20)) == "ready"
    assert await stand.shown(name) == seen(20)
    stand.close(name)


async def test_a_name_that_is_no_utf8_stops_nothing(stand):
    raw = os.fsencode(stand.folder) + b"/caf\xe9.py"
    with open(raw, "wb") as file:
        file.write(GOOD.encode())
    assert await stand.open("beside.py", good()) == "ready"
    assert await stand.save("beside.py", good(20)) == "ready"
    assert await stand.shown("beside.py") == seen(20)
    await stand.others_answer()
    stand.close("beside.py")
    os.unlink(raw)  # noqa: PTH108 - no text could name it


ASTRAL = GOOD.replace(
    "        h = self.a(x).relu()", '        s = "\U0001d465\U0001d466😀"; h = self.a(x).relu()'
).replace("self.b(h)", 'self.b(h), "😀", h.mean()')
SHOWN = {"h": ": f32[B, 16]", "h.mean()": " -> (f32[B, 3], str, f32[])"}


async def test_names_and_strings_beyond_sixteen_bits_move_no_hint(stand):
    path = stand.folder / "astral.py"
    assert await stand.open(path.name, ASTRAL) == "ready"
    lines = [line.encode("utf-16-le") for line in ASTRAL.split("\n")]  # as this editor counts
    hints = await stand.editor.hints(path)
    found = {}
    for (line, column), label in hints.items():
        found[lines[line][: 2 * column].decode("utf-16-le").split()[-1]] = label
    assert {name: found[name] for name in SHOWN} == SHOWN
    line = next(number for number, text in enumerate(ASTRAL.split("\n")) if "h = self.a" in text)
    column = len(ASTRAL.split("\n")[line].partition("h = ")[0].encode("utf-16-le")) // 2
    assert "f32[B, 16]" in (await stand.editor.hover(path, line, column)).contents.value
    stand.close(path.name)


def is_ready(uri, told):
    return (told.uri, told.state) == (uri, "ready")


async def test_a_checkout_of_two_hundred_files_is_one_trace_for_each_that_is_open(stand):
    names = [f"stored{number}.py" for number in range(200)]
    for name in names:
        (stand.folder / name).write_text(good())
    assert [await stand.open(name, good()) for name in names[:3]] == ["ready"] * 3
    for name in names:
        beside = stand.folder / f"{name}.new"
        beside.write_text(good(20))
        beside.rename(stand.folder / name)
    for name in names[:3]:
        path = stand.folder / name
        told = await stand.editor.expect("mase/status", partial(is_ready, path.as_uri()))
        assert told.generation == 2
        stand.editor.retype(path, good(), good(20))
        stand.texts[path] = good(20)
        assert await stand.shown(name) == seen(20)
    await stand.others_answer()
    for name in names[:3]:
        stand.close(name)


async def test_a_time_of_change_in_the_past_is_a_change_all_the_same(stand):
    path = stand.folder / "past.py"
    assert await stand.open("past.py", good()) == "ready"
    for width, hours in ((20, -5), (24, 7), (28, -9)):
        before = stand.texts[path]
        stand.editor.retype(path, before, good(width))
        stand.texts[path] = good(width)
        beside = stand.folder / ".past.new"
        beside.write_text(good(width))
        moment = path.stat().st_mtime + hours * 3600
        os.utime(beside, (moment, moment))
        beside.rename(path)
        assert await stand.editor.end_state(path) == "ready"
        assert await stand.shown("past.py") == seen(width)
    stand.close("past.py")


async def test_a_folder_that_is_renamed_under_an_open_file_and_comes_back_is_followed_again(stand):
    folder = stand.folder / "moved"
    folder.mkdir()
    assert await stand.open("moved/net.py", good()) == "ready"
    folder.rename(stand.folder / "elsewhere")
    assert await stand.shown("moved/net.py") == seen()
    await stand.others_answer()
    folder.mkdir()
    (folder / "net.py").write_text(good(20))  # by something else than this editor
    path = folder / "net.py"
    assert await stand.editor.end_state(path) == "ready"
    stand.editor.retype(path, good(), good(20))
    stand.texts[path] = good(20)
    assert await stand.shown("moved/net.py") == seen(20)
    stand.close("moved/net.py")
