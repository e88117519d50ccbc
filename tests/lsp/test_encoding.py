"""Columns of the protocol, against Python's own codecs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mase_server.lsp.text import Encoding, choose_encoding, from_units, to_units

BYTES_PER_UNIT = {Encoding.UTF8: ("utf-8", 1), Encoding.UTF16: ("utf-16-le", 2), Encoding.UTF32: ("utf-32-le", 4)}

characters = st.one_of(
    st.characters(exclude_categories=("Cs",), exclude_characters="\r\n"),
    st.sampled_from("a\t\f\v é€😋𐍈\u2028\x85\ufeff"),
)
lines = st.text(characters, max_size=30)
encodings = st.sampled_from(list(Encoding))


def units(text, encoding):
    codec, size = BYTES_PER_UNIT[encoding]
    return len(text.encode(codec)) // size


@given(lines, encodings, st.data())
def test_a_column_counts_the_units_that_the_codec_writes_before_it(line, encoding, data):
    column = data.draw(st.integers(0, len(line)))
    assert to_units(line, column, encoding) == units(line[:column], encoding)


@given(lines, encodings, st.data())
def test_a_column_survives_the_way_there_and_back(line, encoding, data):
    column = data.draw(st.integers(0, len(line)))
    assert from_units(line, units(line[:column], encoding), encoding) == column


@given(lines, encodings, st.integers(0, 200))
def test_every_number_of_units_means_a_column_of_the_line(line, encoding, given_units):
    column = from_units(line, given_units, encoding)
    assert 0 <= column <= len(line)
    assert units(line[:column], encoding) <= given_units or column == 0


@pytest.mark.parametrize(("encoding", "inside"), [(Encoding.UTF8, 2), (Encoding.UTF8, 4), (Encoding.UTF16, 2)])
def test_a_position_inside_a_character_means_before_it(encoding, inside):
    assert from_units("a😋b", inside, encoding) == 1


@pytest.mark.parametrize("encoding", list(Encoding))
def test_past_the_end_of_the_line_means_its_end(encoding):
    assert from_units("é😋", 99, encoding) == 2
    assert to_units("é😋", 99, encoding) == units("é😋", encoding)


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (None, Encoding.UTF16),
        ([], Encoding.UTF16),
        (["utf-7"], Encoding.UTF16),
        (["utf-16"], Encoding.UTF16),
        (["utf-8", "utf-16"], Encoding.UTF8),
        (["utf-16", "utf-8"], Encoding.UTF16),
        (["utf-16", "utf-8", "utf-32"], Encoding.UTF32),
    ],
)
def test_the_encoding_is_one_that_the_client_offers(offered, chosen):
    assert choose_encoding(offered) is chosen
