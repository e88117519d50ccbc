"""Hints that survive typing, against a model in which every traced line carries its number through the edits."""

from editing import common, point
from hypothesis import given
from hypothesis import strategies as st

from mase_server.lsp.documents import Alignment
from mase_server.lsp.text import Text, split_lines, strip_line_end

SOURCE = "def f(x):\n    y = g(x)\n    y = g(y)\n\n    return y\n"


class Traced:
    """A document that was just traced, and its alignment with what was traced."""

    def __init__(self, source=SOURCE):
        self.traced = Text(source)
        self.text = Text(source)
        self.alignment = Alignment(self.traced.lines, self.text.lines)

    def replace(self, start, end, text):
        edit = self.text.replace(start, end, text)
        self.alignment.edited(self.text.lines, edit)

    def shown(self):
        """{present line: traced line} of the lines that may carry hints."""
        pairs = ((line, self.alignment.traced_line(line)) for line in range(len(self.text.lines)))
        return {line: traced for line, traced in pairs if traced is not None}


def identity(*lines):
    return {line: line for line in lines}


def test_nothing_moved_while_nothing_was_edited():
    assert Traced().shown() == identity(0, 1, 2, 3, 4, 5)


def test_no_stale_hint_after_the_line_was_edited():
    document = Traced()
    document.replace((1, 10), (1, 10), "h")
    assert document.shown() == identity(0, 2, 3, 4, 5)
    assert document.alignment.current_line(1) is None


def test_a_hint_is_back_when_its_line_was_typed_back():
    document = Traced()
    document.replace((1, 8), (1, 9), "")
    document.replace((1, 8), (1, 8), "g")
    assert document.shown() == identity(0, 1, 2, 3, 4, 5)


def test_lines_below_a_new_line_move_down():
    document = Traced()
    document.replace((0, 9), (0, 9), "\n    # why")
    assert document.shown() == {0: 0, 2: 1, 3: 2, 4: 3, 5: 4, 6: 5}


def test_a_line_pushed_down_from_its_indentation_keeps_its_hints():
    document = Traced()
    document.replace((1, 4), (1, 4), "\n    ")
    assert document.shown() == {0: 0, 2: 1, 3: 2, 4: 3, 5: 4, 6: 5}


def test_a_new_line_above_pushes_the_line_itself_down():
    document = Traced()
    document.replace((1, 0), (1, 0), "    z = 1\n")
    assert document.shown() == {0: 0, 2: 1, 3: 2, 4: 3, 5: 4, 6: 5}


def test_of_two_equal_lines_the_deleted_one_is_gone():
    document = Traced("a\nx = f(x)\nx = f(x)\nb\n")
    document.replace((1, 0), (2, 0), "")
    assert document.shown() == {0: 0, 1: 2, 2: 3, 3: 4}


def test_of_two_equal_lines_the_other_one_deleted_backwards_is_gone():
    document = Traced("a\nx = f(x)\nx = f(x)\nb\n")
    document.replace((1, 8), (2, 8), "")
    assert document.shown() == {0: 0, 1: 1, 2: 3, 3: 4}


def test_after_the_first_of_two_equal_lines_is_gone_typing_in_the_other_does_not_make_it_the_first():
    document = Traced("a\nx = f(x)\nx = f(x)\nb\n")
    document.replace((1, 0), (2, 0), "")
    document.replace((1, 3), (1, 3), "!")
    document.replace((1, 3), (1, 4), "")
    assert document.shown() == {0: 0, 1: 2, 2: 3, 3: 4}


def test_a_copied_line_has_no_hint_and_its_original_keeps_it():
    below, above = Traced("a\nx = f(x)\nb\n"), Traced("a\nx = f(x)\nb\n")
    below.replace((1, 8), (1, 8), "\nx = f(x)")
    above.replace((1, 0), (1, 0), "x = f(x)\n")
    assert below.shown() == {0: 0, 1: 1, 3: 2, 4: 3}
    assert above.shown() == {0: 0, 2: 1, 3: 2, 4: 3}


def test_joined_lines_come_back_when_they_are_parted_again():
    document = Traced()
    document.replace((1, 12), (2, 4), "")
    assert document.shown() == {0: 0, 2: 3, 3: 4, 4: 5}
    document.replace((1, 12), (1, 12), "\n    ")
    assert document.shown() == identity(0, 1, 2, 3, 4, 5)


def test_deleted_lines_come_back_when_the_deletion_is_undone():
    document = Traced()
    document.replace((1, 0), (4, 0), "")
    assert document.shown() == {0: 0, 1: 4, 2: 5}
    document.replace((1, 0), (1, 0), "    y = g(x)\n    y = g(y)\n\n")
    assert document.shown() == identity(0, 1, 2, 3, 4, 5)


