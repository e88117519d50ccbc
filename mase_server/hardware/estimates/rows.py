"""What goes over whole rows: softmax and norms."""

from __future__ import annotations

from mase_server.hardware.estimates import storage
from mase_server.hardware.estimates.arithmetic import requantise
from mase_server.hardware.estimates.cost import Cost, logic, multiplications, sums
from mase_server.hardware.estimates.images import reduce
from mase_server.hardware.estimates.streams import counter
from mase_server.hardware.timing.parameters import Given, NormWidths, clog2


def row_reduce(width: int, lanes: int, beats: int, maximum: bool) -> Cost:
    """`fixed_row_reduce`"""
    bits = width if maximum else width + clog2(beats)
    combined = (lanes - 1) * (logic(1.2 * bits) if maximum else Cost()) + (lanes - 1) * sums(bits + clog2(lanes))
    return reduce(width, lanes, 1, beats, maximum) + combined + logic(3)


def row_statistic(width: int, lanes: int, beats: int, reduced: int, maximum: bool) -> Cost:
    """`row_statistic`. width: of an element; reduced: of what is reduced of it."""
    out = reduced if maximum else reduced + clog2(beats) + clog2(lanes)
    kept = storage.fifo(width * lanes, 2 * beats + 4) + storage.skid_buffer(out)
    return kept + row_reduce(reduced, lanes, beats, maximum) + logic(8) + counter(beats)


def divide(denominator: int, quotient: int) -> Cost:
    """`fixed_divide`: a subtraction that may be taken back for each bit."""
    logic_of_all = logic(0.85 * quotient * (denominator + 1) + denominator)
    return logic_of_all + Cost(carries=quotient * ((denominator + 2) // 2) + 0.7 * denominator)


def of_softmax(given: Given) -> Cost:
    """`fixed_softmax`"""
    size, lanes, bits = (
        given[f"DATA_IN_0_{name}"] for name in ("TENSOR_SIZE_DIM_0", "PARALLELISM_DIM_0", "PRECISION_0")
    )
    beats, power, masks = size // lanes, given["EXP_FRACTION"] + 1, Cost()
    if given.get("HAS_MASK"):
        masks = storage.rom(lanes, given["MASK_BEATS"], given.get("MASK_FILE")) + lanes * logic(bits)
        masks += counter(given["MASK_BEATS"])
    marked = bits + given.get("HAS_MASK", 0)
    largest = row_statistic(marked, lanes, beats, marked, maximum=True)
    total = row_statistic(power, lanes, beats, power + 1, maximum=False)
    tables = storage.rom(power, 2**bits, given.get("FILE")) * lanes
    quotients = divide(power + 1 + clog2(beats) + clog2(lanes), given["DATA_OUT_0_PRECISION_1"] + 1) * lanes
    return masks + largest + total + tables + quotients


def of_norm(given: Given) -> Cost:
    """`fixed_norm`"""
    size, lanes, bits = (
        given[f"DATA_IN_0_{name}"] for name in ("TENSOR_SIZE_DIM_0", "PARALLELISM_DIM_0", "PRECISION_0")
    )
    beats, widths = size // lanes, NormWidths.of(given)
    found = storage.fifo(lanes * widths.centred, 2 * beats + widths.root + 6) + storage.skid_buffer(widths.root)
    if given["MEAN"]:
        found += row_statistic(bits, lanes, beats, bits, maximum=False)
        found += multiplications(0 if size & (size - 1) == 0 else 1) * lanes
    found += row_reduce(2 * widths.centred, lanes, beats, maximum=False) + root(widths.root, size)
    for name in ("WEIGHT", "BIAS"):
        if given[f"HAS_{name}"]:
            found += storage.rom(lanes * given[f"{name}_PRECISION_0"], beats, given.get(f"{name}_FILE"))
    return found + _results(given, widths) * lanes + multiplications(1 + given["HAS_WEIGHT"]) * lanes


def root(width: int, count: int) -> Cost:
    """`fixed_root`"""
    bits = 2 * width + clog2(count + 1) + 1
    return Cost(logic=90 + 1.3 * bits, carries=1.83 * bits)


def _results(given: Given, widths: NormWidths) -> Cost:
    """The quotient of one lane, its product, and the rounding."""
    quotients = divide(widths.root, widths.quotient)
    weight = (given["WEIGHT_PRECISION_0"], given["WEIGHT_PRECISION_1"]) if given["HAS_WEIGHT"] else (1, 0)
    out = given["DATA_OUT_0_PRECISION_0"], given["DATA_OUT_0_PRECISION_1"]
    product, fraction = widths.quotient + 2 + weight[0], given["NORM_FRACTION"] + weight[1]
    signs = logic(widths.centred + widths.quotient) + sums(widths.centred, widths.quotient)
    return quotients + signs + sums(product) + requantise(product, fraction, *out)
