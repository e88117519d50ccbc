"""Which texts of its past a document follows."""

import hashlib

import pytest

from mase_server.lsp.documents import Documents, read_document


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.py"


def opened(path, text="x = 1\ny = 2\n"):
    return Documents().open(path.as_uri(), str(path), 1, text)


def type_at(document, line, column, text):
    document.apply(document.text.replace((line, column), (line, column), text))


def test_the_opened_text_is_followed_through_edits(path):
    document = opened(path)
    type_at(document, 0, 0, "\n")
    alignment = document.alignment(sha256("x = 1\ny = 2\n"))
    assert [alignment.current_line(line) for line in (0, 1)] == [1, 2]


def test_the_saved_text_is_followed_beside_the_shown_one(path):
    document = opened(path)
    type_at(document, 0, 5, "0")
    document.remember_text(sha256("x = 1\ny = 2\n"))
    type_at(document, 0, 0, "\n")
    assert document.alignment(sha256("x = 1\ny = 2\n")).current_line(0) is None
    assert document.alignment(sha256("x = 10\ny = 2\n")).current_line(0) == 1


def test_the_shown_text_outlives_any_number_of_saves(path):
    shown = sha256("x = 1\ny = 2\n")
    document = opened(path)
    for _ in range(20):
        type_at(document, 1, 0, "#")
        document.remember_text(shown)
    assert document.alignment(shown).current_line(0) == 0
    assert len(document.followed) <= 4


def test_a_text_that_only_the_disk_holds_is_read_from_there(path):
    path.write_bytes(b"import os\nx = 1\ny = 2\n")
    alignment = opened(path).alignment(sha256("import os\nx = 1\ny = 2\n"))
    assert [alignment.current_line(line) for line in (0, 1, 2)] == [None, 0, 1]


def test_a_text_that_nobody_holds_any_longer_is_not_guessed(path):
    path.write_bytes(b"something else\n")
    assert opened(path).alignment(sha256("gone\n")) is None
    path.unlink()
    assert opened(path).alignment(sha256("gone\n")) is None


def test_an_unknown_hash_means_the_file_as_it_is(path):
    path.write_bytes(b"x = 1\ny = 2\n")
    assert opened(path).alignment("").current_line(1) == 1


def test_a_byte_order_mark_is_part_of_the_file_and_not_of_the_text(path):
    data = b"\xef\xbb\xbfx = 1\n"
    document = opened(path, "x = 1\n")
    assert document.alignment(hashlib.sha256(data).hexdigest()).current_line(0) == 0


def test_documents_are_known_by_path_until_they_are_closed(path):
    documents = Documents()
    document = documents.open(path.as_uri(), str(path), 1, "")
    assert documents.get(str(path)) is document
    assert documents.paths() == [str(path)]
    assert documents.close(path.as_uri()) is document
    assert documents.close(path.as_uri()) is None
    assert documents.get(str(path)) is None


def test_a_file_that_cannot_be_read_is_no_document(path):
    assert read_document(str(path), path.as_uri()) is None
    path.write_bytes(b"x = 1\r\n")
    assert read_document(str(path), path.as_uri()).text.line(0) == "x = 1"
