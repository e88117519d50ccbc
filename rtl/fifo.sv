/// First in, first out: DEPTH beats of storage, any DEPTH from 1 on.
/// One cycle of latency, one beat per cycle (DEPTH 1: one every two cycles). `data_in_0_ready` depends on registers
/// alone, so the ready path is cut. Up to 32 beats stand in distributed memory, more in block memory.
/// Does not pass a beat through in the cycle in which it arrives.
module fifo #(
    parameter int DATA_WIDTH = 8,
    parameter int DEPTH      = 4
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic [DATA_WIDTH-1:0] data_in_0,
    input  logic                  data_in_0_valid,
    output logic                  data_in_0_ready,
    output logic [DATA_WIDTH-1:0] data_out_0,
    output logic                  data_out_0_valid,
    input  logic                  data_out_0_ready
);
  if (DEPTH < 1) begin : g_check
    $error("fifo: DEPTH is %0d; it has to be at least 1", DEPTH);
  end

  // The beat at the output stands in a register, so that neither the memory's address nor its read waits for the sink.
  // A memory has one word more than is used then: of a round number of words synthesis makes a smaller one.
  localparam int Words = (DEPTH > 2) ? DEPTH : 1;
  localparam int AddressWidth = (Words > 1) ? $clog2(Words) : 1;
  localparam int CountWidth = $clog2(DEPTH + 1);
  localparam logic [AddressWidth-1:0] Last = AddressWidth'(Words - 1);

  // No place is read in the cycle in which it is written: synthesis need not build a way round.
  (* no_rw_check *)
  logic [DATA_WIDTH-1:0] memory[Words];
  logic [AddressWidth-1:0] write_at, read_at;
  logic [CountWidth-1:0] count;  // beats in the memory
  logic holds;  // any in the memory
  logic full;  // with the beat at the output
  logic push, pop, moves, load, store, filled;

  assign data_in_0_ready = !full;
  assign push = data_in_0_valid && data_in_0_ready;
  assign pop = data_out_0_valid && data_out_0_ready;
  assign moves = !data_out_0_valid || data_out_0_ready;
  assign load = moves && holds;
  assign store = push && !(moves && !holds);
  // One more beat fills it. Without a beat at the output there is none in the memory.
  assign filled = (DEPTH == 1) ? !data_out_0_valid : data_out_0_valid && count == CountWidth'(DEPTH - 2);

  always_ff @(posedge clk) begin
    if (rst) begin
      write_at         <= '0;
      read_at          <= '0;
      count            <= '0;
      holds            <= 1'b0;
      full             <= 1'b0;
      data_out_0_valid <= 1'b0;
    end else begin
      if (store) write_at <= (write_at == Last) ? '0 : write_at + 1'b1;
      if (load) read_at <= (read_at == Last) ? '0 : read_at + 1'b1;
      if (store != load) holds <= store || count != CountWidth'(1);
      if (store != load) count <= store ? count + 1'b1 : count - 1'b1;
      full <= (push && !pop) ? filled : full && !pop;
      if (moves) data_out_0_valid <= holds || push;
    end
  end

  always_ff @(posedge clk) if (store) memory[write_at] <= data_in_0;

  if (DEPTH <= 32) begin : g_distributed
    always_ff @(posedge clk) if (moves) data_out_0 <= holds ? memory[read_at] : data_in_0;
  end else begin : g_block
    // A block memory reads into a register of its own: a beat that goes round it stands in another.
    logic [DATA_WIDTH-1:0] stored, passed;
    logic passes;
    always_ff @(posedge clk) begin
      if (moves) stored <= memory[read_at];
      if (moves) {passed, passes} <= {data_in_0, !holds};
    end
    assign data_out_0 = passes ? passed : stored;
  end
endmodule
