"""Weights from outside: `streamed_linear` and `streamed_conv2d` are their arithmetic; `axi_reader` reads it all."""

from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st

from mase_server.hardware.design import find_divisors
from tests.rtl.bench import Bench, Case, Stream
from tests.rtl.draws import drawn
from tests.rtl.test_images import convolution, convolutions
from tests.rtl.test_linear import PLAIN, layer, layers

PORTS = st.sampled_from((32, 64, 128))


def outside(case, choice, port):
    """A layer of the other tests with its weights as a stream. choice: of the vectors for which they are read."""
    name, (width, words) = case.module.removeprefix("fixed_"), case.memories["WEIGHT_FILE"]
    (results,) = case.outputs.values()
    vectors = len(results.beats) * case.parameters["DATA_OUT_0_PARALLELISM_DIM_0"]
    vectors //= case.parameters["DATA_OUT_0_TENSOR_SIZE_DIM_0"]
    divisors = find_divisors(vectors)
    rows = divisors[choice % len(divisors)]
    kept = {
        key: value for key, value in case.parameters.items() if not key.startswith(("GROUPS", "WEIGHT_PARALLELISM"))
    }
    weights = Stream(port, packed(list(words), width, port) * (vectors // rows))
    return replace(
        case,
        module=f"streamed_{name}",
        parameters={**kept, "ROWS": rows, "BUS_WIDTH": port},
        inputs={**case.inputs, "data_in_1": weights},
        memories={key: value for key, value in case.memories.items() if key != "WEIGHT_FILE"},
    )


def packed(words, width, port):
    """As the contract says: whole words in a beat, the first one lowest; wide ones in beats of their own."""
    if width > port:
        parts = -(-width // port)
        return [word >> port * part & ((1 << port) - 1) for word in words for part in range(parts)]
    count = port // width
    groups = [words[at : at + count] for at in range(0, len(words), count)]
    return [sum(word << width * place for place, word in enumerate(group)) for group in groups]


def vectors():
    draws = drawn(st.tuples(layers(), st.integers(0, 7), PORTS))
    return [outside(layer(number, *each), choice, port) for number, (each, choice, port) in enumerate(draws)]


@st.composite
def images(draw):
    windows, shape, filters, groups, lanes, formats = draw(convolutions())
    assume(groups == 1)
    return (windows, shape, filters, groups, lanes, formats), draw(st.integers(0, 7)), draw(PORTS)


def windows():
    draws = drawn(images())
    return [outside(convolution(number, *each), choice, port) for number, (each, choice, port) in enumerate(draws)]


def test_a_layer_with_weights_from_outside_is_the_arithmetic_of_linear():
    cases = vectors()
    assert {case.parameters["ROWS"] > 1 for case in cases} == {True, False}
    Bench(cases).check_all()


def test_a_convolution_with_weights_from_outside_is_the_arithmetic_of_conv2d():
    cases = windows()
    assert {case.parameters["ROWS"] > 1 for case in cases} == {True, False}
    Bench(cases).check_all()


def test_groups_of_vectors_follow_each_other_without_a_gap():
    """If the weights keep up: all multipliers work in every cycle from the first group on."""
    foldings = [((4, 4), 16, 64, 5), ((1, 1), 8, 8, 5), ((8, 1), 8, 6, 3), ((2, 8), 16, 8, 1), ((2, 2), 8, 8, 0)]
    cases = [
        outside(layer(number, PLAIN, *sizes, lanes), choice, 128)
        for number, (lanes, *sizes, choice) in enumerate(foldings)
    ]
    for result, (lanes, ins, outs, _) in zip(Bench(cases).run(), foldings, strict=True):
        assert result.fine
        vectors, rows = result.total // (outs // lanes[1]), result.case.parameters["ROWS"]
        cycles = (vectors - rows) * ins // lanes[0] * outs // lanes[1]
        taken = result.last_cycle - result.first_cycle
        assert abs(taken - cycles) <= rows * outs // lanes[1] + ins, (lanes, ins, outs)


# The reader, with a memory whose words are their own addresses.

_READER = """
logic [{count}*{port}-1:0] beats; logic [{count}-1:0] valid, ready; logic error;
logic [63:0] araddr, at; logic [7:0] arlen, left; logic [2:0] arsize; logic [1:0] arburst; logic [3:0] arcache;
logic [2:0] arprot; logic arid, arvalid, arready, rlast, rvalid, rready, busy; logic [3:0] wait_for;
axi_reader #({parameters}) reader (.clk, .rst, .aresetn(!rst), .enable(1'b1), .base(64'h1_2345_6000), .error,
  .data_out_0(beats), .data_out_0_valid(valid), .data_out_0_ready(ready), .m_axi_arid(arid), .m_axi_araddr(araddr),
  .m_axi_arlen(arlen), .m_axi_arsize(arsize), .m_axi_arburst(arburst), .m_axi_arcache(arcache), .m_axi_arprot(arprot),
  .m_axi_arvalid(arvalid), .m_axi_arready(arready), .m_axi_rid(1'b0), .m_axi_rdata({port}'(at)), .m_axi_rresp(2'b00),
  .m_axi_rlast(rlast), .m_axi_rvalid(rvalid), .m_axi_rready(rready));
assign arready = !busy;
assign rvalid = busy && wait_for == 0;
assign rlast = left == 0;
always_ff @(posedge clk) begin
  if (rst) busy <= 1'b0;
  else if (arvalid && arready) begin
    busy <= 1'b1; at <= araddr; left <= arlen; wait_for <= araddr[8:5];
    if (1 << arsize != {port} / 8 || arburst != 1 || (araddr ^ (araddr + arlen * ({port} / 8))) >> 12 != 0) $stop;
  end else if (rvalid && rready) begin
    at <= at + {port} / 8; left <= left - 1; busy <= left != 0;
  end else if (busy && wait_for != 0) wait_for <= wait_for - 1;
end
"""
_STREAM = """
assign ready[{k}] = {{data_out_{k}_ready}} && {{data_in_{k}_valid}};
assign {{data_out_{k}_valid}} = valid[{k}] && {{data_in_{k}_valid}};
assign {{data_in_{k}_ready}} = {{data_out_{k}_ready}} && valid[{k}];
assign {{data_out_{k}}} = beats[{k}*{port}+:{port}];
"""


def reader(number, sizes, port, burst):
    """Regions of some beats each, a page apart; a stream of tokens ends what never ends."""
    offsets = [4096 * (2 * k + 1) for k in range(len(sizes))]
    parameters = {
        "COUNT": len(sizes),
        "BUS_WIDTH": port,
        "BURST": burst,
        "OUTSTANDING": 1 + number % 4,
        "DEPTH": burst * (1 + number % 3),
        "OFFSETS": _joined(offsets),
        "BEATS": _joined(sizes),
    }
    body = _READER.format(
        count=len(sizes), port=port, parameters=", ".join(f".{key}({value})" for key, value in parameters.items())
    )
    body = body.replace("{", "{{").replace("}", "}}")  # of the parameters
    body += "".join(_STREAM.format(k=k, port=port) for k in range(len(sizes)))
    ins, outs = {}, {}
    for k, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        region = [0x1_2345_6000 + offset + beat * port // 8 & (1 << port) - 1 for beat in range(size)]
        wanted = (region * -(-90 // size))[:90]
        ins[f"data_in_{k}"], outs[f"data_out_{k}"] = Stream(1, [1] * len(wanted)), Stream(port, wanted)
    return Case("axi_reader", parameters, ins, outs, body=body, uses=("axi_reader",))


def _joined(values):
    return "{" + ", ".join(f"32'd{value}" for value in reversed(values)) + "}"


def readers():
    sizes = st.lists(st.integers(1, 70), min_size=1, max_size=3).map(tuple)
    return [
        reader(number, *each) for number, each in enumerate(drawn(st.tuples(sizes, PORTS, st.sampled_from((1, 4, 16)))))
    ]


def test_the_reader_gives_each_region_again_and_again():
    Bench(readers()).check_all()
