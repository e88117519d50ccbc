"""What moves beats and changes no number: buffers, fork, join, converters of width, repetition."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import strategies as st

from tests.rtl.bench import Bench, Case, Stream
from tests.rtl.draws import drawn, generator, integers

WIDTHS = st.integers(1, 70)


def beats(width, count, number):
    """Random beats of `width` bits, each as one integer."""
    bytes_of = integers(9, count, (width + 7) // 8, generator=generator(number)) & 255
    return [int.from_bytes(bytes(row), "little") & ((1 << width) - 1) for row in bytes_of.tolist()]


def through(module, number, width, **parameters):
    """A component that gives what it got."""
    stream = Stream(width, beats(width, 200, number))
    parameters = {"DATA_WIDTH": width, **parameters}
    return Case(module, parameters, {"data_in_0": stream}, {"data_out_0": stream})


def skid_buffers():
    return [through("skid_buffer", number, width) for number, width in enumerate(drawn(WIDTHS))]


def fifos():
    draws = drawn(st.tuples(WIDTHS, st.one_of(st.integers(1, 9), st.integers(30, 70))))
    return [through("fifo", number, width, DEPTH=depth) for number, (width, depth) in enumerate(draws)]


FORK = """logic v, r; logic [{count}-1:0] ov, orr;
stream_fork #(.COUNT({count})) fork_0 (.clk, .rst, .data_in_0_valid({{data_in_0_valid}}),
  .data_in_0_ready({{data_in_0_ready}}), .data_out_0_valid(ov), .data_out_0_ready(orr));
"""


def fork(number, width, count):
    """The same beats for all consumers."""
    stream = Stream(width, beats(width, 200, number))
    outs = {f"data_out_{k}": stream for k in range(count)}
    body = FORK.format(count=count) + "".join(
        f"assign {{data_out_{k}}} = {{data_in_0}}; assign {{data_out_{k}_valid}} = ov[{k}];"
        f" assign orr[{k}] = {{data_out_{k}_ready}};\n"
        for k in range(count)
    )
    return Case("stream_fork", {"COUNT": count}, {"data_in_0": stream}, outs, body=body)


def forks():
    return [fork(n, width, count) for n, (width, count) in enumerate(drawn(st.tuples(WIDTHS, st.integers(1, 6))))]


def join(number, width, count):
    """The beats of all inputs side by side."""
    ins = {f"data_in_{k}": Stream(width, beats(width, 200, number * 10 + k)) for k in range(count)}
    together = [
        sum(beat << (k * width) for k, beat in enumerate(row))
        for row in zip(*(s.beats for s in ins.values()), strict=True)
    ]

    def side_by_side(suffix):
        return "{{" + ", ".join(f"{{data_in_{k}{suffix}}}" for k in reversed(range(count))) + "}}"

    body = (
        f"assign {{data_out_0}} = {side_by_side('')};\n"
        f"stream_join #(.COUNT({count})) join_0 (.data_in_0_valid({side_by_side('_valid')}), "
        f".data_in_0_ready({side_by_side('_ready')}), "
        ".data_out_0_valid({data_out_0_valid}), .data_out_0_ready({data_out_0_ready}));"
    )
    return Case("stream_join", {"COUNT": count}, ins, {"data_out_0": Stream(count * width, together)}, body=body)


def joins():
    return [join(n, width, count) for n, (width, count) in enumerate(drawn(st.tuples(WIDTHS, st.integers(1, 5))))]


def grouped(elements, width, lanes):
    return [
        sum(e << (k * width) for k, e in enumerate(elements[at : at + lanes])) for at in range(0, len(elements), lanes)
    ]


def converter(number, width, lanes_in, lanes_out):
    elements = beats(width, 12 * lanes_in * lanes_out, number)
    parameters = {
        "DATA_IN_0_PRECISION_0": width,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes_in,
        "DATA_OUT_0_PARALLELISM_DIM_0": lanes_out,
    }
    into = Stream(lanes_in * width, grouped(elements, width, lanes_in))
    out = Stream(lanes_out * width, grouped(elements, width, lanes_out))
    return Case("width_converter", parameters, {"data_in_0": into}, {"data_out_0": out})


def converters():
    draws = drawn(st.tuples(st.integers(1, 20), st.integers(1, 8), st.integers(1, 8)))
    return [converter(number, *draw) for number, draw in enumerate(draws)]


def repeated(number, width, length, count, spare):
    given = beats(width, 20 * length, number)
    vectors = [given[at : at + length] for at in range(0, len(given), length)]
    expected = list(itertools.chain.from_iterable(vector * count for vector in vectors))
    parameters = {"DATA_WIDTH": width, "LENGTH": length, "COUNT": count, "DEPTH": length + spare}
    return Case(
        "repeat_buffer", parameters, {"data_in_0": Stream(width, given)}, {"data_out_0": Stream(width, expected)}
    )


def repeats():
    draws = drawn(st.tuples(st.integers(1, 40), st.integers(1, 9), st.integers(1, 6), st.integers(0, 12)))
    return [repeated(number, *draw) for number, draw in enumerate(draws)]


def concatenated(number, width, first, second):
    vectors = 25
    left, right = beats(width, vectors * first, 2 * number), beats(width, vectors * second, 2 * number + 1)
    together = [
        beat
        for k in range(vectors)
        for beat in (*left[k * first : (k + 1) * first], *right[k * second : (k + 1) * second])
    ]
    return Stream(width, left), Stream(width, right), Stream(width, together)


PARTS = st.tuples(st.integers(1, 40), st.integers(1, 6), st.integers(1, 6))


def concats():
    cases = []
    for number, (width, first, second) in enumerate(drawn(PARTS)):
        left, right, together = concatenated(number, width, first, second)
        parameters = {"DATA_WIDTH": width, "DATA_IN_0_BEATS": first, "DATA_IN_1_BEATS": second}
        ins = {"data_in_0": left, "data_in_1": right}
        cases.append(Case("stream_concat", parameters, ins, {"data_out_0": together}))
    return cases


def splits():
    cases = []
    for number, (width, first, second) in enumerate(drawn(PARTS)):
        left, right, together = concatenated(number, width, first, second)
        parameters = {"DATA_WIDTH": width, "DATA_OUT_0_BEATS": first, "DATA_OUT_1_BEATS": second}
        outs = {"data_out_0": left, "data_out_1": right}
        cases.append(Case("stream_split", parameters, {"data_in_0": together}, outs))
    return cases


IN_TURN = """logic [{count}-1:0] ov, orr, iv, ir; logic [{count}*{width}-1:0] beats; logic v, r;
round_robin_split #(.COUNT({count}), .BEATS({beats})) split_0 (.clk, .rst, .data_in_0_valid({{data_in_0_valid}}),
  .data_in_0_ready({{data_in_0_ready}}), .data_out_0_valid(ov), .data_out_0_ready(orr));
