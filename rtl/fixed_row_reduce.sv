/// The largest, or the sum, of all elements of every row of BEATS beats of PAR elements: one number a row.
/// Two cycles of latency after the row's last beat, one beat per cycle; the next row's number waits for its turn.
/// A sum has $clog2(BEATS * PAR) bits more than its elements and is exact. Does not cut the ready path.
module fixed_row_reduce #(
    parameter int DATA_IN_0_PRECISION_0 = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 2,
    parameter int BEATS = 4,
    parameter bit MAXIMUM = 1'b1,
    localparam int LaneWidth = MAXIMUM ? DATA_IN_0_PRECISION_0 : DATA_IN_0_PRECISION_0 + $clog2(BEATS),
    localparam int OutPrecision = MAXIMUM ? LaneWidth : LaneWidth + $clog2(DATA_IN_0_PARALLELISM_DIM_0)
) (
    input  logic                                                         clk,
    input  logic                                                         rst,
    input  logic [DATA_IN_0_PARALLELISM_DIM_0*DATA_IN_0_PRECISION_0-1:0] data_in_0,
    input  logic                                                         data_in_0_valid,
    output logic                                                         data_in_0_ready,
    output logic [                                     OutPrecision-1:0] data_out_0,
    output logic                                                         data_out_0_valid,
    input  logic                                                         data_out_0_ready
);
  logic [DATA_IN_0_PARALLELISM_DIM_0*LaneWidth-1:0] lanes;
  logic lanes_valid, lanes_ready;
  logic signed [OutPrecision-1:0] combined;
  logic signed [OutPrecision:0] less;

  fixed_reduce #(
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
      .BEATS(1),
      .COUNT(BEATS),
      .MAXIMUM(MAXIMUM)
  ) reduce (
      .clk,
      .rst,
      .data_in_0,
      .data_in_0_valid,
      .data_in_0_ready,
      .data_out_0(lanes),
      .data_out_0_valid(lanes_valid),
      .data_out_0_ready(lanes_ready)
  );

  always_comb begin
    less = '0;
    combined = OutPrecision'($signed(lanes[0+:LaneWidth]));
    for (int lane = 1; lane < DATA_IN_0_PARALLELISM_DIM_0; lane++) begin
      // The sign of a difference is ready before that of a comparison.
      less = (OutPrecision + 1)'(combined) - (OutPrecision + 1)'($signed(lanes[lane*LaneWidth+:LaneWidth]));
      if (!MAXIMUM) combined = combined + OutPrecision'($signed(lanes[lane*LaneWidth+:LaneWidth]));
      else if (less[OutPrecision]) combined = OutPrecision'($signed(lanes[lane*LaneWidth+:LaneWidth]));
    end
  end

  assign lanes_ready = !data_out_0_valid || data_out_0_ready;

  always_ff @(posedge clk) begin
    if (rst) data_out_0_valid <= 1'b0;
    else if (lanes_ready) data_out_0_valid <= lanes_valid;
  end

  always_ff @(posedge clk) if (lanes_ready) data_out_0 <= combined;
endmodule
