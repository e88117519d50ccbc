"""What takes streams apart and together."""

from __future__ import annotations

from math import gcd

from mase_server.hardware.estimates.cost import Cost, logic, sums
from mase_server.hardware.timing.parameters import Given, clog2


def counter(steps: int) -> Cost:
    """`loop_counter`"""
    return logic(1.7 * clog2(steps)) + sums(clog2(steps))


def of_fork(given: Given) -> Cost:
    """`stream_fork`"""
    return logic(4 * given["COUNT"] - 3)


def of_concat(given: Given) -> Cost:
    """`stream_concat`: one of two beats is chosen."""
    return logic(given["DATA_WIDTH"] + 3) + counter(given["DATA_IN_0_BEATS"]) + counter(given["DATA_IN_1_BEATS"])


def of_split(given: Given) -> Cost:
    """`stream_split`"""
    return logic(3) + counter(given["DATA_OUT_0_BEATS"]) + counter(given["DATA_OUT_1_BEATS"])


def of_width_converter(given: Given) -> Cost:
    """`width_converter`: wide beats are shifted out, which costs more tables the more narrow ones they are."""
    before, after = given["DATA_IN_0_PARALLELISM_DIM_0"], given["DATA_OUT_0_PARALLELISM_DIM_0"]
    common, bits = gcd(before, after), given["DATA_IN_0_PRECISION_0"]
    split, gather = before // common, after // common
    narrower = logic(_OF_SHIFTED.get(clog2(split + 1), 1) * before * bits + 5) if split > 1 else Cost()
    wider = logic(1 + 2.2 * clog2(gather + 1)) if gather > 1 else Cost()
    return narrower + wider


#: Tables of a shifted bit by the width of the counter that decides: Yosys makes wide ones of short counters.
_OF_SHIFTED = {2: 1.2, 3: 2, 4: 4}
