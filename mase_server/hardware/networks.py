"""The network of additions beside a `constant_linear`: its sizes, its module and its cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from torch import Tensor

from mase_server.hardware.adder_graphs import AdderGraph, Result, Term, build_adder_graph
from mase_server.hardware.arithmetic import Affine
from mase_server.hardware.verilog import Instance, Parameters, read_parameters


def count_digits(width: int, is_signed: bool, digit: int) -> int:
    """The digits of so many bits of a number, whose sign bit is none if it is never negative."""
    return ceil((width - (not is_signed)) / digit)


@dataclass(frozen=True, slots=True)
class Network:
    """Sums of digits times constants. graph: the additions.  digit: bits of a digit.  starts: added to each total.

    sum_width, total_width: bits of the sums of one digit, and of those of all.
    """

    graph: AdderGraph
    digit: int
    starts: tuple[int, ...]
    sum_width: int
    total_width: int

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, formats: Affine, is_signed: bool, digit: int) -> Network:
        """The network of a layer. weight: [out, in].  is_signed: may the data be negative?"""
        constants = weight.numpy() << (formats.accumulator_fraction - formats.product_fraction)
        digits = count_digits(formats.data.width, is_signed, digit)
        graph = build_adder_graph(constants, 0, (1 << min(digit, formats.data.width - (not is_signed))) - 1)
        # The weight of all digits together: those of a number with ones alone.
        ones = sum(1 << digit * index for index in range(digits))
        dropped = formats.accumulator_fraction - formats.out.fraction_width
        half = 1 << dropped - 1 if dropped > 0 else 0
        starts, ends = [], []
        for row, result in zip(constants.tolist(), graph.results, strict=True):
            low, high = _range_of(graph, result)
            # A sum whose negative the network has is its bits the other way, and one.
            start = half + (ones if result.minus else 0) - (sum(row) << formats.data.width - 1 if is_signed else 0)
            starts.append(start)
            ends.append((low, high))
        if bias is not None and formats.bias is not None:
            shift = formats.accumulator_fraction - formats.bias.fraction_width
            starts = [each + (int(offset) << shift) for each, offset in zip(starts, bias.tolist(), strict=True)]
        totals = [
            (min(start, 0) + ones * min(low, 0), max(start, 0) + ones * max(high, 0))
            for start, (low, high) in zip(starts, ends, strict=True)
        ]
        return cls(graph, digit, tuple(starts), _width_of(ends), _width_of(totals))

    def parameters(self, formats: Affine, is_signed: bool) -> Parameters:
        """Those of the component beside it."""
        return {
            "DATA_IN_0_SIGNED": int(is_signed),
            "DIGIT_WIDTH": self.digit,
            "SUM_LATENCY": self.latency,
            "SUM_WIDTH": self.sum_width,
            "TOTAL_WIDTH": self.total_width,
            "TOTAL_FRACTION": formats.accumulator_fraction,
        }

    @property
    def latency(self) -> int:
        """Cycles from digits to their sums: a register is behind each addition."""
        return max(1, self.graph.levels)

    @property
    def widths(self) -> list[int]:
        """Bits of each addition."""
        return [self.graph.added_bits(term) for term in self.graph.terms[self.graph.elements :]]


def _range_of(graph: AdderGraph, result: Result) -> tuple[int, int]:
    """The lowest and the highest sum that comes out of the network, for a negative one without the one to add."""
    if result.term < 0:
        return 0, 0
    term = graph.terms[result.term]
    low, high = term.low << result.shift, term.high << result.shift
    return (-1 - high, -1 - low) if result.minus else (low, high)


def _width_of(ends: list[tuple[int, int]]) -> int:
    """Bits of signed numbers between these."""
    return 1 + max(max(high.bit_length(), (-1 - low).bit_length()) for low, high in ends)


def network_text(instance: Instance) -> str:
    """The module that is made for an instance: the component with its parameters, beside its network."""
    network, parameters = instance.network, read_parameters(instance)
    assert network is not None
    graph, sums = network.graph, len(network.widths)
    ins, outs = graph.elements * network.digit, len(graph.results)
    behind = _find_delays(network)
    width_in, width_out = (
        parameters[f"{side}_TENSOR_SIZE_DIM_0"] * parameters[f"{side}_PRECISION_0"]
        for side in ("DATA_IN_0", "DATA_OUT_0")
    )
    lines = [
        f"/// {instance.operation}: constant_linear, and {sums} additions in place of products with its weights.",
        f"/// A register is behind each addition; {network.latency} cycles of latency from digits to sums.",
        f"module {instance.made} (",
        "    input  logic clk,",
        "    input  logic rst,",
        f"    input  logic [{width_in - 1}:0] data_in_0,",
        "    input  logic data_in_0_valid,",
        "    output logic data_in_0_ready,",
        f"    output logic [{width_out - 1}:0] data_out_0,",
        "    output logic data_out_0_valid,",
        "    input  logic data_out_0_ready",
        ");",
        "  logic moves;",
        f"  logic [{ins - 1}:0] digits;",
        f"  logic [{outs * network.sum_width - 1}:0] sums;",
        f"  logic [{outs * network.total_width - 1}:0] starts;",
        "",
        "  constant_linear #(",
        ",\n".join(f"      .{key}({value})" for key, value in parameters.items()),
        "  ) layer (",
        "      .clk, .rst, .data_in_0, .data_in_0_valid, .data_in_0_ready, .data_out_0, .data_out_0_valid, "
        ".data_out_0_ready,",
        "      .network_moves(moves), .network_digits(digits), .network_sums(sums), .network_starts(starts)",
        "  );",
        "",
        *_term_lines(network, behind),
        "",
    ]
    for index, (result, start) in enumerate(zip(graph.results, network.starts, strict=True)):
        lines.append(f"  assign {_bits('sums', index, network.sum_width)} = {_result_text(network, result)};")
        number = start % (1 << network.total_width)
        text = f"{network.total_width}'h{number:x}"
        lines.append(f"  assign {_bits('starts', index, network.total_width)} = {text};")
    return "\n".join([*lines, *_unused_lines(network, behind), "endmodule"]) + "\n"


def _find_delays(network: Network) -> Mapping[int, int]:
    """Each term that is used, and the most cycles that it waits for its users."""
    graph = network.graph
    found: dict[int, int] = {}
    for term in graph.terms[graph.elements :]:
        for operand in (term.first, term.second):
            found[operand] = max(found.get(operand, 0), term.level - 1 - graph.terms[operand].level)
    for result in graph.results:
        if result.term >= 0:
            found[result.term] = network.latency - graph.terms[result.term].level
    return found


def _term_lines(network: Network, behind: Mapping[int, int]) -> Iterator[str]:
    graph = network.graph
    registers: list[str] = []
    for index, term in enumerate(graph.terms):
        if index not in behind:
            continue
        names = [f"t{index}", *(f"t{index}_{delay + 1}" for delay in range(behind[index]))]
        yield f"  logic {'signed ' if term.is_signed else ''}[{term.width - 1}:0] {', '.join(names)};"
        if index < graph.elements:
            first = index * network.digit
            yield f"  assign t{index} = digits[{first + term.width - 1}:{first}];"
        else:
            registers.append(f"      t{index} <= {_sum_text(graph, term)};")
        registers += (f"      {to} <= {before};" for before, to in pairwise(names))
    if registers:
        yield from ("  always_ff @(posedge clk) begin", "    if (moves) begin", *registers, "    end", "  end")


def _name_at(graph: AdderGraph, index: int, cycle: int) -> str:
    """A term, so many cycles after the elements came."""
    delay = cycle - graph.terms[index].level
    return f"t{index}_{delay}" if delay else f"t{index}"


def _sum_text(graph: AdderGraph, term: Term) -> str:
    first, shift = graph.terms[term.first], term.shift
    one, other = (_name_at(graph, each, term.level - 1) for each in (term.first, term.second))
    sign, width = "-" if term.minus else "+", term.width - shift
    if not shift:
        return f"{width}'({one}) {sign} {width}'({other})"
    # The bits below the shift are those of the first one.
    if first.is_signed:
        low = min(shift, first.width - 1)
        upper = f"{width}'($signed({one}[{first.width - 1}:{low}])) {sign} {width}'({other})"
    elif first.width > shift:
        upper = f"{width}'({one}[{first.width - 1}:{shift}]) {sign} {width}'({other})"
    else:
        upper = f"-({width}'({other}))" if term.minus else f"{width}'({other})"
    lower = f"{one}[{shift - 1}:0]" if first.width >= shift else f"{shift}'({one})"
    return f"{{{upper}, {lower}}}"


def _result_text(network: Network, result: Result) -> str:
    if result.term < 0:
        return "'0"
    name = _name_at(network.graph, result.term, network.latency)
    text = f"{network.sum_width - result.shift}'({name})"
    text = f"{{{text}, {result.shift}'d0}}" if result.shift else text
    return f"~({text})" if result.minus else text


def _bits(name: str, index: int, width: int) -> str:
    return f"{name}[{index * width}+:{width}]"


def _unused_lines(network: Network, behind: Mapping[int, int]) -> Iterator[str]:
    """Digits that no constant needs."""
    digit = network.digit
    unused = [_bits("digits", index, digit) for index in range(network.graph.elements) if index not in behind]
    if unused:
        yield "  logic unused;"
        yield f"  assign unused = &{{1'b0, {', '.join(unused)}}};"
