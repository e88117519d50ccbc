/// activation(x W^T + b) of a stream of vectors, weights and biases in memories; the activation is ReLU or none.
/// PAR_IN * PAR_OUT multipliers (the two PARALLELISM parameters); a vector takes (IN / PAR_IN) * (OUT / PAR_OUT) cycles
/// and the next one follows without a gap: it arrives while this one is worked on. Cuts both paths of the stream.
/// From the first beat to the first result IN / PAR_IN + 9 + $clog2(PAR_IN) cycles of latency, one less if OUT = PAR_OUT.
/// With EXPONENTS, which are those of fixed_mac, 1 more. The memory files are those of fixed_linear_core. Is arithmetic.linear in Python.
/// Does not take sizes that PAR_IN and PAR_OUT do not divide.
module fixed_linear #(
    parameter int DATA_IN_0_PRECISION_0        = 8,
    parameter int DATA_IN_0_PRECISION_1        = 4,
    parameter int DATA_IN_0_EXPONENTS          = 0,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0  = 16,
    parameter int DATA_IN_0_PARALLELISM_DIM_0  = 4,
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
    localparam int InWidth                     = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0 + $clog2(DATA_IN_0_EXPONENTS + 1),
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

  // The vector, once for every beat of results.
  logic [InWidth-1:0] vector;
  logic vector_valid, vector_ready;

  if (BeatsOut > 1) begin : g_repeat
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
        .data_out_0(vector),
        .data_out_0_valid(vector_valid),
        .data_out_0_ready(vector_ready)
    );
  end else begin : g_once
    skid_buffer #(
        .DATA_WIDTH(InWidth)
    ) skid (
        .clk,
        .rst,
        .data_in_0,
        .data_in_0_valid,
        .data_in_0_ready,
        .data_out_0(vector),
        .data_out_0_valid(vector_valid),
        .data_out_0_ready(vector_ready)
    );
  end

  fixed_linear_core #(
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_PRECISION_1(DATA_IN_0_PRECISION_1),
      .DATA_IN_0_EXPONENTS(DATA_IN_0_EXPONENTS),
      .DATA_IN_0_TENSOR_SIZE_DIM_0(DATA_IN_0_TENSOR_SIZE_DIM_0),
      .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
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
      .RELU(RELU),
      .WEIGHT_FILE(WEIGHT_FILE),
      .BIAS_FILE(BIAS_FILE)
  ) core (
      .clk,
      .rst,
      .data_in_0(vector),
      .data_in_0_valid(vector_valid),
      .data_in_0_ready(vector_ready),
      .data_out_0,
      .data_out_0_valid,
      .data_out_0_ready
  );
endmodule
