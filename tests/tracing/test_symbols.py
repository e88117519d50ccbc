"""Fitting expressions to sizes: hypothesis makes the truth, Python's own arithmetic evaluates the text."""

from __future__ import annotations

from itertools import combinations, product
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mase_server.tracing.symbols.fitting import DIVISORS, Atom, Expr, Fitter
from mase_server.tracing.symbols.probing import choose_sizes

NAMES = ("B", "T", "H", "W")

sizes = st.fixed_dictionaries({name: st.integers(2, 500) for name in NAMES})
atoms = st.builds(Atom, st.sampled_from(NAMES), st.integers(-9, 9), st.sampled_from((1, 1, *DIVISORS[:8])))
terms = st.tuples(st.integers(-40, 40).filter(bool), st.lists(atoms, min_size=1, max_size=3).map(tuple))
expressions = st.builds(Expr, st.integers(-50, 50), st.lists(terms, max_size=3).map(tuple))


def points(base, count):
    """The points that a prober would visit: the base and `count` probes."""
    return [base, *({**base, **choose_sizes(base, attempt)} for attempt in range(count))]


def values_at(expression, where):
    return tuple(eval(expression, {}, dict(point)) for point in where)


@given(expressions, sizes)
def test_the_text_of_an_expression_means_its_value(expression, at):
    assert eval(str(expression), {}, dict(at)) == expression.at(at)


@given(expressions)
def test_symbols_are_those_of_the_text(expression):
    assert expression.symbols == {name for name in NAMES if name in str(expression)}
    assert expression.is_constant == (not expression.terms)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (Expr(), "0"),
        (Expr(768), "768"),
        (Expr(0, ((1, (Atom("B"), Atom("T"))),)), "B*T"),
        (Expr(1, ((1, (Atom("T"),)),)), "T+1"),
        (Expr(-1, ((1, (Atom("T"),)),)), "T-1"),
        (Expr(0, ((2, (Atom("T"),)),)), "2*T"),
        (Expr(0, ((1, (Atom("H", 1, 2),)),)), "(H+1)//2"),
        (Expr(1, ((1, (Atom("H", 0, 16), Atom("W", 0, 16))),)), "(H//16)*(W//16)+1"),
        (Expr(512, ((-1, (Atom("T"),)),)), "-T+512"),
        (Expr(0, ((3, (Atom("H", 0, 8),)),)), "3*(H//8)"),
    ],
)
def test_the_text_is_as_a_person_would_write_it(expression, text):
    assert str(expression) == text


# Each row: what layers do to a dimension; the base sizes are those of ordinary inputs.
FAMILY = [
    "B", "T", "B*T", "T+1", "T-1", "2*T", "3*B", "12*B", "B*12", "B*T*12", "T*T", "B*T*T", "B*(T+1)", "B+T", "2*B+T",
    "T//2", "(T+1)//2", "T//4", "T-2", "T-30", "2*T-1", "H", "H//2", "(H+1)//2", "H//16", "(H+15)//16", "H//32",
    "(H//16)*(W//16)", "(H//16)*(W//16)+1", "(H//4)*(W//4)", "B*H", "H*W", "B*H*W", "4*H", "H-4", "B*(H//7)",
    "2*H-1", "B*T+B", "H+2",
]  # fmt: skip


@pytest.mark.parametrize("expression", FAMILY)
def test_what_layers_do_to_a_dimension_is_found(expression):
    base = {name: size for name, size in {"B": 2, "T": 64, "H": 224, "W": 224}.items() if name in expression}
    where = points(base, 2)
    fitter = Fitter(where)
    values = values_at(expression, where)
    if values in fitter.ambiguous or fitter.fit(values) is None or values in fitter.ambiguous:
        where = points(base, 3)
        fitter = Fitter(where)
    found = fitter.fit(values_at(expression, where))
    assert found is not None
    held_out = [dict(zip(base, at, strict=True)) for at in product((32, 64, 96, 160, 320), repeat=len(base))]
    assert [found.at(at) for at in held_out] == list(values_at(expression, held_out))


