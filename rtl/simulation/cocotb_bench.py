"""Drives every input of the top module from the files beside this one, and compares every beat of every output.

    make cocotb                                  needs Icarus Verilog, and `pip install cocotb`
    make cocotb COCOTB="STALL=30 SAMPLES=10"     both sides pause in 30 percent of the cycles; the first ten samples
    make cocotb COCOTB="RESET=99"                reset at this cycle, and begin again
    make cocotb COCOTB="SIM=verilator"           a Verilator from 5.036 on

Weights from outside come from the memory of cocotbext-axi (`pip install cocotbext-axi`), which pauses as all others do.
"""

import json
import os
import random
import sys
from math import prod
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

HERE = Path(__file__).resolve().parent
STREAMS = json.loads((HERE / "streams.json").read_text())
STALL = int(os.environ.get("STALL", "0"))
SAMPLES = int(os.environ.get("SAMPLES", "0"))
RESET = int(os.environ.get("RESET", "0"))
LATENCY = int(os.environ.get("LATENCY", "20"))
#: The weights outside, and where they are in memory.
IMAGE = HERE.parent / "weights.bin"
BASE = 0x7654_3000
#: So many cycles without a beat are nothing strange.
PATIENCE = int(os.environ.get("PATIENCE") or (HERE / "plan").read_text().split()[1])
PERIOD = 10