for (genvar k = 0; k < {count}; k++) begin : g_copies
  fifo #(.DATA_WIDTH({width}), .DEPTH({beats} + 1)) fifo_0 (.clk, .rst, .data_in_0({{data_in_0}} ^ {width}'(k)),
    .data_in_0_valid(ov[k]), .data_in_0_ready(orr[k]), .data_out_0(beats[k*{width}+:{width}]),
    .data_out_0_valid(iv[k]), .data_out_0_ready(ir[k]));
end
round_robin_merge #(.DATA_WIDTH({width}), .COUNT({count}), .BEATS({beats})) merge_0 (.clk, .rst, .data_in_0(beats),
  .data_in_0_valid(iv), .data_in_0_ready(ir), .data_out_0({{data_out_0}}), .data_out_0_valid({{data_out_0_valid}}),
  .data_out_0_ready({{data_out_0_ready}}));"""


def in_turn(number, width, count, length):
    """Samples of `length` beats through consumers that take turns; each changes its beats in a way of its own."""
    data = beats(width, 20 * count * length, number)
    out = [beat ^ index // length % count % (1 << width) for index, beat in enumerate(data)]
    body, uses = (
        IN_TURN.format(count=count, width=width, beats=length),
        ("round_robin_merge", "round_robin_split", "fifo"),
    )
    ins, outs = {"data_in_0": Stream(width, data)}, {"data_out_0": Stream(width, out)}
    return Case("round_robin_split", {"COUNT": count, "BEATS": length}, ins, outs, body=body, uses=uses)


def all_in_turn():
    draws = drawn(st.tuples(st.integers(1, 20), st.integers(1, 7), st.integers(1, 5)))
    return [in_turn(number, *each) for number, each in enumerate(draws)]


CONSTANT = """logic [{width}-1:0] constant; logic v, r;
constant_stream #(.DATA_WIDTH({width}), .DEPTH({depth}), .FILE("case_{number}_file.mem")) source (.clk, .rst,
  .data_out_0(constant), .data_out_0_valid(v), .data_out_0_ready(r));
stream_join #(.COUNT(2)) joins (.data_in_0_valid({{{{v, {{data_in_0_valid}}}}}}),
  .data_in_0_ready({{{{r, {{data_in_0_ready}}}}}}), .data_out_0_valid({{data_out_0_valid}}),
  .data_out_0_ready({{data_out_0_ready}}));
