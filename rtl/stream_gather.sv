/// The beats of a block in any order, some of them twice, some never: DEPTH beats come in, COUNT beats go out, the k-th is
/// beat FILE[k] of the block. Serves slices, repeated heads, rotated halves and every permutation that swap_buffer does not.
/// Two cycles of latency after a block's last beat, one beat per cycle; the next block arrives meanwhile. Stores two blocks
/// and COUNT addresses. Cuts the ready path. Does not look at the data.
module stream_gather #(
    parameter int DATA_WIDTH = 8,
    parameter int DEPTH      = 4,
    parameter int COUNT      = 6,
    parameter     FILE       = "places.mem"
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
  localparam int AddressWidth = (DEPTH > 1) ? $clog2(DEPTH) : 1;
  localparam int IndexWidth = (COUNT > 1) ? $clog2(COUNT) : 1;

  logic full, reads, last;
  logic [AddressWidth-1:0] address;
  logic [IndexWidth-1:0] index, index_next;

  bank_buffer #(
      .DATA_WIDTH(DATA_WIDTH),
      .ROWS(DEPTH),
      .BEATS(1),
      .BANKS(1)
  ) block (
      .clk,
      .rst,
      .data_in_0,
      .data_in_0_valid,
      .data_in_0_ready,
      .full,
      .done(reads && last),
      .address,
      .reads,
      .data(data_out_0)
  );

  // The address of the next beat is looked up while the present one is read.
  rom #(
      .DATA_WIDTH(AddressWidth),
      .DEPTH(COUNT),
      .FILE(FILE)
  ) places (
      .clk,
      .enable(1'b1),
      .address(index_next),
      .data(address)
  );

  assign reads = full && (!data_out_0_valid || data_out_0_ready);
  assign last = index == IndexWidth'(COUNT - 1);
  always_comb begin
    index_next = index;
    if (reads && last) index_next = '0;
    else if (reads) index_next = index + 1'b1;
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      index            <= '0;
      data_out_0_valid <= 1'b0;
    end else begin
      index <= index_next;
      if (reads) data_out_0_valid <= 1'b1;
      else if (data_out_0_ready) data_out_0_valid <= 1'b0;
    end
  end
endmodule
