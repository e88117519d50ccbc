"""The recorder against programs whose shapes the generator knows, because it wrote them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.ground_truth.record import run_main

Shape = tuple[int, ...]
STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["make", "turn", "cut", "grow", "pair", "loop"]),
                           st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=12)  # fmt: skip


def program(steps: list[tuple[str, str, int, int]]) -> tuple[list[str], list[tuple[str, set[Shape]]]]:
    """Lines of a program, one binding a line or a tuple of two, and what each binding must be."""
    shapes: dict[str, Shape] = dict.fromkeys("abc", (4, 6))
    lines, expected = [], []
    for name, what, m, n in steps:
        shape = shapes[name]
        seen = [{(m, n)}]
        if what == "make":
            line = f"{name} = torch.zeros({m}, {n})"
        elif what == "turn":
            line, seen = f"{name} = {name}.t()", [{shape[::-1]}]
        elif what == "cut":
            line, seen = f"{name} = {name}[:{m}]", [{(min(m, shape[0]), shape[1])}]
        elif what == "grow":
            line, seen = f"{name} = torch.cat([{name}] * {m})", [{(m * shape[0], shape[1])}]
        elif what == "pair":
            line, seen = f"{name}, _ = {name}.sum(1), {name}; {name} = _", [{(shape[0],)}, {shape}, {shape}]
        else:
            line = f"for {name} in ({name}, torch.ones({m}, {n})): pass"
            seen = [{shape, (m, n)}]
        shapes[name] = {"pair": shape, "loop": (m, n)}.get(what, max(seen[-1]))
        names = [name, "_", name] if what == "pair" else [name]
        lines.append(line)
        expected += list(zip(names, seen, strict=True))
    return lines, expected


@given(STEPS)
def test_each_binding_has_the_shapes_that_the_program_gives_it(steps):
    lines, expected = program(steps)
    start = ["import torch", *(f"{name} = torch.zeros(4, 6)" for name in "abc")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text("\n".join(start + lines))
        truth = run_main(path)
    seen = [(place.name, {shape for _, shape in truth[place]}) for place in sorted(truth) if place.line > len(start)]
    assert seen == expected
    assert all(dtype == "f32" for values in truth.values() for dtype, _ in values)
