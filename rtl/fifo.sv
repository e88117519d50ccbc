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

  localparam int AddressWidth = (DEPTH > 1) ? $clog2(DEPTH) : 1;
  localparam int CountWidth = $clog2(DEPTH + 1);
  localparam logic [AddressWidth-1:0] Last = AddressWidth'(DEPTH - 1);

  logic [DATA_WIDTH-1:0] memory[DEPTH];
  logic [AddressWidth-1:0] write_at, read_at, read_next;
  logic [CountWidth-1:0] count;
  logic push, pop;

  assign data_in_0_ready = count != CountWidth'(DEPTH);
  assign data_out_0_valid = count != '0;
  assign push = data_in_0_valid && data_in_0_ready;
  assign pop = data_out_0_valid && data_out_0_ready;

  always_comb begin
    read_next = read_at;
    if (pop) read_next = (read_at == Last) ? '0 : read_at + 1'b1;
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      write_at <= '0;
      read_at  <= '0;
      count    <= '0;
    end else begin
      if (push) write_at <= (write_at == Last) ? '0 : write_at + 1'b1;
      read_at <= read_next;
      if (push != pop) count <= push ? count + 1'b1 : count - 1'b1;
    end
  end

  always_ff @(posedge clk) if (push) memory[write_at] <= data_in_0;

  if (DEPTH <= 32) begin : g_distributed
    assign data_out_0 = memory[read_at];
  end else begin : g_block
    // A block memory reads in a clocked way: a beat that is written where the next one is read goes round it.
    logic [DATA_WIDTH-1:0] stored, passed;
    logic passes;
    always_ff @(posedge clk) begin
      stored <= memory[read_next];
      passed <= data_in_0;
      passes <= push && write_at == read_next;
    end
    assign data_out_0 = passes ? passed : stored;
  end
endmodule
