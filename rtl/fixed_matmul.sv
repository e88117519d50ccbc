/// x y^T of two streams of matrices: x has ROWS rows of IN numbers, y OUT rows of IN numbers; the result ROWS rows of OUT.
/// PAR_IN * PAR_OUT multipliers (the two PARALLELISM parameters); both streams come PAR_IN numbers a beat.
/// A pair of matrices takes ROWS * (IN / PAR_IN) * (OUT / PAR_OUT) cycles, and the next one follows without a gap if it
/// arrives in that time. 9 + $clog2(PAR_IN) cycles of latency from the last beat of y to the end of the first dot product, less
/// one beat. Stores two y. Cuts all paths.
/// Is arithmetic.matmul in Python. Does not take sizes that PAR_IN and PAR_OUT do not divide.
module fixed_matmul #(
    parameter int DATA_IN_0_PRECISION_0        = 8,
    parameter int DATA_IN_0_PRECISION_1        = 4,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0  = 8,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_1  = 4,
    parameter int DATA_IN_0_PARALLELISM_DIM_0  = 2,
    parameter int DATA_IN_1_PRECISION_0        = 8,
    parameter int DATA_IN_1_PRECISION_1        = 4,
    parameter int DATA_OUT_0_PRECISION_0       = 8,
    parameter int DATA_OUT_0_PRECISION_1       = 4,
    parameter int DATA_OUT_0_TENSOR_SIZE_DIM_0 = 6,
    parameter int DATA_OUT_0_PARALLELISM_DIM_0 = 2,
    parameter bit FLOOR                        = 1'b0,
    parameter bit RELU                         = 1'b0,
    localparam int InWidth                     = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int In1Width                    = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_1_PRECISION_0,
    localparam int OutWidth                    = DATA_OUT_0_PARALLELISM_DIM_0 * DATA_OUT_0_PRECISION_0
) (
    input  logic                clk,
    input  logic                rst,
    input  logic [ InWidth-1:0] data_in_0,
    input  logic                data_in_0_valid,
    output logic                data_in_0_ready,
    input  logic [In1Width-1:0] data_in_1,
    input  logic                data_in_1_valid,
    output logic                data_in_1_ready,
    output logic [OutWidth-1:0] data_out_0,
    output logic                data_out_0_valid,
    input  logic                data_out_0_ready
);
  localparam int BeatsIn = DATA_IN_0_TENSOR_SIZE_DIM_0 / DATA_IN_0_PARALLELISM_DIM_0;
  localparam int BeatsOut = DATA_OUT_0_TENSOR_SIZE_DIM_0 / DATA_OUT_0_PARALLELISM_DIM_0;
  localparam int AddressWidth = (BeatsIn * BeatsOut > 1) ? $clog2(BeatsIn * BeatsOut) : 1;
  localparam int BiasAddressWidth = (BeatsOut > 1) ? $clog2(BeatsOut) : 1;

  logic [InWidth-1:0] row;
  logic row_valid, row_ready, full, step, last;
  logic [AddressWidth-1:0] address;
  logic [DATA_OUT_0_PARALLELISM_DIM_0*In1Width-1:0] weight, weight_1;
  always_ff @(posedge clk) weight_1 <= weight;

  repeat_buffer #(
      .DATA_WIDTH(InWidth),
      .LENGTH(BeatsIn),
      .COUNT(BeatsOut)
  ) repeats (
      .clk,
      .rst,
      .data_in_0,
      .data_in_0_valid,
      .data_in_0_ready,
      .data_out_0(row),
      .data_out_0_valid(row_valid),
      .data_out_0_ready(row_ready && full)
  );

  bank_buffer #(
      .DATA_WIDTH(In1Width),
      .ROWS(DATA_OUT_0_TENSOR_SIZE_DIM_0),
      .BEATS(BeatsIn),
      .BANKS(DATA_OUT_0_PARALLELISM_DIM_0)
  ) banks (
      .clk,
      .rst,
      .data_in_0(data_in_1),
      .data_in_0_valid(data_in_1_valid),
      .data_in_0_ready(data_in_1_ready),
      .full,
      .done(step && last),
      .address,
      .reads(1'b1),
      .data(weight)
  );

  assign step = row_valid && row_ready && full;

  loop_counter #(
      .COUNT(DATA_IN_0_TENSOR_SIZE_DIM_1 * BeatsIn * BeatsOut)
  ) steps (
      .clk,
      .rst,
      .step,
      .last
  );

  logic [BiasAddressWidth-1:0] unused_bias_address;

  fixed_dot_core #(
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_PRECISION_1(DATA_IN_0_PRECISION_1),
      .DATA_IN_0_TENSOR_SIZE_DIM_0(DATA_IN_0_TENSOR_SIZE_DIM_0),
      .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
      .WEIGHT_PRECISION_0(DATA_IN_1_PRECISION_0),
      .WEIGHT_PRECISION_1(DATA_IN_1_PRECISION_1),
      .HAS_BIAS(1'b0),
      .BIAS_PRECISION_0(2),
      .BIAS_PRECISION_1(0),
      .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
      .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
      .DATA_OUT_0_TENSOR_SIZE_DIM_0(DATA_OUT_0_TENSOR_SIZE_DIM_0),
      .DATA_OUT_0_PARALLELISM_DIM_0(DATA_OUT_0_PARALLELISM_DIM_0),
      .FLOOR(FLOOR),
      .RELU(RELU)
  ) core (
      .clk,
      .rst,
      .data_in_0(row),
      .data_in_0_valid(row_valid && full),
      .data_in_0_ready(row_ready),
      .weight_address(address),
      .weight(weight_1),
      .bias_address(unused_bias_address),
      .bias('0),
      .data_out_0,
      .data_out_0_valid,
      .data_out_0_ready
  );
endmodule