def test_a_formatter_that_replaces_the_whole_text_loses_only_the_lines_that_it_changed():
    document = Traced()
    edit = document.text.replace_all(SOURCE.replace("y = g(y)", "y = g( y )"))
    document.alignment.edited(document.text.lines, edit)
    assert document.shown() == identity(0, 1, 3, 4, 5)


def replaced(source, text):
    """What is shown after the whole of a text gave way to another."""
    document = Traced(source)
    edit = document.text.replace_all(text)
    document.alignment.edited(document.text.lines, edit)
    return document.shown()


def test_other_line_ends_lose_no_line():
    assert replaced(SOURCE, SOURCE.replace("\n", "\r\n")) == identity(0, 1, 2, 3, 4, 5)
    assert replaced(SOURCE.replace("\n", "\r\n"), SOURCE) == identity(0, 1, 2, 3, 4, 5)


texts = st.lists(st.sampled_from(["a", "b", "ab", ""]), max_size=9)


@given(texts, texts, st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=9, max_size=9))
def test_what_ends_a_line_costs_no_hint(before, after, ends):
    plain = "".join(f"{line}\n" for line in after)
    other = "".join(line + end for line, end in zip(after, ends, strict=False))
    # An empty line between "\r" and "\n" would be no line.
    if len(split_lines(other)) == len(split_lines(plain)):
        source = "".join(f"{line}\n" for line in before)
        # Which one of two equal lines is the traced one is open: the one with the same end is preferred.
        kept = replaced(source, other)
        assert len(kept) == len(replaced(source, plain))
        assert all(after[line] == before[origin] for line, origin in kept.items() if line < len(after))


def test_a_span_is_whole_or_not_at_all():
    document = Traced()
    assert document.alignment.current_span(1, 3) == 1
    document.replace((0, 0), (0, 0), "\n")
    assert document.alignment.current_span(1, 3) == 2
    document.replace((3, 0), (3, 0), "#")
    assert document.alignment.current_span(1, 3) is None
    assert document.alignment.current_span(1, 1) == 2


def test_a_span_with_a_line_between_is_none():
    document = Traced()
    document.replace((1, 12), (1, 12), "\n")
    assert document.alignment.current_span(1, 2) is None


def test_another_program_that_wrote_the_file_is_found_out_by_its_lines():
    alignment = Alignment(Text("import a\n" + SOURCE).lines, Text(SOURCE).lines)
    assert [alignment.traced_line(line) for line in range(6)] == [1, 2, 3, 4, 5, 6]


fragments = st.text(st.sampled_from("ab\n"), max_size=5)
edits = st.lists(st.tuples(*[st.integers(0, 7)] * 4, fragments), max_size=6)


@given(st.text(st.sampled_from("ab\n"), max_size=25), edits)
def test_a_shown_line_always_has_the_traced_text_and_lines_keep_their_order(source, changes):
    document = Traced(source)
    for line, column, more, end_column, inserted in changes:
        document.replace((line, column), (line + more, end_column), inserted)
        shown = document.shown()
        traced = list(shown.values())
        assert all(
            strip_line_end(document.text.lines[now]) == strip_line_end(document.traced.lines[was])
            for now, was in shown.items()
        )
        assert traced == sorted(set(traced))
        assert all(document.alignment.current_line(was) == now for now, was in shown.items())


@given(edits)
def test_a_line_that_no_edit_touched_is_shown_and_is_itself(changes):
    """Every line is unique here, so a line that still stands somewhere is known by its text alone."""
    source = "".join(f"line {number}\n" for number in range(8))
    document = Traced(source)
    untouched = set(range(8))
    for line, column, more, end_column, inserted in changes:
        before = {was: now for now, was in document.shown().items()}
        last = line + more
        untouched -= {was for was in untouched if was in before and line <= before[was] <= last}
        untouched &= set(before)
        document.replace((line, column), (last, end_column), inserted)
        now = {was: line for line, was in document.shown().items()}
        assert untouched <= set(now)
        assert all(strip_line_end(document.text.lines[now[was]]) == f"line {was}" for was in untouched)


@given(st.lists(st.tuples(*[st.integers(0, 7)] * 4, fragments), min_size=1, max_size=4))
def test_undoing_every_edit_brings_every_hint_back(changes):
    source = "".join(f"line {number}\n" for number in range(7))
    document, undo = Traced(source), []
    for line, column, more, end_column, inserted in changes:
        before = str(document.text)
        document.replace((line, column), (line + more, end_column), inserted)
        undo.append((before, str(document.text)))
    for before, after in reversed(undo):
        head = common(before, after)
        tail = common(before[head:][::-1], after[head:][::-1])
        document.replace(point(after, head), point(after, len(after) - tail), before[head : len(before) - tail])
    assert str(document.text) == source
    assert document.shown() == identity(*range(8))
