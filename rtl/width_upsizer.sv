/// Gather RATIO beats into one: the first stands in the low bits.
/// With LENGTH a vector has so many beats, and the last wide one has the rest of them: in its high bits, above zeros.
/// One cycle of latency after the last of them, one narrow beat per cycle.
/// Does not cut the ready path.
module width_upsizer #(
    parameter int DATA_WIDTH = 8,
    parameter int RATIO      = 4,
    parameter int LENGTH     = 0
) (
    input  logic                        clk,
    input  logic                        rst,
    input  logic [      DATA_WIDTH-1:0] data_in_0,
    input  logic                        data_in_0_valid,
    output logic                        data_in_0_ready,
    output logic [RATIO*DATA_WIDTH-1:0] data_out_0,
    output logic                        data_out_0_valid,
    input  logic                        data_out_0_ready
);
  localparam int CountWidth = (RATIO > 1) ? $clog2(RATIO) : 1;
  localparam logic [CountWidth-1:0] Last = CountWidth'(RATIO - 1);

  logic [CountWidth-1:0] count;
  logic push, ends;
  logic [RATIO*DATA_WIDTH-1:0] shifted;

  if (RATIO < 1) begin : g_check
    $error("width_upsizer: RATIO is %0d; it has to be at least 1", RATIO);
  end else if (RATIO == 1) begin : g_same
    assign shifted = data_in_0;
  end else begin : g_shift
    logic [(RATIO-1)*DATA_WIDTH-1:0] kept;
    assign kept = (LENGTH != 0 && count == '0) ? '0 : data_out_0[RATIO*DATA_WIDTH-1:DATA_WIDTH];
    assign shifted = {data_in_0, kept};
  end

  if (LENGTH == 0) begin : g_endless
    assign ends = count == Last;
  end else begin : g_vectors
    logic last;
    loop_counter #(.COUNT(LENGTH)) beats (.clk, .rst, .step(push), .last);
    assign ends = last || count == Last;
  end

  assign data_in_0_ready = !data_out_0_valid || data_out_0_ready;
  assign push = data_in_0_valid && data_in_0_ready;

  always_ff @(posedge clk) begin
    if (rst) begin
      count            <= '0;
      data_out_0_valid <= 1'b0;
    end else if (data_in_0_ready) begin
      if (push) count <= ends ? '0 : count + 1'b1;
      data_out_0_valid <= push && ends;
    end
  end

  always_ff @(posedge clk) if (push) data_out_0 <= shifted;
endmodule
