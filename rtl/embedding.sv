/// The rows of a table, one for each index of a stream: BEATS = DATA_OUT_0_TENSOR_SIZE_DIM_0 / PAR_OUT beats each.
/// Two cycles of latency, one beat per cycle without a gap between rows. FILE has NUM_EMBEDDINGS * BEATS words, a row's
/// beats one after another. Does not cut the ready path.
/// Does not check indices: those from NUM_EMBEDDINGS on, and negative ones, read anything.
module embedding #(
    parameter int DATA_IN_0_PRECISION_0        = 4,
    parameter int NUM_EMBEDDINGS               = 10,
    parameter int DATA_OUT_0_PRECISION_0       = 8,
    parameter int DATA_OUT_0_TENSOR_SIZE_DIM_0 = 4,
    parameter int DATA_OUT_0_PARALLELISM_DIM_0 = 2,
    parameter     FILE                         = "weight.mem",
    localparam int OutWidth                    = DATA_OUT_0_PARALLELISM_DIM_0 * DATA_OUT_0_PRECISION_0
) (
    input  logic                             clk,
    input  logic                             rst,
    input  logic [DATA_IN_0_PRECISION_0-1:0] data_in_0,
    input  logic                             data_in_0_valid,
    output logic                             data_in_0_ready,
    output logic [             OutWidth-1:0] data_out_0,
    output logic                             data_out_0_valid,
    input  logic                             data_out_0_ready
);
  localparam int Beats = DATA_OUT_0_TENSOR_SIZE_DIM_0 / DATA_OUT_0_PARALLELISM_DIM_0;
  localparam int Depth = NUM_EMBEDDINGS * Beats;
  localparam int AddressWidth = (Depth > 1) ? $clog2(Depth) : 1;
  localparam int WideWidth = (AddressWidth > DATA_IN_0_PRECISION_0) ? AddressWidth : DATA_IN_0_PRECISION_0;

  if (Beats * DATA_OUT_0_PARALLELISM_DIM_0 != DATA_OUT_0_TENSOR_SIZE_DIM_0) begin : g_check
    $error("embedding: rows of %0d are no multiple of %0d a beat", DATA_OUT_0_TENSOR_SIZE_DIM_0,
           DATA_OUT_0_PARALLELISM_DIM_0);
  end

  logic [AddressWidth-1:0] address;
  logic busy, last, reads, moves;

  loop_counter #(
      .COUNT(Beats)
  ) beats (
      .clk,
      .rst,
      .step(reads),
      .last
  );

  assign moves = !data_out_0_valid || data_out_0_ready;
  assign reads = busy && moves;
  assign data_in_0_ready = !busy || (reads && last);

  always_ff @(posedge clk) begin
    if (rst) begin
      busy             <= 1'b0;
      data_out_0_valid <= 1'b0;
    end else begin
      if (data_in_0_ready) busy <= data_in_0_valid;
      if (moves) data_out_0_valid <= busy;
    end
  end

  always_ff @(posedge clk) begin
    if (data_in_0_ready) address <= AddressWidth'(WideWidth'(data_in_0) * WideWidth'(Beats));
    else if (reads) address <= address + 1'b1;
  end

  rom #(
      .DATA_WIDTH(OutWidth),
      .DEPTH(Depth),
      .FILE(FILE)
  ) rows (
      .clk,
      .enable(reads),
      .address,
      .data(data_out_0)
  );
endmodule
