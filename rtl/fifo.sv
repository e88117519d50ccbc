/// First in, first out: DEPTH beats of storage, any DEPTH from 1 on.
/// One beat per cycle (DEPTH 1: one every two cycles). `data_in_0_ready` depends on registers alone, so the ready path
/// is cut. Up to 32 beats stand in distributed memory, with one cycle of latency; more in block memory with its two
/// registers, with three. Does not pass a beat through in the cycle in which it arrives.
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

  logic [AddressWidth-1:0] write_at, read_at;
  logic [CountWidth-1:0] count;  // beats behind the one at the output
  logic full;  // with the beat at the output
  logic next_valid;  // there is one for the output
  logic push, pop, moves, load, store, filled;
  logic more, fewer;  // beats behind the output, once the one there moves

  assign data_in_0_ready = !full;
  assign push = data_in_0_valid && data_in_0_ready;
  assign pop = data_out_0_valid && data_out_0_ready;
  assign moves = !data_out_0_valid || data_out_0_ready;
  // One more beat fills it. With so many of them there is one at the output.
  assign filled = (DEPTH == 1) ? !data_out_0_valid : data_out_0_valid && count == CountWidth'(DEPTH - 2);

  always_ff @(posedge clk) begin
    if (rst) begin
      write_at         <= '0;
      read_at          <= '0;
      count            <= '0;
      full             <= 1'b0;
      data_out_0_valid <= 1'b0;
    end else begin
      if (store) write_at <= (write_at == Last) ? '0 : write_at + 1'b1;
      if (load) read_at <= (read_at == Last) ? '0 : read_at + 1'b1;
      // `moves` comes last: both counts are ready when it does.
      if (moves) count <= more ? count + 1'b1 : fewer ? count - 1'b1 : count;
      else count <= push ? count + 1'b1 : count;
      full <= (push && !pop) ? filled : full && !pop;
      if (moves) data_out_0_valid <= next_valid;
    end
  end

  logic holds;  // any in the memory
  if (DEPTH <= 32) begin : g_distributed
    assign next_valid = holds || push;
    assign load = moves && holds;
    assign store = push && !(moves && !holds);
    assign {more, fewer} = {1'b0, holds && !push};
    logic [DATA_WIDTH-1:0] oldest;
    register_file #(
        .DATA_WIDTH(DATA_WIDTH),
        .DEPTH(Words)
    ) memory (
        .clk,
        .write(store),
        .write_address(write_at),
        .write_data(data_in_0),
        .read_address(read_at),
        .read_data(oldest)
    );
    always_ff @(posedge clk) begin
      if (rst) holds <= 1'b0;
      else holds <= moves ? holds && (push || count != CountWidth'(1)) : holds || push;
    end
    always_ff @(posedge clk) if (moves) data_out_0 <= holds ? oldest : data_in_0;
  end else begin : g_block
    // No logic stands behind the memory, so that its own register at the output can be the second one.
    logic [DATA_WIDTH-1:0] stored;
    logic stored_valid, reads;
    assign next_valid = stored_valid;
    assign reads = moves || !stored_valid;
    assign load = reads && holds;
    assign store = push;
    assign {more, fewer} = {push && !stored_valid, stored_valid && !push};
    always_ff @(posedge clk) begin
      if (rst) {holds, stored_valid} <= '0;
      else begin
        if (store != load) holds <= store || count != (stored_valid ? CountWidth'(2) : CountWidth'(1));
        if (reads) stored_valid <= holds;
      end
    end
    ram #(
        .DATA_WIDTH(DATA_WIDTH),
        .DEPTH(Words)
    ) memory (
        .clk,
        .write(store),
        .write_address(write_at),
        .write_data(data_in_0),
        .read(reads),
        .read_address(read_at),
        .read_data(stored)
    );
    always_ff @(posedge clk) if (moves) data_out_0 <= stored;
  end
endmodule