def beats(name):
    """The beats of a stream as integers, of the first samples where only those are wanted."""
    found = [int(line, 16) for line in (HERE / f"{name}.hex").read_text().split()]
    about = STREAMS[name]
    return found[: SAMPLES * -(-prod(about["shape"]) // about["lanes"])] if SAMPLES else found


def pauses(seed):
    """An endless row of yes and no."""
    chance = random.Random(seed)
    while True:
        yield chance.randrange(100) < STALL


def late(seed):
    """An endless row of pauses: many cycles long, as a memory's, then none for as many."""
    chance = random.Random(seed)
    while True:
        yield from [True] * chance.randrange(2 * LATENCY + 1)
        yield from [False] * chance.randrange(1, 2 * LATENCY + 2)


def memory(dut, clk, aresetn):
    """The memory with weights, which pauses on both channels; each burst in it is looked at."""
    from cocotbext.axi import AxiRamRead, AxiReadBus

    ram = AxiRamRead(AxiReadBus.from_prefix(dut, "m_axi"), clk, aresetn, False, size=2**32)
    ram.write(BASE, IMAGE.read_bytes())
    if STALL:
        ram.ar_channel.set_pause_generator(pauses(91))
        ram.r_channel.set_pause_generator(late(92))
    cocotb.start_soon(watch_bursts(dut, clk, aresetn))
    return ram


async def watch_bursts(dut, clk, aresetn):
    """Every burst is INCR, stays within 4 KiB and in the image, and waits unchanged for its ready."""
    offered, width = None, len(dut.m_axi_rdata) // 8
    while True:
        await FallingEdge(clk)
        await ReadOnly()
        if not aresetn.value:
            offered = None
            continue
        if not dut.m_axi_arvalid.value:
            assert offered is None, f"the burst {offered} was withdrawn"
            continue
        now = tuple(int(getattr(dut, f"m_axi_ar{wire}").value) for wire in ("addr", "len", "size", "burst"))
        assert offered in (None, now), f"the burst {offered} is now {now}"
        first, last = now[0], now[0] + (now[1] + 1) * width - 1
        assert 1 << now[2] == width, f"beats of {1 << now[2]} bytes"
        assert now[3] == 1, f"a burst of type {now[3]}"
        assert first >> 12 == last >> 12, f"{first:#x} to {last:#x} crosses 4 KiB"
        assert BASE <= first <= last < BASE + IMAGE.stat().st_size, f"{first:#x} to {last:#x} is outside of the image"
        offered = None if dut.m_axi_arready.value else now


class Port:
    """A stream of the top module. What is driven stays from one falling edge to the next; rising ones look at it."""

    def __init__(self, dut, name):
        self.clk, self.pauses, self.name = dut.clk, pauses(name), name
        self.data, self.valid, self.ready = (getattr(dut, name + end) for end in ("", "_valid", "_ready"))

    async def give(self, words):
        """Offer word after word until each is taken."""
        for word in words:
            await self.pause()
            self.data.value, self.valid.value = word, 1
            await self.agreed(self.ready)
            self.valid.value = 0

    async def take(self, words):
        """Compare what comes with word after word; the number of those that differ."""
        wrong = 0
        for number, word in enumerate(words):
            await self.pause()
            self.ready.value = 1
            came = await self.agreed(self.valid)
            self.ready.value = 0
            if came != word:
                wrong += 1
                cocotb.log.error("%s: beat %d is %x, expected %x", self.name, number, came, word)
        return wrong

    async def pause(self):
        """Let some cycles pass, if both sides shall stall."""
        while next(self.pauses):
            await FallingEdge(self.clk)

    async def agreed(self, other):
        """Wait for a cycle in which the other side says yes, to its end; the data in it."""
        for _ in range(PATIENCE):
            await ReadOnly()
            says, data = other.value, self.data.value
            await FallingEdge(self.clk)
            if says:
                return int(data)
        raise TimeoutError(f"{self.name}: nothing moved in {PATIENCE} cycles")


@cocotb.test()
async def every_beat_is_the_expected_one(dut):
    """All inputs at once, and every output."""
    ports = {name: Port(dut, name) for name in STREAMS}
    inputs = [name for name, about in STREAMS.items() if about["kind"] == "in"]
    Clock(dut.clk, PERIOD, unit="ns").start()
    dut.rst.value = 1
    if IMAGE.exists():
        dut.weights_aresetn.value, dut.weights_enable.value, dut.weights_base.value = 0, 1, BASE
        memory(dut, dut.clk, dut.weights_aresetn)
    expected = {name: beats(name) for name in STREAMS if name not in inputs}

    async def begin():
        for name in STREAMS:
            (ports[name].valid if name in inputs else ports[name].ready).value = 0
        dut.rst.value = 1
        for _ in range(3):
            await FallingEdge(dut.clk)
        dut.rst.value = 0
        givers = [cocotb.start_soon(ports[name].give(beats(name))) for name in inputs]
        return givers, [cocotb.start_soon(ports[name].take(words)) for name, words in expected.items()]

    givers, takers = await begin()
    if IMAGE.exists():
        dut.weights_aresetn.value = 1  # and stays, so that a reset finds bursts under way
    if RESET:
        for _ in range(RESET):
            await FallingEdge(dut.clk)
        for each in (*givers, *takers):
            each.cancel()
        givers, takers = await begin()
    wrong = sum([await taker for taker in takers])
    cocotb.log.info("%d beats, %d of them wrong", sum(map(len, expected.values())), wrong)
    assert wrong == 0


def sources(simulator, folder):
    """The files to build; Icarus 11 takes no message of the elaboration, but one that is given when it starts."""
    files = [folder / line for line in (folder / "files.f").read_text().split()]
    if simulator != "icarus":
        return files
    copies = HERE / "cocotb" / "sources"
    copies.mkdir(parents=True, exist_ok=True)
    for path in files:
        (copies / path.name).write_text(path.read_text().replace("$error(", "initial $error("))
    return [copies / path.name for path in files]


def main(test=Path(__file__).stem):
    """Build the design, and run the tests of a file beside this one in it; 1 where one fails."""
    from cocotb_tools.runner import get_results, get_runner

    simulator, folder, module = os.environ.get("SIM", "icarus"), HERE.parent, test.removeprefix("test_")
    runner, place = get_runner(simulator), HERE / "cocotb"
    runner.build(sources=sources(simulator, folder), hdl_toplevel=module, build_dir=place, timescale=("1ns", "1ps"))
    results = runner.test(
        hdl_toplevel=module, test_module=f"test_{module}", build_dir=place, test_dir=folder, results_xml=place / "results.xml"
    )
    count, failed = get_results(results)
    return 0 if count and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
