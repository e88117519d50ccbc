/// fixed_linear without multipliers: it sends its dot products to a fixed_engine, which other layers use, too.
/// The engine's lanes (ENGINE_PARALLELISM_DIM_0 of input, _1 of output) need not divide the sizes: shared_core has the
/// sequence. 12 + $clog2(ENGINE_PARALLELISM_DIM_0) cycles of latency and those of a burst after a vector's last beat.
/// With GROUPS vectors come in turns of GROUPS, each for OUT / GROUPS of the results: windows of a grouped convolution.
/// WEIGHT_FILE has GROUPS * Passes * BeatsIn words as of fixed_linear_core, with zeros where lanes are padded: in front of
/// a vector's last elements, behind a group's last results. BIAS_FILE has GROUPS * Passes words.
/// Is arithmetic.linear in Python. Cuts both paths of the stream.
module shared_linear #(
    parameter int DATA_IN_0_PRECISION_0        = 8,
    parameter int DATA_IN_0_PRECISION_1        = 4,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0  = 17,
    parameter int DATA_IN_0_PARALLELISM_DIM_0  = 1,
    parameter int GROUPS                       = 1,
    parameter int WEIGHT_PRECISION_0           = 8,
    parameter int WEIGHT_PRECISION_1           = 6,
    parameter bit HAS_BIAS                     = 1'b1,
    parameter int BIAS_PRECISION_0             = 16,
    parameter int BIAS_PRECISION_1             = 10,
    parameter int DATA_OUT_0_PRECISION_0       = 8,
    parameter int DATA_OUT_0_PRECISION_1       = 4,
    parameter int DATA_OUT_0_TENSOR_SIZE_DIM_0 = 5,
    parameter int DATA_OUT_0_PARALLELISM_DIM_0 = 1,
    parameter bit FLOOR                        = 1'b0,
    parameter bit RELU                         = 1'b0,
    parameter int ENGINE_PARALLELISM_DIM_0     = 4,
    parameter int ENGINE_PARALLELISM_DIM_1     = 2,
    parameter int ENGINE_DATA_WIDTH            = 8,
    parameter int ENGINE_WEIGHT_WIDTH          = 8,
    parameter int ENGINE_SUM_WIDTH             = 24,
    parameter     WEIGHT_FILE                  = "weight.mem",
    parameter     BIAS_FILE                    = "bias.mem",
    localparam int InWidth                     = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int OutWidth                    = DATA_OUT_0_PARALLELISM_DIM_0 * DATA_OUT_0_PRECISION_0,
    localparam int Lanes                       = ENGINE_PARALLELISM_DIM_0,
    localparam int Outs                        = ENGINE_PARALLELISM_DIM_1
) (
    input  logic                                      clk,
    input  logic                                      rst,
    input  logic [                       InWidth-1:0] data_in_0,
    input  logic                                      data_in_0_valid,
    output logic                                      data_in_0_ready,
    output logic [                      OutWidth-1:0] data_out_0,
    output logic                                      data_out_0_valid,
    input  logic                                      data_out_0_ready,
    output logic                                      engine_request,
    output logic                                      engine_last,
    input  logic                                      engine_grant,
    output logic [       Lanes*ENGINE_DATA_WIDTH-1:0] engine_data,
    output logic [Outs*Lanes*ENGINE_WEIGHT_WIDTH-1:0] engine_weight,
    input  logic [         Outs*ENGINE_SUM_WIDTH-1:0] engine_total
);
  localparam int BeatsIn = (DATA_IN_0_TENSOR_SIZE_DIM_0 + Lanes - 1) / Lanes;
  localparam int Passes = (DATA_OUT_0_TENSOR_SIZE_DIM_0 / GROUPS + Outs - 1) / Outs;
  localparam int Words = GROUPS * Passes * BeatsIn;
  localparam int AddressWidth = (Words > 1) ? $clog2(Words) : 1;
  localparam int BiasDepth = GROUPS * Passes;
  localparam int IndexWidth = (BiasDepth > 1) ? $clog2(BiasDepth) : 1;

  logic [AddressWidth-1:0] weight_address;
  logic [IndexWidth-1:0] bias_address;
  logic [Outs*Lanes*WEIGHT_PRECISION_0-1:0] weight;
  logic [Outs*BIAS_PRECISION_0-1:0] bias;
  logic unused_step;  // the memory is always enabled

  rom #(
      .DATA_WIDTH(Outs * Lanes * WEIGHT_PRECISION_0),
      .DEPTH(Words),
      .FILE(WEIGHT_FILE)
  ) weights (
      .clk,
      .enable(1'b1),
      .address(weight_address),
      .data(weight)
  );

  bias_memory #(
      .HAS_BIAS(HAS_BIAS),
      .DATA_WIDTH(Outs * BIAS_PRECISION_0),
      .DEPTH(BiasDepth),
      .FILE(BIAS_FILE)
  ) biases (
      .clk,
      .address(bias_address),
      .data(bias)
  );

  shared_core #(
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_PRECISION_1(DATA_IN_0_PRECISION_1),
      .DATA_IN_0_TENSOR_SIZE_DIM_0(DATA_IN_0_TENSOR_SIZE_DIM_0),
      .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
      .GROUPS(GROUPS),
      .WEIGHT_PRECISION_0(WEIGHT_PRECISION_0),
      .WEIGHT_PRECISION_1(WEIGHT_PRECISION_1),
      .HAS_BIAS(HAS_BIAS),
      .BIAS_PRECISION_0(BIAS_PRECISION_0),
      .BIAS_PRECISION_1(BIAS_PRECISION_1),
      .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
      .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
      .DATA_OUT_0_TENSOR_SIZE_DIM_0(DATA_OUT_0_TENSOR_SIZE_DIM_0),
      .DATA_OUT_0_PARALLELISM_DIM_0(DATA_OUT_0_PARALLELISM_DIM_0),
      .FLOOR(FLOOR),
      .RELU(RELU),
      .ENGINE_PARALLELISM_DIM_0(ENGINE_PARALLELISM_DIM_0),
      .ENGINE_PARALLELISM_DIM_1(ENGINE_PARALLELISM_DIM_1),
      .ENGINE_DATA_WIDTH(ENGINE_DATA_WIDTH),
      .ENGINE_WEIGHT_WIDTH(ENGINE_WEIGHT_WIDTH),
      .ENGINE_SUM_WIDTH(ENGINE_SUM_WIDTH)
  ) core (
      .clk,
      .rst,
      .data_in_0,
      .data_in_0_valid,
      .data_in_0_ready,
      .data_out_0,
      .data_out_0_valid,
      .data_out_0_ready,
      .weight_valid(1'b1),
      .step(unused_step),
      .weight_address,
      .weight,
      .bias_address,
      .bias,
      .engine_request,
      .engine_last,
      .engine_grant,
      .engine_data,
      .engine_weight,
      .engine_total
  );
endmodule
