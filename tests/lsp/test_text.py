"""Edits to lines, against the same edits to one long string."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mase_server.lsp.text import Text, decode_python_source, hashes_of_saved_text, split_lines

texts = st.text(st.sampled_from("ab \t\f\v\x1c\x1d\x1e\x85\u2028\u2029é😋\r\n\n"), max_size=40)


def reference_lines(text):
    """The protocol's lines: ended by \\n, \\r\\n or \\r."""
    marked = text.replace("\r\n", "\x00").replace("\r", "\x01").replace("\n", "\x02")
    lines, line = [], ""
    for character in marked:
        line += {"\x00": "\r\n", "\x01": "\r", "\x02": "\n"}.get(character, character)
        if character in "\x00\x01\x02":
            lines.append(line)
            line = ""
    return [*lines, line]


def offset(text, line, column):
    lines = reference_lines(text)
    if line >= len(lines):
        return len(text)
    return sum(map(len, lines[:line])) + min(column, len(lines[line].rstrip("\r\n")))


@given(texts)
def test_only_the_line_ends_of_the_protocol_end_a_line(text):
    assert split_lines(text) == reference_lines(text)


@given(texts, st.lists(st.tuples(*[st.integers(0, 8)] * 4, texts), max_size=5))
def test_an_edit_gives_the_text_that_the_editor_has(text, edits):
    document, expected = Text(text), text
    for line, column, more_lines, end_column, inserted in edits:
        end = (line + more_lines, column + end_column if more_lines == 0 else end_column)
        start_offset, end_offset = offset(expected, line, column), offset(expected, *end)
        expected = expected[:start_offset] + inserted + expected[max(start_offset, end_offset) :]
        document.replace((line, column), end, inserted)
        assert str(document) == expected
        assert document.lines == reference_lines(expected)


@given(texts, texts)
def test_replacing_everything_is_a_new_text(old, new):
    document = Text(old)
    edit = document.replace_all(new)
    assert document.lines == reference_lines(new)
    before, after = reference_lines(old), reference_lines(new)
    assert before[: edit.line] == after[: edit.line]
    assert before[edit.line + edit.removed :] == after[edit.line + edit.added :]
    assert len(before) - edit.removed == len(after) - edit.added
    assert min(edit.removed, edit.added) >= 1
    assert (edit.head, edit.tail) == (0, 0)


@given(texts, st.integers(0, 8), st.integers(0, 8), st.integers(0, 3), texts)
def test_an_edit_tells_how_many_lines_gave_way_to_how_many(text, line, column, more, inserted):
    document = Text(text)
    before = list(document.lines)
    edit = document.replace((line, column), (line + more, column), inserted)
    assert document.lines[: edit.line] == before[: edit.line]
    assert document.lines[edit.line + edit.added :] == before[edit.line + edit.removed :]


def test_a_line_is_given_without_its_end():
    document = Text("a\r\nb\rc\n")
    assert [document.line(index) for index in range(5)] == ["a", "b", "c", "", ""]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_hash_of_the_saved_file_is_among_a_texts_hashes(mark):
    text = "x = 'é'\r\n"
    assert hashlib.sha256(mark + text.encode()).hexdigest() in hashes_of_saved_text(text)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xef\xbb\xbfx = 1", "x = 1"),
        ("x = 'é'".encode(), "x = 'é'"),
        (b"# coding: latin-1\nx = '\xe9'", "# coding: latin-1\nx = 'é'"),
        (b"# coding: no-such-thing\nx", "# coding: no-such-thing\nx"),
        (b"x = '\xe9'", "x = '\ufffd'"),
    ],
)
def test_a_file_is_decoded_as_python_would(data, text):
    assert decode_python_source(data) == text
