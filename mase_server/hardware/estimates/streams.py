"""What takes streams apart and together."""

from __future__ import annotations

from math import gcd

from mase_server.hardware.estimates.cost import Cost, luts
from mase_server.hardware.timing.parameters import Given, clog2


def counter(steps: int) -> Cost:
    """`loop_counter`"""
    return luts(2 * clog2(steps))


def of_fork(given: Given) -> Cost:
    """`stream_fork`"""
    return luts(3 * given["COUNT"])


def of_concat(given: Given) -> Cost:
    """`stream_concat`: one of two beats is chosen."""
    return luts(given["DATA_WIDTH"] + 6) + counter(given["DATA_IN_0_BEATS"]) + counter(given["DATA_IN_1_BEATS"])


def of_split(given: Given) -> Cost:
    """`stream_split`"""
    return luts(6) + counter(given["DATA_OUT_0_BEATS"]) + counter(given["DATA_OUT_1_BEATS"])


def of_width_converter(given: Given) -> Cost:
    """`width_converter`: a wide beat that is shifted, into narrow ones or from narrow ones."""
    before, after = given["DATA_IN_0_PARALLELISM_DIM_0"], given["DATA_OUT_0_PARALLELISM_DIM_0"]
    common, bits = gcd(before, after), given["DATA_IN_0_PRECISION_0"]
    narrower = luts(2 * before * bits + 4 * clog2(before // common)) if before > common else Cost()
    wider = luts(3 + 3 * clog2(after // common)) if after > common else Cost()
    return narrower + wider
