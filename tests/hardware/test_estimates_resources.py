"""Estimates of what hardware takes, against Yosys; `benchmarks/estimates.py` has larger networks."""

import asyncio

import pytest
import torch
from torch import nn

from mase_server.formats import parse
from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic import Floats
from mase_server.hardware.emission import emit_folder, random_inputs
from mase_server.hardware.estimates import estimate
from mase_server.hardware.estimates.arithmetic import of_floats, of_top_k
from mase_server.hardware.estimates.storage import fifo_cost, of_merge_in_turn, of_split_in_turn
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.simulation.building import synthesise
from tests.hardware.test_blocks import prepared
from tests.hardware.test_lowering import config, mlp, quantised
from tests.hardware.test_recurrent import Sequences
from tests.hardware.test_residuals import Block

CASES = {
    "jet": (lambda: mlp(16, 64, 32, 32, 5), (16,), 52, (8, 4)),
    "residual": (Block, (2, 6, 5), 8, (8, 4)),
    # Narrow data have small tables, which Yosys takes less time for.
    "wide": (lambda: mlp(8, 6, 5), (8,), 4, (24, 12)),
    "gru": (lambda: Sequences(nn.GRU, "last", units=12), (5, 4), 40, (5, 2)),
    "gru, bit by bit": (lambda: Sequences(nn.GRU, "last", units=12), (5, 4), 1, (5, 2)),
    "lstm, shared": (lambda: Sequences(nn.LSTM, "last", units=8), (5, 4), 8, (5, 2)),
    "lstm, bit by bit": (lambda: Sequences(nn.LSTM, "last", units=8), (5, 4), 2, (5, 2)),
}


@pytest.mark.parametrize("name", CASES)
def test_tables_are_within_a_quarter_of_those_of_yosys_and_multipliers_are_exact(tmp_path, name):
    make, shape, multipliers, data = CASES[name]
    torch.manual_seed(0)
    check_tables(lower_graph(quantised(make(), torch.randn(2, *shape), config(data))), multipliers, tmp_path)


def test_so_are_those_of_layers_in_blocks(tmp_path):
    """Numbers of 20 bits are multiplied as mantissas, and shifted."""
    check_tables(lower_graph(prepared("blocks that do not divide rows", "fixed(20,auto)")[0]), 20, tmp_path)


@pytest.mark.parametrize(
    ("before", "text", "lanes", "block", "luts"),
    [
        ((16, 12), "minifloat_ieee(8,4)", 1, 0, 244),
        ((14, 8), "minifloat_denorm(6,3)", 2, 0, 461),
        ((24, 16), "minifloat_ieee(8,5)", 1, 0, 324),
        ((12, 8), "block_minifloat(5,2)", 2, 8, 608),
        ((16, 12), "block_minifloat(6,3)", 1, 16, 517),
    ],
)
def test_a_rounding_to_minifloats_takes_as_many_tables_as_yosys_makes(before, text, lanes, block, luts):
    """The numbers are those of its `synth_ecp5`."""
    stream, format = FixedPoint(*before), parse(text)
    floats = Floats.fitting(format, stream)
    parameters = {
        "DATA_IN_0_PRECISION_0": stream.width,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        "BLOCK_SIZE": block,
        "MANTISSA_WIDTH": floats.mantissa_width,
        "TOP_LOWEST": max(floats.tops[0], 0),
        "TOP_HIGHEST": max(floats.tops[1], 0),
        "SPAN": floats.span,
        "DATA_OUT_0_PRECISION_0": floats.out(stream).width,
    }
    assert of_floats(parameters).luts == pytest.approx(luts, rel=0.25)


@pytest.mark.parametrize(
    ("width", "size", "lanes", "places", "index", "carries", "tables"),
    [
        (8, 8, 1, 2, 0, 15, 43),
        (12, 10, 1, 5, 0, 42, 153),
        (8, 8, 2, 2, 0, 45, 91),
        (16, 8, 2, 4, 0, 117, 329),
        (8, 16, 4, 4, 0, 190, 394),
        (8, 12, 3, 5, 0, 135, 601),
        (8, 32, 1, 10, 1, 61, 358),
        (8, 8, 2, 4, 1, 65, 284),
    ],
)
def test_the_largest_elements_take_as_many_carries_as_yosys_makes(width, size, lanes, places, index, carries, tables):
    """The numbers are those of its `synth_ecp5`."""
    given = {"DATA_IN_0_PRECISION_0": width, "DATA_IN_0_TENSOR_SIZE_DIM_0": size, "DATA_IN_0_PARALLELISM_DIM_0": lanes}
    cost = of_top_k({**given, "DATA_OUT_0_TENSOR_SIZE_DIM_0": places, "INDEX": index})
    assert cost.carries == carries
    assert cost.luts == pytest.approx(tables + 2 * carries, rel=0.25)


@pytest.mark.parametrize(
    ("width", "depth", "carries", "tables"),
    [(64, 64, 14, 36), (36, 100, 16, 52), (80, 500, 20, 51), (24, 2000, 24, 59)],
)
def test_deep_fifos_have_no_tables_behind_their_block_memory(width, depth, carries, tables):
    """The numbers are those of Yosys's `synth_ecp5`."""
    cost = fifo_cost(width, depth)
    assert cost.carries == carries
    assert cost.luts == pytest.approx(tables + 2 * carries, rel=0.25)


@pytest.mark.parametrize(
    ("copies", "beats", "width", "merge", "split"),
    [(2, 1, 40, 45, 5), (3, 12, 64, 143, 15), (5, 4, 64, 207, 15), (8, 16, 24, 145, 25), (16, 7, 32, 387, 33)],
)
def test_copies_that_take_turns_take_as_many_tables_as_yosys_makes(copies, beats, width, merge, split):
    """The numbers are those of its `synth_ecp5`."""
    given = {"COUNT": copies, "BEATS": beats, "DATA_WIDTH": width}
    assert of_merge_in_turn(given).luts == pytest.approx(merge, rel=0.25)
    assert of_split_in_turn(given).luts == pytest.approx(split, rel=0.25)


def check_tables(design, multipliers, tmp_path):
    folding = fold_design(design, multipliers=multipliers)
    made = emit_folder(design, folding, "Model", random_inputs(design, 1))
    made.write(tmp_path)
    found = asyncio.run(synthesise(tmp_path, made.name, lambda message, fraction: None))
    totals = estimate(design, folding).totals
    assert totals["multipliers"] == found.multipliers
    assert 0.75 * found.luts <= totals["luts"] <= 1.25 * found.luts
