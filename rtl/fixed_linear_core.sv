/// The working half of fixed_linear and fixed_conv2d: fixed_dot_core with its weights and biases in memories.
/// A vector arrives again for every beat of results, OUT / PAR_OUT times. One beat per cycle,
/// 8 + $clog2(PAR_IN) cycles of latency from the last beat of a repetition to its result.
/// WEIGHT_FILE has (OUT / PAR_OUT) * (IN / PAR_IN) words, input beats fastest; weight [b, a] of a word's PAR_OUT x
/// PAR_IN block is element b * PAR_IN + a. With WEIGHT_EXPONENTS, one stands above the PAR_IN elements of each b. BIAS_FILE has OUT / PAR_OUT words.
/// With SLICES, so many vectors come at once, each for a part of the lanes of results.
/// Does not cut the path of ready: one gate is in it.
module fixed_linear_core #(
    parameter int DATA_IN_0_PRECISION_0        = 8,
    parameter int DATA_IN_0_PRECISION_1        = 4,
    parameter int DATA_IN_0_EXPONENTS          = 0,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0  = 16,
    parameter int DATA_IN_0_PARALLELISM_DIM_0  = 4,
    parameter int SLICES                       = 1,
    parameter int WEIGHT_PRECISION_0           = 8,
    parameter int WEIGHT_PRECISION_1           = 6,
    parameter int WEIGHT_EXPONENTS             = 0,
    parameter bit HAS_BIAS                     = 1'b1,
    parameter int BIAS_PRECISION_0             = 16,
    parameter int BIAS_PRECISION_1             = 10,
    parameter int DATA_OUT_0_PRECISION_0       = 8,
    parameter int DATA_OUT_0_PRECISION_1       = 4,
    parameter int DATA_OUT_0_TENSOR_SIZE_DIM_0 = 8,
    parameter int DATA_OUT_0_PARALLELISM_DIM_0 = 2,
    parameter bit FLOOR                        = 1'b0,
    parameter bit RELU                         = 1'b0,
    parameter     WEIGHT_FILE                  = "weight.mem",
    parameter     BIAS_FILE                    = "bias.mem",
    localparam int InWidth                     = SLICES * DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0 + $clog2(DATA_IN_0_EXPONENTS + 1),
    localparam int OutWidth                    = DATA_OUT_0_PARALLELISM_DIM_0 * DATA_OUT_0_PRECISION_0
) (
    input  logic                clk,
    input  logic                rst,
    input  logic [ InWidth-1:0] data_in_0,
    input  logic                data_in_0_valid,
    output logic                data_in_0_ready,
    output logic [OutWidth-1:0] data_out_0,
    output logic                data_out_0_valid,
    input  logic                data_out_0_ready
);
  localparam int BeatsIn = DATA_IN_0_TENSOR_SIZE_DIM_0 / DATA_IN_0_PARALLELISM_DIM_0;
  localparam int BeatsOut = DATA_OUT_0_TENSOR_SIZE_DIM_0 / DATA_OUT_0_PARALLELISM_DIM_0;
  localparam int AddressWidth = (BeatsIn * BeatsOut > 1) ? $clog2(BeatsIn * BeatsOut) : 1;
  localparam int OutIndexWidth = (BeatsOut > 1) ? $clog2(BeatsOut) : 1;
  localparam int RowWidth = DATA_IN_0_PARALLELISM_DIM_0 * WEIGHT_PRECISION_0 + $clog2(WEIGHT_EXPONENTS + 1);
  localparam int WeightWidth = DATA_OUT_0_PARALLELISM_DIM_0 * RowWidth;
  localparam int BiasWidth = DATA_OUT_0_PARALLELISM_DIM_0 * BIAS_PRECISION_0;

  logic [AddressWidth-1:0] weight_address;
  logic [OutIndexWidth-1:0] bias_address;
  logic [WeightWidth-1:0] weight;
  logic [BiasWidth-1:0] bias;

  rom #(
      .DATA_WIDTH(WeightWidth),
      .DEPTH(BeatsIn * BeatsOut),
      .REGISTERED(1'b1),
      .FILE(WEIGHT_FILE)
  ) weights (
      .clk,
      .enable(1'b1),
      .address(weight_address),
      .data(weight)
  );

  bias_memory #(
      .HAS_BIAS(HAS_BIAS),
      .DATA_WIDTH(BiasWidth),
      .DEPTH(BeatsOut),
      .REGISTERED(1'b1),
      .FILE(BIAS_FILE)
  ) biases (
      .clk,
      .address(bias_address),
      .data(bias)
  );

  fixed_dot_core #(
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_PRECISION_1(DATA_IN_0_PRECISION_1),
      .DATA_IN_0_EXPONENTS(DATA_IN_0_EXPONENTS),
      .DATA_IN_0_TENSOR_SIZE_DIM_0(DATA_IN_0_TENSOR_SIZE_DIM_0),
      .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
      .SLICES(SLICES),
      .WEIGHT_PRECISION_0(WEIGHT_PRECISION_0),
      .WEIGHT_PRECISION_1(WEIGHT_PRECISION_1),
      .WEIGHT_EXPONENTS(WEIGHT_EXPONENTS),
      .HAS_BIAS(HAS_BIAS),
      .BIAS_PRECISION_0(BIAS_PRECISION_0),
      .BIAS_PRECISION_1(BIAS_PRECISION_1),
      .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
      .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
      .DATA_OUT_0_TENSOR_SIZE_DIM_0(DATA_OUT_0_TENSOR_SIZE_DIM_0),
      .DATA_OUT_0_PARALLELISM_DIM_0(DATA_OUT_0_PARALLELISM_DIM_0),
      .FLOOR(FLOOR),
      .RELU(RELU)
  ) core (
      .clk,
      .rst,
      .data_in_0,
      .data_in_0_valid,
      .data_in_0_ready,
      .weight_address,
      .weight,
      .bias_address,
      .bias,
      .data_out_0,
      .data_out_0_valid,
      .data_out_0_ready
  );
endmodule
