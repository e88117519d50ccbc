"""Drives the bus of the top module from the files beside this one: packets, registers, soft reset, wrong packets.

    make cocotb                                  needs Icarus Verilog, and `pip install cocotb cocotbext-axi`
    make cocotb COCOTB="STALL=30 SAMPLES=10"     both sides pause in 30 percent of the cycles; the first ten samples
    make cocotb COCOTB="SIM=verilator"           a Verilator from 5.036 on
"""

import sys
from math import prod
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge, ReadOnly, with_timeout
from cocotb_bench import BASE, IMAGE, PATIENCE, PERIOD, STALL, STREAMS, beats, main, memory, pauses
from cocotbext.axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiResp,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
)
from uio import CHECKSUM, IDENTIFIER, REGISTERS, STREAM_REGISTERS
from uio import IMAGE as WEIGHTS
from uio import STREAMS as OFFSETS

INPUTS = [name for name, about in STREAMS.items() if about["kind"] == "in"]
OUTPUTS = [name for name in STREAMS if name not in INPUTS]
#: A stream of the core -> its name on the bus.
ON_BUS = dict(zip([*INPUTS, *OUTPUTS], OFFSETS, strict=True))
IDLE, WRONG = 2, 4
RUN, RESET = 1, 2


def within(work):
    """Work that has to end, sooner or later."""
    return with_timeout(work, PATIENCE * PERIOD, "ns")


class Bus:
    """The streams and registers of the device, driven by cocotbext-axi."""

    def __init__(self, dut):
        self.dut, self.clk = dut, dut.aclk
        reset = (dut.aclk, dut.aresetn, False)
        self.lite = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi"), *reset)
        self.sources = {name: AxiStreamSource(AxiStreamBus.from_prefix(dut, ON_BUS[name]), *reset) for name in INPUTS}
        self.sinks = {name: AxiStreamSink(AxiStreamBus.from_prefix(dut, ON_BUS[name]), *reset) for name in OUTPUTS}
        if IMAGE.exists():
            self.memory = memory(dut, dut.aclk, dut.aresetn)
        self.width = len(getattr(dut, f"{ON_BUS[INPUTS[0]]}_tdata"))

    async def start(self):
        """Reset, and begin to watch."""
        self.dut.aresetn.value = 0
        Clock(self.clk, PERIOD, unit="ns").start()
        for _ in range(3):
            await FallingEdge(self.clk)
        self.dut.aresetn.value = 1
        for name in OUTPUTS:
            wires = (getattr(self.dut, f"{ON_BUS[name]}_{wire}") for wire in ("tvalid", "tready", "tdata", "tkeep", "tlast"))
            cocotb.start_soon(self.watch(name, *wires))
        for channel, told in (("r", ("rdata", "rresp")), ("b", ("bresp",))):
            names = (f"{channel}valid", f"{channel}ready", *told)
            cocotb.start_soon(self.watch(channel, *(getattr(self.dut, f"s_axi_{wire}") for wire in names)))

    async def watch(self, name, valid, ready, *wires):
        """What is offered stays, unchanged, until it is taken."""
        offered = None
        while True:
            await FallingEdge(self.clk)
            await ReadOnly()
            now = [int(wire.value) for wire in wires] if valid.value else None
            assert offered is None or now == offered, f"{name}: {offered} was offered, and is now {now}"
            offered = None if ready.value else now

    def stall(self, share):
        """Have both sides of all streams pause at random, or no more."""
        for number, port in enumerate((*self.sources.values(), *self.sinks.values())):
            port.set_pause_generator(pauses(number) if share else None)
            port.pause = False

    def packets(self, name):
        """The packets of a stream, as bytes."""
        found, packet, kept = [], bytearray(), self.width // 8
        for word in beats(name):
            keep = word >> self.width & ((1 << kept) - 1)
            packet += (word & ((1 << self.width) - 1)).to_bytes(kept, "little")[: keep.bit_count()]
            if word >> (self.width + kept):
                found.append(bytes(packet))
                packet = bytearray()
        return found

    async def read(self, name, stream=None):
        """A register."""
        offset = REGISTERS[name] if stream is None else OFFSETS[ON_BUS[stream]] + STREAM_REGISTERS[name]
        return await within(self.lite.read_dword(offset))

    async def control(self, value):
        """Write the register CONTROL."""
        await within(self.lite.write_dword(REGISTERS["CONTROL"], value))

    async def late(self, channel, work):
        """Do something while a channel of the registers pauses at first."""
        channel.pause = True
        begun = cocotb.start_soon(work)
        await ClockCycles(self.clk, 9)
        channel.pause = False
        return await begun

    async def quiet(self):
        """Wait until all sources are through and nothing is in flight."""
        for source in self.sources.values():
            await within(source.wait())
        for _ in range(PATIENCE):
            if await self.read("STATUS") & IDLE:
                return
        raise TimeoutError(f"it was busy for {PATIENCE} reads of its status")

    async def receive(self, name):
        """The next packet of an output, without the bytes that count for nothing."""
        return bytes((await within(self.sinks[name].recv())).tdata)

    async def compare(self):
        """Send the packets of all inputs, and compare those of all outputs."""
        for name, source in self.sources.items():
            for packet in self.packets(name):
                source.send_nowait(packet)
        for name in OUTPUTS:
            for number, packet in enumerate(self.packets(name)):
                came = await self.receive(name)
                assert came == packet, f"{name}: packet {number} is {came.hex()}, expected {packet.hex()}"


