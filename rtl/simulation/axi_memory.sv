// A memory behind the read channels of AXI4, for simulation: FILE has a beat a line, hexadecimal, and begins at the
// address BASE. The first beat of a burst comes LATENCY cycles after its address, and PACE beats in 1024 cycles at most; with
// +stall=PERCENT neither channel moves in this share of the cycles. A burst that AXI4 does not allow, or that leaves the
// memory, ends the simulation.
module axi_memory #(
    parameter int BUS_WIDTH = 64,
    parameter int WORDS = 1,
    parameter int LATENCY = 24,
    parameter int PACE = 1024,
    parameter logic [63:0] BASE = 64'd0,
    parameter FILE = "sim/weights.hex"
) (
    input  logic                 clk,
    input  logic                 aresetn,
    input  logic [         63:0] araddr,
    input  logic [          7:0] arlen,
    input  logic [          2:0] arsize,
    input  logic [          1:0] arburst,
    input  logic                 arvalid,
    output logic                 arready,
    output logic [BUS_WIDTH-1:0] rdata,
    output logic [          1:0] rresp,
    output logic                 rlast,
    output logic                 rvalid,
    input  logic                 rready
);
  localparam int Bytes = BUS_WIDTH / 8;

  logic [BUS_WIDTH-1:0] memory[WORDS];
  int stall;

  initial begin
    $readmemh(FILE, memory);
    if (!$value$plusargs("stall=%d", stall)) stall = 0;
  end

  // The bursts that were asked for, in a ring: the words that they still have to give, and from when on.
  logic [63:0] nexts[16], lasts[16], dues[16];
  logic [3:0] head, tail;
  logic [4:0] count;  // bursts that have words to give
  logic [63:0] now, at, last;
  int credit;  // beats that may come, in parts of 1024
  logic taken, gives, ends;

  assign at = (araddr - BASE) / Bytes;
  assign last = at + 64'(arlen);
  assign taken = arvalid && arready;
  assign rresp = 2'b00;
  assign gives = count != 0 && dues[head] <= now && credit >= 1024 && (!rvalid || rready) && !pauses;
  assign ends = gives && nexts[head] == lasts[head];

  logic pauses;  // in this cycle
  always @(posedge clk) pauses <= $urandom_range(99) < stall;

  always @(posedge clk) begin
    if (!aresetn) begin
      {head, tail, count, now, rvalid, arready} <= '0;
      credit <= 1024;
    end else begin
      now <= now + 1;
      credit <= (credit < 2048 || PACE == 1024 ? credit + PACE : credit) - (gives || PACE == 1024 ? 1024 : 0);
      arready <= count < 14 && $urandom_range(99) >= stall;
      if (taken) begin
        if (arburst != 2'b01 || 1 << arsize != Bytes || araddr % Bytes != 0) $fatal(1, "a burst of another kind");
        if (araddr[63:12] != (araddr + 64'(arlen) * Bytes) >> 12) $fatal(1, "a burst crosses 4 KiB");
        if (araddr < BASE || last >= WORDS) $fatal(1, "a burst outside of the memory");
        nexts[tail] <= at;
        lasts[tail] <= last;
        dues[tail] <= now + LATENCY;
        tail <= tail + 1;
      end
      count <= count + 5'(taken) - 5'(ends);
      if (ends) head <= head + 1;
      else if (gives) nexts[head] <= nexts[head] + 1;
      if (gives) begin
        rdata <= memory[nexts[head]];
        rlast <= ends;
      end
      if (!rvalid || rready) rvalid <= gives;
    end
  end
endmodule
