/// The windows of an image as sliding_window gives them, several of their positions at once: every beat has a whole column
/// of a window, or with KERNEL_PARALLELISM_DIM_0 = KERNEL_WIDTH all of it.
/// For each window, row by row: for each of GROUPS groups of channels, COUNT times: the window's columns, if they come one
/// by one, and the group's channels. A beat is columns, rows, PAR channels, the last ones fastest.
/// One beat per cycle in and out: an image takes no less than its pixels, nor than windows * COUNT * beats of a window.
/// Three to five cycles of latency after the last pixel of the first window, two more if over 32 beats may wait.
/// Stores a window's rows; SPARE columns of windows wait until they are wanted, so that rows without windows cost no time.
/// Does not pad: image_padding does. Does not cut the ready path at its input.
module parallel_window #(
    parameter int DATA_IN_0_PRECISION_0       = 8,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0 = 4,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_1 = 8,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_2 = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 2,
    parameter int KERNEL_HEIGHT               = 3,
    parameter int KERNEL_WIDTH                = 3,
    parameter int KERNEL_PARALLELISM_DIM_0    = 3,
    parameter int STRIDE_HEIGHT               = 1,
    parameter int STRIDE_WIDTH                = 1,
    parameter int DILATION_HEIGHT             = 1,
    parameter int DILATION_WIDTH              = 1,
    parameter int GROUPS                      = 1,
    parameter int COUNT                       = 1,
    parameter int SPARE                       = DATA_IN_0_TENSOR_SIZE_DIM_1,
    localparam int Beat                       = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int Column                     = KERNEL_HEIGHT * Beat,
    localparam int OutWidth                   = KERNEL_PARALLELISM_DIM_0 * Column
) (
    input  logic                clk,
    input  logic                rst,
    input  logic [    Beat-1:0] data_in_0,
    input  logic                data_in_0_valid,
    output logic                data_in_0_ready,
    output logic [OutWidth-1:0] data_out_0,
    output logic                data_out_0_valid,
    input  logic                data_out_0_ready
);
  localparam int Beats = DATA_IN_0_TENSOR_SIZE_DIM_0 / DATA_IN_0_PARALLELISM_DIM_0;  // of a pixel
  localparam int Group = Beats / GROUPS;

  if (Group * GROUPS * DATA_IN_0_PARALLELISM_DIM_0 != DATA_IN_0_TENSOR_SIZE_DIM_0) begin : g_check_channels
    $error("parallel_window: %0d channels are no multiple of %0d groups of %0d a beat", DATA_IN_0_TENSOR_SIZE_DIM_0,
           GROUPS, DATA_IN_0_PARALLELISM_DIM_0);
  end
  if (KERNEL_PARALLELISM_DIM_0 != 1 && KERNEL_PARALLELISM_DIM_0 != KERNEL_WIDTH) begin : g_check_columns
    $error("parallel_window: %0d of %0d columns at once; 1 or all are possible", KERNEL_PARALLELISM_DIM_0, KERNEL_WIDTH);
  end

  logic [Column-1:0] column, waiting;
  logic column_valid, column_ready, waiting_valid, waiting_ready;

  line_taps #(
      .DATA_WIDTH(Beat),
      .LENGTH(DATA_IN_0_TENSOR_SIZE_DIM_1 * Beats),
      .LINES(DATA_IN_0_TENSOR_SIZE_DIM_2),
      .TAPS(KERNEL_HEIGHT),
      .STRIDE(STRIDE_HEIGHT),
      .DILATION(DILATION_HEIGHT)
  ) rows (
      .clk,
      .rst,
      .data_in_0,
      .data_in_0_valid,
      .data_in_0_ready,
      .data_out_0(column),
      .data_out_0_valid(column_valid),
      .data_out_0_ready(column_ready)
  );

  fifo #(
      .DATA_WIDTH(Column),
      .DEPTH(SPARE * Beats + 2)
  ) waits (
      .clk,
      .rst,
      .data_in_0(column),
      .data_in_0_valid(column_valid),
      .data_in_0_ready(column_ready),
      .data_out_0(waiting),
      .data_out_0_valid(waiting_valid),
      .data_out_0_ready(waiting_ready)
  );

  if (KERNEL_PARALLELISM_DIM_0 == 1) begin : g_columns
    sliding_window #(
        .DATA_IN_0_PRECISION_0(Column),
        .DATA_IN_0_TENSOR_SIZE_DIM_0(Beats),
        .DATA_IN_0_TENSOR_SIZE_DIM_1(DATA_IN_0_TENSOR_SIZE_DIM_1),
        .DATA_IN_0_TENSOR_SIZE_DIM_2(1),
        .DATA_IN_0_PARALLELISM_DIM_0(1),
        .KERNEL_HEIGHT(1),
        .KERNEL_WIDTH(KERNEL_WIDTH),
        .STRIDE_HEIGHT(1),
        .STRIDE_WIDTH(STRIDE_WIDTH),
        .DILATION_HEIGHT(1),
        .DILATION_WIDTH(DILATION_WIDTH),
        .GROUPS(GROUPS),
        .COUNT(COUNT),
        .SPARE((KERNEL_WIDTH - 1) * DILATION_WIDTH + 1)
    ) columns (
        .clk,
        .rst,
        .data_in_0(waiting),
        .data_in_0_valid(waiting_valid),
        .data_in_0_ready(waiting_ready),
        .data_out_0,
        .data_out_0_valid,
        .data_out_0_ready
    );
  end else begin : g_whole
    logic [OutWidth-1:0] window;
    logic window_valid, window_ready;

    line_taps #(
        .DATA_WIDTH(Column),
        .LENGTH(Beats),
        .LINES(DATA_IN_0_TENSOR_SIZE_DIM_1),
        .TAPS(KERNEL_WIDTH),
        .STRIDE(STRIDE_WIDTH),
        .DILATION(DILATION_WIDTH)
    ) columns (
        .clk,
        .rst,
        .data_in_0(waiting),
        .data_in_0_valid(waiting_valid),
        .data_in_0_ready(waiting_ready),
        .data_out_0(window),
        .data_out_0_valid(window_valid),
        .data_out_0_ready(window_ready)
    );

    // Windows for the time in which the first columns of a row give none.
    repeat_buffer #(
        .DATA_WIDTH(OutWidth),
        .LENGTH(Group),
        .COUNT(COUNT),
        .DEPTH(2 * Group + ((COUNT > 1) ? ((KERNEL_WIDTH - 1) * DILATION_WIDTH * Beats) / COUNT : 0))
    ) repeats (
        .clk,
        .rst,
        .data_in_0(window),
        .data_in_0_valid(window_valid),
        .data_in_0_ready(window_ready),
        .data_out_0,
        .data_out_0_valid,
        .data_out_0_ready
    );
  end
endmodule