factors = st.integers(1, 64)
offsets = st.integers(-3, 40)
divisors = st.sampled_from((2, 4, 8, 16, 32))


@st.composite
def affine(draw):
    """coefficient * monomial + constant, as text, with the symbols it needs."""
    names = draw(st.lists(st.sampled_from(("B", "T")), min_size=1, max_size=2))
    constant = draw(offsets)
    return f"{draw(factors)}*{'*'.join(names)}+{constant}"


@st.composite
def floored(draw):
    divisor = draw(divisors)
    offset = draw(st.sampled_from((0, divisor - 1)))
    return f"(T+{offset})//{divisor}"


@given(st.one_of(affine(), floored()), st.integers(2, 64), st.integers(16, 300))
def test_a_fit_on_three_probes_holds_at_sizes_that_were_not_probed(expression, batch, length):
    base = {"B": batch, "T": length}
    where = points(base, 3)
    fitter = Fitter(where)
    values = values_at(expression, where)
    assume(min(values) > 0)
    assume(len(set(values)) == len(where))  # what no probe moves can only be a number
    found = fitter.fit(values)
    assert found is not None
    if values not in fitter.ambiguous:
        for held_out in ({"B": 17, "T": 97}, {"B": 31, "T": 211}, {"B": 90, "T": 1000}):
            assert found.at(held_out) == eval(expression, {}, held_out), str(found)


@settings(deadline=None)
@given(st.lists(st.integers(1, 10_000), min_size=3, max_size=5), st.integers(2, 64), st.integers(16, 300))
def test_a_fit_always_gives_the_values_it_was_made_from(values, batch, length):
    where = points({"B": batch, "T": length}, len(values) - 1)
    found = Fitter(where).fit(tuple(values))
    assert found is None or [found.at(point) for point in where] == values


def test_a_run_at_another_size_refutes_candidates_of_a_size_that_is_divided_and_multiplied():
    fitter = Fitter([{"T": 19}, {"T": 24}, {"T": 11}])
    assert fitter.fit((16, 16, 8)) is not None
    assert fitter.refuted_at({"T": 50}) > 0


def test_a_value_that_never_changes_is_a_number():
    found = Fitter(points({"B": 2, "T": 16}, 2)).fit((768, 768, 768))
    assert found == Expr(768)


def test_what_no_expression_gives_is_a_question_mark():
    fitter = Fitter([{"T": 16}, {"T": 13}, {"T": 11}, {"T": 7}])
    assert fitter.fit((5, 900, 17, 333)) is None
    assert fitter.text((5, 900, 17, 333)) == "?"


def test_what_is_left_of_a_fixed_length_is_believed_only_after_a_further_probe():
    fitter = Fitter([{"T": 16}, {"T": 13}, {"T": 11}])
    assert str(fitter.fit((84, 87, 89))) == "-T+100"
    assert (84, 87, 89) in fitter.ambiguous


def test_floor_and_ceiling_that_agree_at_all_points_are_marked():
    fitter = Fitter([{"T": 16}, {"T": 32}, {"T": 64}])
    fitter.fit((8, 16, 32))
    fitter.fit((9, 17, 33))
    found = fitter.fit((9, 17, 33))
    assert found is not None
    assert [found.at({"T": size}) for size in (16, 32, 64)] == [9, 17, 33]


def test_a_run_at_the_same_sizes_is_no_further_evidence_for_a_fit():
    base, once, twice = {"B": 2, "T": 16}, {"B": 5, "T": 13}, {"B": 3, "T": 11}
    plain, again = Fitter([base, once, twice]), Fitter([base, base, base, once, twice])
    for true in ("3*B+2*T", "B*T+4", "B*T", "T//2"):
        values = values_at(true, plain.points)
        assert str(again.fit((*values[:1] * 2, *values))) == str(plain.fit(values))
        assert bool(again.ambiguous) == bool(plain.ambiguous)