assign {{data_out_0}} = {{{{constant, {{data_in_0}}}}}};"""


def constants():
    cases = []
    for number, (width, depth) in enumerate(drawn(st.tuples(st.integers(1, 40), st.integers(1, 9)))):
        words, data = beats(width, depth, 2 * number), beats(width, 20 * depth, 2 * number + 1)
        beside = [beat | (word << width) for beat, word in zip(data, itertools.cycle(words), strict=False)]
        body = CONSTANT.format(width=width, depth=depth, number="{number}")  # of the case in its bench
        ins, outs = {"data_in_0": Stream(width, data)}, {"data_out_0": Stream(2 * width, beside)}
        uses, memories = ("constant_stream", "stream_join"), {"FILE": (width, words)}
        cases.append(Case("constant_stream", {"DEPTH": depth}, ins, outs, memories, body, uses))
    return cases


AXI = """logic [1:0] samples, stalls, errors, active; logic own, enable;
logic [{wide}-1:0] core; logic core_valid, core_ready;
axi_registers #(.ENABLED(1)) registers (.clk, .aresetn(!rst), .rst(own), .enable, .samples, .stalls, .errors, .active,
  .weights_base(), .weights_error('0),
  .s_axi_awaddr('0), .s_axi_awprot('0), .s_axi_awvalid('0), .s_axi_awready(), .s_axi_wdata('0), .s_axi_wstrb('0),
  .s_axi_wvalid('0), .s_axi_wready(), .s_axi_bresp(), .s_axi_bvalid(), .s_axi_bready('1), .s_axi_araddr('0),
  .s_axi_arprot('0), .s_axi_arvalid('0), .s_axi_arready(), .s_axi_rdata(), .s_axi_rresp(), .s_axi_rvalid(),
  .s_axi_rready('1));
axi_stream #(.FROM_BUS(1), {parameters}) into (.clk, .aresetn(!rst), .rst(own), .enable, .sample(samples[0]),
  .stalls(stalls[0]), .error(errors[0]), .active(active[0]), .data_in_0({{data_in_0}}[0+:{bus}]),
  .data_in_0_keep({{data_in_0}}[{bus}+:{bus}/8]), .data_in_0_last({{data_in_0}}[{bus}+{bus}/8+:1]),
  .data_in_0_valid({{data_in_0_valid}}), .data_in_0_ready({{data_in_0_ready}}), .data_out_0(core), .data_out_0_keep(),
  .data_out_0_last(), .data_out_0_valid(core_valid), .data_out_0_ready(core_ready));
axi_stream #(.FROM_BUS(0), {parameters}) back (.clk, .aresetn(!rst), .rst(own), .enable(1'b1), .sample(samples[1]),
  .stalls(stalls[1]), .error(errors[1]), .active(active[1]), .data_in_0(core), .data_in_0_keep('0), .data_in_0_last('0),
  .data_in_0_valid(core_valid), .data_in_0_ready(core_ready), .data_out_0({{data_out_0}}[0+:{bus}]),
  .data_out_0_keep({{data_out_0}}[{bus}+:{bus}/8]), .data_out_0_last({{data_out_0}}[{bus}+{bus}/8+:1]),
  .data_out_0_valid({{data_out_0_valid}}), .data_out_0_ready({{data_out_0_ready}}));"""


def on_axi(number, width, lanes, times, signed, bus):
    """Packets through both ends of a core that is a wire; some are cut short or too long.

    What comes in has anything in the bits that do not count, and what goes out zeros there, or signs.
    """
    size, room = lanes * times, 8 << ((width - 1) // 8).bit_length()
    bus = max(bus, room)
    per, kept = bus // room, bus // 8
    count = -(-size // per)
    came, sent = [], []
    for sample in range(40):
        elements = beats(width, size, 40 * number + sample)
        words = beats(64, 2 * count * (bus // 32), 40 * number + sample)
        words = [
            sum(word << 32 * k for k, word in enumerate(words[at :: 2 * count])) % (1 << bus) for at in range(2 * count)
        ]
        for index, element in enumerate(elements):
            at = index % per * room
            words[index // per] = words[index // per] & ~(((1 << width) - 1) << at) | element << at
        ends = {3: sample % count, 4: count + sample % count}.get(sample % 5, count - 1)
        rest = (size - (count - 1) * per) * room // 8
        keep = [(1 << kept) - 1] * (2 * count)
        keep[count - 1] = (1 << rest) - 1
        came += [words[at] | keep[at] << bus | (at == ends) << (bus + kept) for at in range(ends + 1)]
        known = [element if index < (ends + 1) * per else 0 for index, element in enumerate(elements)]
        wide = [(e - (e >> (width - 1) << width if signed else 0)) % (1 << room) for e in known]
        whole = grouped(wide, room, per)
        sent += [word | keep[at] << bus | (at == count - 1) << (bus + kept) for at, word in enumerate(whole)]
    parameters = {
        "BUS_WIDTH": bus,
        "ELEMENT_BYTES": room // 8,
        "SIGNED": int(signed),
        "DATA_IN_0_PRECISION_0": width,
        "DATA_IN_0_TENSOR_SIZE_DIM_0": size,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
    }
    written = ", ".join(f".{name}({value})" for name, value in parameters.items())
    body = AXI.format(wide=lanes * width, bus=bus, parameters=written)
    ins, outs = {"data_in_0": Stream(bus + kept + 1, came)}, {"data_out_0": Stream(bus + kept + 1, sent)}
    return Case("axi_stream", parameters, ins, outs, body=body, uses=("axi_stream", "axi_registers"))


def axi_streams():
    lanes, times = st.integers(1, 9), st.integers(1, 7)
    draws = drawn(st.tuples(st.integers(2, 64), lanes, times, st.booleans(), st.sampled_from((32, 64, 128))))
    return [on_axi(number, *each) for number, each in enumerate(draws)]


def embeddings():
    cases = []
    draws = drawn(st.tuples(st.integers(1, 30), st.integers(1, 4), st.integers(1, 3), st.integers(2, 9)))
    for number, (rows, count, lanes, width) in enumerate(draws):
        words = beats(width * lanes, rows * count, number)
        bits = max((rows - 1).bit_length(), 1) + number % 3
        indices = [index % rows for index in beats(20, 60, number + 100)]
        expected = [word for index in indices for word in words[index * count : (index + 1) * count]]
        parameters = {
            "DATA_IN_0_PRECISION_0": bits,
            "NUM_EMBEDDINGS": rows,
            "DATA_OUT_0_PRECISION_0": width,
            "DATA_OUT_0_TENSOR_SIZE_DIM_0": count * lanes,
            "DATA_OUT_0_PARALLELISM_DIM_0": lanes,
        }
        ins, outs = {"data_in_0": Stream(bits, indices)}, {"data_out_0": Stream(width * lanes, expected)}
        cases.append(Case("embedding", parameters, ins, outs, {"FILE": (width * lanes, words)}))
    return cases


COMPONENTS = {
    "stream_concat": concats,
    "stream_split": splits,
    "round_robin_split": all_in_turn,
    "axi_stream": axi_streams,
    "constant_stream": constants,
    "embedding": embeddings,
    "skid_buffer": skid_buffers,
    "fifo": fifos,
    "stream_fork": forks,
    "stream_join": joins,
    "width_converter": converters,
    "repeat_buffer": repeats,
}


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_beat_arrives_once_in_order_and_unchanged(name):
    Bench(COMPONENTS[name]()).check_all()


def test_a_wrong_beat_is_noticed():
    case = through("skid_buffer", 0, 9)
    wrong = [*case.outputs["data_out_0"].beats]
    wrong[77] ^= 1
    (result,) = Bench([Case("skid_buffer", case.parameters, case.inputs, {"data_out_0": Stream(9, wrong)})]).run()
    assert (result.mismatches, result.first_mismatch) == (1, 77)
    assert not result.fine


def test_a_beat_that_is_withdrawn_stops_the_simulation():
    case = through("fifo", 0, 9, DEPTH=2)
    body = """logic even, ready; always_ff @(posedge clk) even <= !even && !rst;
      assign {data_in_0_ready} = ready && even;
      fifo #(.DATA_WIDTH(9), .DEPTH(2)) rows (.clk, .rst, .data_in_0({data_in_0}),
        .data_in_0_valid({data_in_0_valid} && even), .data_in_0_ready(ready), .data_out_0({data_out_0}),
        .data_out_0_valid({data_out_0_valid}), .data_out_0_ready({data_out_0_ready}));"""
    bench = Bench([replace(case, body=body)])
    with pytest.raises(AssertionError, match=r"check_in\.offered_stays: valid fell before ready"):
        bench.run("--stall", 60)


def test_a_beat_that_does_not_come_is_noticed():
    case = through("skid_buffer", 0, 9)
    longer = Stream(9, [*case.outputs["data_out_0"].beats, 3])
    (result,) = Bench([Case("skid_buffer", case.parameters, case.inputs, {"data_out_0": longer})]).run(
        "--patience", 500
    )
    assert (result.moved, result.total) == (200, 201)


def test_a_beat_too_many_is_noticed():
    case = through("skid_buffer", 0, 9)
    shorter = Stream(9, case.outputs["data_out_0"].beats[:-1])
    (result,) = Bench([Case("skid_buffer", case.parameters, case.inputs, {"data_out_0": shorter})]).run()
    assert result.surplus == 1