async def started(dut):
    """The bus after reset."""
    bus = Bus(dut)
    await bus.start()
    if IMAGE.exists():
        await within(bus.lite.write_dword(REGISTERS["WEIGHTS_LOW"], BASE & 0xFFFFFFFF))
        await within(bus.lite.write_dword(REGISTERS["WEIGHTS_HIGH"], BASE >> 32))
    return bus


@cocotb.test()
async def every_packet_is_the_expected_one(dut):
    """All inputs at once, and every output; the registers have counted them."""
    bus = await started(dut)
    bus.stall(STALL)
    await bus.control(RUN)
    await bus.compare()
    bus.stall(0)
    await bus.quiet()
    for name in STREAMS:
        assert await bus.read("SAMPLES", name) == len(bus.packets(name))
        assert await bus.read("ERRORS", name) == 0
    moved = sum(len(beats(name)) for name in STREAMS)
    assert max([await bus.read("STALLS", name) for name in STREAMS]) < await bus.read("CYCLES")
    cocotb.log.info("%d beats, 0 of them wrong", moved)


@cocotb.test()
async def the_registers_are_those_of_the_page(dut):
    """What they tell, what cannot be read or written, and that nothing begins before it may."""
    bus = await started(dut)
    assert [await bus.read(name) for name in ("IDENTIFIER", "VERSION", "CHECKSUM")] == [IDENTIFIER, 0x10001, CHECKSUM]
    size = IMAGE.stat().st_size if IMAGE.exists() else 0
    assert [await bus.read(name) for name in ("WEIGHTS_CHECKSUM", "WEIGHTS_BYTES")] == [WEIGHTS, size]
    await within(bus.lite.write(REGISTERS["WEIGHTS_HIGH"] + 1, b"\x5a"))
    assert await bus.read("WEIGHTS_HIGH") == 0x5A00 | BASE >> 32 & 0xFFFF00FF
    await within(bus.lite.write(REGISTERS["WEIGHTS_HIGH"] + 1, bytes(1)))
    assert await bus.read("STREAMS") == bus.width << 16 | len(OUTPUTS) << 8 | len(INPUTS)
    for name, about in STREAMS.items():
        packet, elements = len(bus.packets(name)[0]), prod(about["shape"])
        assert await bus.read("BYTES", name) == packet
        assert await bus.read("FORMAT", name) & 0xFFFFFF == (
            packet // elements | about["width"] << 8 | (about["fraction_width"] & 255) << 16
        )
    end = max(OFFSETS.values()) + max(STREAM_REGISTERS.values()) + 4
    for offset in (max(REGISTERS.values()) + 4, end, 0xFFC):
        assert (await within(bus.lite.read(offset, 4))).resp == AxiResp.SLVERR
        assert (await within(bus.lite.write(offset, bytes(4)))).resp == AxiResp.SLVERR
    assert (await within(bus.lite.write(REGISTERS["CHECKSUM"], bytes(4)))).resp == AxiResp.SLVERR
    assert await bus.read("CHECKSUM") == CHECKSUM

    for name, source in bus.sources.items():
        source.send_nowait(bus.packets(name)[0])
    await ClockCycles(bus.clk, 50)
    assert [await bus.read(name) for name in ("CONTROL", "STATUS")] == [0, IDLE]
    assert [await bus.read("SAMPLES", name) for name in STREAMS] == [0] * len(STREAMS)

    # The address of a write after its data, before it, an answer that has to wait; and strobes that are low.
    write, read = bus.lite.write_if, bus.lite.read_if
    for value, channel in ((RUN, write.aw_channel), (0, write.w_channel), (RUN, write.b_channel)):
        await bus.late(channel, bus.control(value))
        assert await bus.late(read.r_channel, bus.read("CONTROL")) == value
    await within(bus.lite.write(REGISTERS["CONTROL"] + 1, bytes(3)))
    assert await bus.read("CONTROL") == RUN
    await bus.quiet()
    for name in OUTPUTS:
        assert await bus.receive(name) == bus.packets(name)[0]


