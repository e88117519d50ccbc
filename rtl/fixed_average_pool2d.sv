/// The mean of every window of every channel, the border of zeros counted; images as rows, columns, channels, PAR of them
/// at a time. The sum is exact, divided and rounded once: half to even, then saturated.
/// An image takes windows * KERNEL_HEIGHT * KERNEL_WIDTH * CHANNELS / PAR cycles, if its pixels come in time.
/// With SERIAL, which is that of fixed_mean, the sums of a window wait until they have been divided.
/// Nine cycles of latency after the last beat of a window, five if that is the whole image. Stores the rows of one window,
/// and SPARE pixels more; nothing if the window is the whole image.
/// Does not cut the ready path at its output. Is arithmetic.average_pool2d in Python.
module fixed_average_pool2d #(
    parameter int DATA_IN_0_PRECISION_0       = 8,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0 = 4,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_1 = 8,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_2 = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 2,
    parameter int DATA_IN_0_PRECISION_1       = 4,
    parameter int DATA_OUT_0_PRECISION_0      = 8,
    parameter int DATA_OUT_0_PRECISION_1      = 4,
    parameter int KERNEL_HEIGHT               = 2,
    parameter int KERNEL_WIDTH                = 2,
    parameter int STRIDE_HEIGHT               = 2,
    parameter int STRIDE_WIDTH                = 2,
    parameter int PADDING_TOP                 = 0,
    parameter int PADDING_BOTTOM              = 0,
    parameter int PADDING_LEFT                = 0,
    parameter int PADDING_RIGHT               = 0,
    parameter int SPARE                       = DATA_IN_0_TENSOR_SIZE_DIM_1 * STRIDE_HEIGHT,
    parameter bit SERIAL                      = 1'b0,
    localparam int InWidth                    = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int OutWidth                   = DATA_IN_0_PARALLELISM_DIM_0 * DATA_OUT_0_PRECISION_0
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
  localparam int Count = KERNEL_HEIGHT * KERNEL_WIDTH;
  localparam int SumPrecision = DATA_IN_0_PRECISION_0 + $clog2(Count);
  // A window that is the whole image needs no storage: its pixels come in the order in which they are summed.
  localparam bit Whole = KERNEL_HEIGHT == DATA_IN_0_TENSOR_SIZE_DIM_2 + PADDING_TOP + PADDING_BOTTOM
      && KERNEL_WIDTH == DATA_IN_0_TENSOR_SIZE_DIM_1 + PADDING_LEFT + PADDING_RIGHT;

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
      .PADDING_TOP(PADDING_TOP),
      .PADDING_BOTTOM(PADDING_BOTTOM),
      .PADDING_LEFT(PADDING_LEFT),
      .PADDING_RIGHT(PADDING_RIGHT),
      .SPARE(SPARE),
      .REGISTERED(!Whole),
      .WHOLE(Whole)
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

  logic [DATA_IN_0_PARALLELISM_DIM_0*SumPrecision-1:0] sum;
  logic sum_valid, sum_ready;

  fixed_reduce #(
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
      .BEATS(DATA_IN_0_TENSOR_SIZE_DIM_0 / DATA_IN_0_PARALLELISM_DIM_0),
      .COUNT(KERNEL_HEIGHT * KERNEL_WIDTH),
      .MAXIMUM(1'b0)
  ) reduce (
      .clk,
      .rst,
      .data_in_0(window),
      .data_in_0_valid(window_valid),
      .data_in_0_ready(window_ready),
      .data_out_0(sum),
      .data_out_0_valid(sum_valid),
      .data_out_0_ready(sum_ready)
  );

  fixed_mean #(
      .DATA_IN_0_PRECISION_0(SumPrecision),
      .DATA_IN_0_PRECISION_1(DATA_IN_0_PRECISION_1),
      .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
      .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
      .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
      .DIVISOR(Count),
      .SERIAL(SERIAL),
      .WAITING(DATA_IN_0_TENSOR_SIZE_DIM_0 / DATA_IN_0_PARALLELISM_DIM_0)
  ) mean (
      .clk,
      .rst,
      .data_in_0(sum),
      .data_in_0_valid(sum_valid),
      .data_in_0_ready(sum_ready),
      .data_out_0,
      .data_out_0_valid,
      .data_out_0_ready
  );
endmodule
