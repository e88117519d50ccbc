/// Requantise a signed fixed-point stream: round half to even (or down with FLOOR), saturate, optionally ReLU.
/// One cycle of latency, one beat of DATA_IN_0_PARALLELISM_DIM_0 elements per cycle.
/// Does not cut the ready path: put a skid buffer after it.
module fixed_cast #(
    parameter int DATA_IN_0_PRECISION_0       = 16,
    parameter int DATA_IN_0_PRECISION_1       = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 1,
    parameter int DATA_OUT_0_PRECISION_0      = 8,
    parameter int DATA_OUT_0_PRECISION_1      = 4,
    parameter bit FLOOR                       = 1'b0,
    parameter bit RELU                        = 1'b0
) (
    input  logic                                                          clk,
    input  logic                                                          rst,
    input  logic [ DATA_IN_0_PARALLELISM_DIM_0*DATA_IN_0_PRECISION_0-1:0] data_in_0,
    input  logic                                                          data_in_0_valid,
    output logic                                                          data_in_0_ready,
    output logic [DATA_IN_0_PARALLELISM_DIM_0*DATA_OUT_0_PRECISION_0-1:0] data_out_0,
    output logic                                                          data_out_0_valid,
    input  logic                                                          data_out_0_ready
);
  logic [DATA_IN_0_PARALLELISM_DIM_0*DATA_OUT_0_PRECISION_0-1:0] casted;

  for (genvar lane = 0; lane < DATA_IN_0_PARALLELISM_DIM_0; lane++) begin : g_lane
    fixed_requantise #(
        .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
        .DATA_IN_0_PRECISION_1(DATA_IN_0_PRECISION_1),
        .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
        .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
        .FLOOR(FLOOR),
        .RELU(RELU)
    ) requantise (
        .data_in_0 (data_in_0[lane*DATA_IN_0_PRECISION_0+:DATA_IN_0_PRECISION_0]),
        .data_out_0(casted[lane*DATA_OUT_0_PRECISION_0+:DATA_OUT_0_PRECISION_0])
    );
  end

  assign data_in_0_ready = !data_out_0_valid || data_out_0_ready;

  always_ff @(posedge clk) begin
    if (rst) data_out_0_valid <= 1'b0;
    else if (data_in_0_ready) data_out_0_valid <= data_in_0_valid;
  end

  always_ff @(posedge clk) if (data_in_0_ready) data_out_0 <= casted;
endmodule