def test_what_differs_at_the_same_sizes_has_no_fit():
    fitter = Fitter([{"B": 2}, {"B": 2}, {"B": 5}, {"B": 3}])
    assert str(fitter.fit((4, 4, 10, 6))) == "2*B"
    assert fitter.fit((4, 5, 10, 6)) is None


def test_a_symbol_that_was_not_varied_is_in_no_fit():
    fitter = Fitter([{"B": 2, "T": 16}, {"B": 5, "T": 16}, {"B": 3, "T": 16}])
    assert fitter.symbols == ["B"]
    assert str(fitter.fit((32, 80, 48))) == "16*B"


base_sizes = st.dictionaries(st.sampled_from(("B", "T", "S", "H", "W", "N", "D")), st.integers(1, 1024), min_size=1)


@given(base_sizes, st.integers(0, 2))
def test_probe_sizes_are_distinct_never_0_or_1_and_none_is_the_bases(base, attempt):
    chosen = choose_sizes(base, attempt)
    assert chosen.keys() == base.keys()
    assert len(set(chosen.values())) == len(chosen)
    assert min(chosen.values()) >= 2
    assert not set(chosen.values()) & set(base.values())


@given(base_sizes)
def test_each_probe_visits_other_sizes(base):
    first, second, third = (choose_sizes(base, attempt) for attempt in range(3))
    for name in base:
        assert len({first[name], second[name], third[name]}) == 3, (name, first, second, third)


def drawn_sizes(random):
    """Sizes of two, three or four symbols, as people's examples have them: small ones often, lengths all different."""
    names = random.choice((("B", "T"), ("T", "S"), ("B", "T", "S"), ("B", "T", "S", "U")))
    lengths = random.sample(range(2, random.choice((13, 60, 600))), len(names))
    return {name: random.randint(1, 8) if name == "B" else size for name, size in zip(names, lengths, strict=True)}


def drawn_expression(random, names):
    """What layers do to dimensions, with small coefficients."""
    one, other = random.choice(names), random.choice(names)
    factor, constant = random.randint(1, 6), random.randint(-3, 12)
    forms = ("{0}", "{2}*{0}+{3}", "{2}*{0}*{1}", "{2}*{0}*{1}+{3}", "{0}+{2}*{1}", "{0}+{2}*{1}+{3}", "{0}*({1}+1)")
    return random.choice(forms).format(one, other, factor, constant)


def test_no_symbol_is_an_affine_image_of_another_at_the_sizes_that_are_probed():
    random = Random(0)
    for _ in range(10_000):
        base = drawn_sizes(random)
        first, second, third = points(base, 2)
        for one, other in combinations(base, 2):
            slopes = (second[one] - first[one]) * (third[other] - first[other])
            assert slopes != (third[one] - first[one]) * (second[other] - first[other]), (one, other, base)


def test_small_expressions_are_found_or_doubted_at_any_sizes_of_an_example():
    random = Random(1)
    for _ in range(1_000):
        base = drawn_sizes(random)
        truth = drawn_expression(random, list(base))
        where = points(base, 2)
        for attempt in range(2, 7):
            fitter = Fitter(where)
            found = fitter.fit(values_at(truth, where))
            if not fitter.ambiguous:
                break
            where.append({**base, **choose_sizes(base, attempt)})
        others = (17, 97, 31, 53), (31, 211, 89, 43), (90, 999, 333, 71)
        held_out = [dict(zip(base, at, strict=False)) for at in others]
        assert found is not None
        assert [found.at(at) for at in held_out] == list(values_at(truth, held_out)), (truth, str(found), where)


def test_what_two_forms_fit_keeps_its_number():
    fitter = Fitter([{"B": 1, "T": 5}, {"B": 3, "T": 7}, {"B": 7, "T": 11}])
    assert str(fitter.fit((5, 7, 11))) == "T"
    assert str(fitter.fit((1, 3, 7))) == "B"
    fitter.fit((6, 8, 12))
    assert fitter.doubt(all_ambiguous=False)
    assert fitter.fit((6, 8, 12)) is None