@cocotb.test()
async def a_soft_reset_leaves_no_torn_packet(dut):
    """It comes at many moments, in the middle of packets on both sides; what follows is whole and right."""
    bus = await started(dut)
    await bus.control(RUN)
    valid = getattr(dut, f"{ON_BUS[OUTPUTS[0]]}_tvalid")
    for moment in range(10):
        for sink in bus.sinks.values():
            sink.pause = True
        for name, source in bus.sources.items():
            source.send_nowait(bus.packets(name)[0])
            source.send_nowait(bus.packets(name)[1])
        await ClockCycles(bus.clk, moment + 2)
        if moment % 2:  # something is on offer
            await within(valid.value_change) if not valid.value else None
            await ClockCycles(bus.clk, moment)
        for source in bus.sources.values():
            source.pause = True
        for sink in bus.sinks.values():
            sink.pause = False
        await ClockCycles(bus.clk, moment % 3 + 1)
        for sink in bus.sinks.values():
            sink.pause = True
        await bus.control(RUN | RESET)
        for port in (*bus.sources.values(), *bus.sinks.values()):
            port.pause = False
        await bus.quiet()
        for name, sink in bus.sinks.items():
            while not sink.empty():
                assert len(await bus.receive(name)) == len(bus.packets(name)[0])
            assert sink.idle(), f"{name}: the last packet has no end"
        assert [await bus.read("ERRORS", name) for name in STREAMS] == [0] * len(STREAMS)
        await bus.control(RUN | RESET)
        assert [await bus.read("SAMPLES", name) for name in STREAMS] == [0] * len(STREAMS)
        bus.stall(STALL)
        await bus.compare()
        bus.stall(0)
        await bus.quiet()
        assert [await bus.read("SAMPLES", name) for name in STREAMS] == [len(bus.packets(name)) for name in STREAMS]


def wrong_packets(packet, width):
    """A packet that is too short, too long, or has bytes that count for nothing."""
    size, lanes = len(packet), width // 8
    yield AxiStreamFrame(packet + packet[:1])
    yield AxiStreamFrame(packet * 3)
    yield AxiStreamFrame(packet, tkeep=[0] + [1] * (size - 1))
    for count in {size - 1, size // 2, min(lanes, size - 1)} - {0}:
        yield AxiStreamFrame(packet[:count])


@cocotb.test()
async def a_wrong_packet_is_counted_and_spoils_nothing_behind_it(dut):
    """Each input in turn has all sorts of them, between packets that are right."""
    bus = await started(dut)
    bus.stall(STALL)
    await bus.control(RUN)
    for spoilt in INPUTS:
        await bus.control(RUN | RESET)
        count = 0
        for wrong in wrong_packets(bus.packets(spoilt)[0], bus.width):
            count += 1
            for name, source in bus.sources.items():
                source.send_nowait(wrong if name == spoilt else bus.packets(name)[0])
                source.send_nowait(bus.packets(name)[1])
            for name in OUTPUTS:
                assert len(await bus.receive(name)) == len(bus.packets(name)[0])
                assert await bus.receive(name) == bus.packets(name)[1]
        await bus.quiet()
        assert [await bus.read("ERRORS", name) for name in STREAMS] == [count * (name == spoilt) for name in STREAMS]
        assert await bus.read("STATUS") == IDLE | WRONG
        assert [await bus.read("SAMPLES", name) for name in STREAMS] == [2 * count] * len(STREAMS)
        bus.stall(0)
        await bus.compare()


if __name__ == "__main__":
    sys.exit(main(Path(__file__).stem))
