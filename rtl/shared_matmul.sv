/// fixed_matmul without multipliers: x y^T of two streams of matrices, whose dot products it sends to a fixed_engine, which
/// layers use, too. x has ROWS rows of IN numbers, y OUT rows of IN numbers; the result ROWS rows of OUT.
/// The engine's lanes (ENGINE_PARALLELISM_DIM_0 of a row, _1 of output) need not divide the sizes; both streams come PAR_IN
/// numbers a beat, which divides IN and the engine's lanes.
/// A pair of matrices takes ROWS * BeatsIn * Passes cycles of the engine, the sizes over its lanes, rounded up. It waits for
/// all of y and a row of x, then as shared_linear: 12 + $clog2(ENGINE_PARALLELISM_DIM_0) cycles of latency and those of a
/// burst. Stores two y. Cuts all paths.
/// Is arithmetic.matmul in Python.
module shared_matmul #(
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
    parameter int ENGINE_PARALLELISM_DIM_0     = 4,
    parameter int ENGINE_PARALLELISM_DIM_1     = 4,
    parameter int ENGINE_DATA_WIDTH            = 8,
    parameter int ENGINE_WEIGHT_WIDTH          = 8,
    parameter int ENGINE_SUM_WIDTH             = 24,
    localparam int InWidth                     = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int In1Width                    = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_1_PRECISION_0,
    localparam int OutWidth                    = DATA_OUT_0_PARALLELISM_DIM_0 * DATA_OUT_0_PRECISION_0,
    localparam int Lanes                       = ENGINE_PARALLELISM_DIM_0,
    localparam int Outs                        = ENGINE_PARALLELISM_DIM_1
) (
    input  logic                                      clk,
    input  logic                                      rst,
    input  logic [                       InWidth-1:0] data_in_0,
    input  logic                                      data_in_0_valid,
    output logic                                      data_in_0_ready,
    input  logic [                      In1Width-1:0] data_in_1,
    input  logic                                      data_in_1_valid,
    output logic                                      data_in_1_ready,
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
  localparam int Passes = (DATA_OUT_0_TENSOR_SIZE_DIM_0 + Outs - 1) / Outs;
  localparam int AddressWidth = (Passes * BeatsIn > 1) ? $clog2(Passes * BeatsIn) : 1;
  localparam int BiasAddressWidth = (Passes > 1) ? $clog2(Passes) : 1;
  localparam int RowWidth = Lanes * DATA_IN_1_PRECISION_0;

  // The rows of y, in beats as wide as the engine; zeros stand in front of a row's last elements, as in x.
  logic [RowWidth-1:0] wide;
  logic wide_valid, wide_ready, full, step, last;
  logic [AddressWidth-1:0] address;
  logic [Outs*RowWidth-1:0] weight;

  width_upsizer #(
      .DATA_WIDTH(In1Width),
      .RATIO(Lanes / DATA_IN_0_PARALLELISM_DIM_0),
      .LENGTH(DATA_IN_0_TENSOR_SIZE_DIM_0 / DATA_IN_0_PARALLELISM_DIM_0)
  ) widens (
      .clk,
      .rst,
      .data_in_0(data_in_1),
      .data_in_0_valid(data_in_1_valid),
      .data_in_0_ready(data_in_1_ready),
      .data_out_0(wide),
      .data_out_0_valid(wide_valid),
      .data_out_0_ready(wide_ready)
  );

  bank_buffer #(
      .DATA_WIDTH(RowWidth),
      .ROWS(DATA_OUT_0_TENSOR_SIZE_DIM_0),
      .BEATS(BeatsIn),
      .BANKS(Outs)
  ) banks (
      .clk,
      .rst,
      .data_in_0(wide),
      .data_in_0_valid(wide_valid),
      .data_in_0_ready(wide_ready),
      .full,
      .done(step && last),
      .address,
      .reads(1'b1),
      .data(weight)
  );

  loop_counter #(
      .COUNT(DATA_IN_0_TENSOR_SIZE_DIM_1 * BeatsIn * Passes)
  ) steps (
      .clk,
      .rst,
      .step,
      .last
  );

  logic [BiasAddressWidth-1:0] unused_bias_address;

  shared_core #(
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_PRECISION_1(DATA_IN_0_PRECISION_1),
      .DATA_IN_0_TENSOR_SIZE_DIM_0(DATA_IN_0_TENSOR_SIZE_DIM_0),
      .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
      .GROUPS(1),
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
      .weight_valid(full),
      .step,
      .weight_address(address),
      .weight,
      .bias_address(unused_bias_address),
      .bias('0),
      .engine_request,
      .engine_last,
      .engine_grant,
      .engine_data,
      .engine_weight,
      .engine_total
  );
endmodule
