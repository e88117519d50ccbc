/// fixed_conv2d with its weights from outside: every window is a vector of streamed_linear, ROWS of them for each time that
/// `data_in_1` brings all weights. An image takes the cycles of streamed_linear for its windows, and no less than windows *
/// KERNEL_HEIGHT * KERNEL_WIDTH * IN / PAR_IN, if pixels and weights come in time; latency as of streamed_linear, after the last
/// pixel of the first ROWS windows. PAR_IN divides IN, and PAR_OUT divides OUT (the two PARALLELISM parameters).
/// Stores the rows of one window and SPARE pixels more. Cuts both paths of the stream, but for the ready of a border.
/// Words as of streamed_linear: a filter's elements are kernel rows, kernel columns, channels.
/// Is arithmetic.conv2d in Python. Does not take groups.
module streamed_conv2d #(
    parameter int DATA_IN_0_PRECISION_0        = 8,
    parameter int DATA_IN_0_PRECISION_1        = 4,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0  = 4,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_1  = 8,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_2  = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0  = 2,
    parameter int KERNEL_HEIGHT                = 3,
    parameter int KERNEL_WIDTH                 = 3,
    parameter int STRIDE_HEIGHT                = 1,
    parameter int STRIDE_WIDTH                 = 1,
    parameter int DILATION_HEIGHT              = 1,
    parameter int DILATION_WIDTH               = 1,
    parameter int PADDING_TOP                  = 0,
    parameter int PADDING_BOTTOM               = 0,
    parameter int PADDING_LEFT                 = 0,
    parameter int PADDING_RIGHT                = 0,
    parameter int SPARE                        = DATA_IN_0_TENSOR_SIZE_DIM_1 * STRIDE_HEIGHT,
    parameter int WEIGHT_PRECISION_0           = 8,
    parameter int WEIGHT_PRECISION_1           = 6,
    parameter bit HAS_BIAS                     = 1'b1,
    parameter int BIAS_PRECISION_0             = 16,
    parameter int BIAS_PRECISION_1             = 10,
    parameter int DATA_OUT_0_PRECISION_0       = 8,
    parameter int DATA_OUT_0_PRECISION_1       = 4,
    parameter int DATA_OUT_0_TENSOR_SIZE_DIM_0 = 8,
    parameter int DATA_OUT_0_PARALLELISM_DIM_0 = 2,
    parameter int ROWS                         = 1,
    parameter int BUS_WIDTH                    = 64,
    parameter bit FLOOR                        = 1'b0,
    parameter bit RELU                         = 1'b0,
    parameter     BIAS_FILE                    = "bias.mem",
    localparam int InWidth                     = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int OutWidth                    = DATA_OUT_0_PARALLELISM_DIM_0 * DATA_OUT_0_PRECISION_0
) (
    input  logic                 clk,
    input  logic                 rst,
    input  logic [  InWidth-1:0] data_in_0,
    input  logic                 data_in_0_valid,
    output logic                 data_in_0_ready,
    input  logic [BUS_WIDTH-1:0] data_in_1,
    input  logic                 data_in_1_valid,
    output logic                 data_in_1_ready,
    output logic [ OutWidth-1:0] data_out_0,
    output logic                 data_out_0_valid,
    input  logic                 data_out_0_ready
);
  logic [InWidth-1:0] window;
  logic window_valid, window_ready;

  padded_windows #(
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_TENSOR_SIZE_DIM_0(DATA_IN_0_TENSOR_SIZE_DIM_0),
      .DATA_IN_0_TENSOR_SIZE_DIM_1(DATA_IN_0_TENSOR_SIZE_DIM_1),
      .DATA_IN_0_TENSOR_SIZE_DIM_2(DATA_IN_0_TENSOR_SIZE_DIM_2),
      .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
      .KERNEL_HEIGHT(KERNEL_HEIGHT),
      .KERNEL_WIDTH(KERNEL_WIDTH),
      .STRIDE_HEIGHT(STRIDE_HEIGHT),
      .STRIDE_WIDTH(STRIDE_WIDTH),
      .DILATION_HEIGHT(DILATION_HEIGHT),
      .DILATION_WIDTH(DILATION_WIDTH),
      .PADDING_TOP(PADDING_TOP),
      .PADDING_BOTTOM(PADDING_BOTTOM),
      .PADDING_LEFT(PADDING_LEFT),
      .PADDING_RIGHT(PADDING_RIGHT),
      .SPARE(SPARE)
  ) windows (
      .clk,
      .rst,
      .data_in_0,
      .data_in_0_valid,
      .data_in_0_ready,
      .data_out_0(window),
      .data_out_0_valid(window_valid),
      .data_out_0_ready(window_ready)
  );

  streamed_linear #(
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_PRECISION_1(DATA_IN_0_PRECISION_1),
      .DATA_IN_0_TENSOR_SIZE_DIM_0(KERNEL_HEIGHT * KERNEL_WIDTH * DATA_IN_0_TENSOR_SIZE_DIM_0),
      .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
      .WEIGHT_PRECISION_0(WEIGHT_PRECISION_0),
      .WEIGHT_PRECISION_1(WEIGHT_PRECISION_1),
      .HAS_BIAS(HAS_BIAS),
      .BIAS_PRECISION_0(BIAS_PRECISION_0),
      .BIAS_PRECISION_1(BIAS_PRECISION_1),
      .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
      .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
      .DATA_OUT_0_TENSOR_SIZE_DIM_0(DATA_OUT_0_TENSOR_SIZE_DIM_0),
      .DATA_OUT_0_PARALLELISM_DIM_0(DATA_OUT_0_PARALLELISM_DIM_0),
      .ROWS(ROWS),
      .BUS_WIDTH(BUS_WIDTH),
      .FLOOR(FLOOR),
      .RELU(RELU),
      .BIAS_FILE(BIAS_FILE)
  ) vectors (
      .clk,
      .rst,
      .data_in_0(window),
      .data_in_0_valid(window_valid),
      .data_in_0_ready(window_ready),
      .data_in_1,
      .data_in_1_valid,
      .data_in_1_ready,
      .data_out_0,
      .data_out_0_valid,
      .data_out_0_ready
  );
endmodule
