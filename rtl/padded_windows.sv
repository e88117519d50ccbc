/// The front of convolutions and pools: a border around an image (PADDING_*, image_padding), if it has one, then its windows
/// (sliding_window), or several of their positions at once (parallel_window): KERNEL_PARALLELISM_DIM_1 rows and
/// KERNEL_PARALLELISM_DIM_0 columns of a window, 1 and 1, KERNEL_HEIGHT and 1, or all. Sizes are those without the border.
/// Rate, storage and latency are those of these three; with REGISTERED two cycles more: a register behind the memory, and a skid buffer.
/// With WHOLE the only window is the whole image: its pixels pass in their order, without latency and storage.
/// Cuts both paths, but for the ready of a border, of several positions at once, and of WHOLE.
module padded_windows #(
    parameter int DATA_IN_0_PRECISION_0       = 8,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0 = 4,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_1 = 8,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_2 = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 2,
    parameter int KERNEL_HEIGHT               = 3,
    parameter int KERNEL_WIDTH                = 3,
    parameter int KERNEL_PARALLELISM_DIM_0    = 1,
    parameter int KERNEL_PARALLELISM_DIM_1    = 1,
    parameter int STRIDE_HEIGHT               = 1,
    parameter int STRIDE_WIDTH                = 1,
    parameter int DILATION_HEIGHT             = 1,
    parameter int DILATION_WIDTH              = 1,
    parameter int PADDING_TOP                 = 1,
    parameter int PADDING_BOTTOM              = 1,
    parameter int PADDING_LEFT                = 1,
    parameter int PADDING_RIGHT               = 1,
    parameter bit LOWEST                      = 1'b0,
    parameter int GROUPS                      = 1,
    parameter int COUNT                       = 1,
    parameter int SPARE                       = DATA_IN_0_TENSOR_SIZE_DIM_1 * STRIDE_HEIGHT,
    parameter bit REGISTERED                  = 1'b0,
    parameter bit WHOLE                       = 1'b0,
    localparam int InWidth                    = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int Taps                       = KERNEL_PARALLELISM_DIM_1 * KERNEL_PARALLELISM_DIM_0,
    localparam int OutWidth                   = Taps * InWidth
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
  localparam int Width = DATA_IN_0_TENSOR_SIZE_DIM_1 + PADDING_LEFT + PADDING_RIGHT;
  localparam int Height = DATA_IN_0_TENSOR_SIZE_DIM_2 + PADDING_TOP + PADDING_BOTTOM;

  if (Taps > 1 && KERNEL_PARALLELISM_DIM_1 != KERNEL_HEIGHT) begin : g_check_taps
    $error("padded_windows: %0d of %0d rows of the kernel at once; 1 or all are possible", KERNEL_PARALLELISM_DIM_1,
           KERNEL_HEIGHT);
  end
  if (WHOLE && (KERNEL_WIDTH != Width || KERNEL_HEIGHT != Height)) begin : g_check_whole
    $error("padded_windows: a window of %0d x %0d is not the whole image of %0d x %0d", KERNEL_HEIGHT, KERNEL_WIDTH,
           Height, Width);
  end

  logic [InWidth-1:0] padded;
  logic [OutWidth-1:0] window;
  logic padded_valid, padded_ready, window_valid, window_ready;

  if (PADDING_TOP + PADDING_BOTTOM + PADDING_LEFT + PADDING_RIGHT > 0) begin : g_padding
    image_padding #(
        .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
        .DATA_IN_0_TENSOR_SIZE_DIM_0(DATA_IN_0_TENSOR_SIZE_DIM_0),
        .DATA_IN_0_TENSOR_SIZE_DIM_1(DATA_IN_0_TENSOR_SIZE_DIM_1),
        .DATA_IN_0_TENSOR_SIZE_DIM_2(DATA_IN_0_TENSOR_SIZE_DIM_2),
        .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
        .TOP(PADDING_TOP),
        .BOTTOM(PADDING_BOTTOM),
        .LEFT(PADDING_LEFT),
        .RIGHT(PADDING_RIGHT),
        .LOWEST(LOWEST)
    ) padding (
        .clk,
        .rst,
        .data_in_0,
        .data_in_0_valid,
        .data_in_0_ready,
        .data_out_0(padded),
        .data_out_0_valid(padded_valid),
        .data_out_0_ready(padded_ready)
    );
  end else begin : g_plain
    assign padded = data_in_0;
    assign padded_valid = data_in_0_valid;
    assign data_in_0_ready = padded_ready;
  end

  if (WHOLE) begin : g_whole
    assign window = padded;
    assign window_valid = padded_valid;
    assign padded_ready = window_ready;
    logic unused_clock;
    assign unused_clock = &{1'b0, clk, rst};
  end else if (Taps == 1) begin : g_one_by_one
    sliding_window #(
        .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
        .DATA_IN_0_TENSOR_SIZE_DIM_0(DATA_IN_0_TENSOR_SIZE_DIM_0),
        .DATA_IN_0_TENSOR_SIZE_DIM_1(Width),
        .DATA_IN_0_TENSOR_SIZE_DIM_2(Height),
        .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
        .KERNEL_HEIGHT(KERNEL_HEIGHT),
        .KERNEL_WIDTH(KERNEL_WIDTH),
        .STRIDE_HEIGHT(STRIDE_HEIGHT),
        .STRIDE_WIDTH(STRIDE_WIDTH),
        .DILATION_HEIGHT(DILATION_HEIGHT),
        .DILATION_WIDTH(DILATION_WIDTH),
        .GROUPS(GROUPS),
        .COUNT(COUNT),
        .SPARE(SPARE)
    ) windows (
        .clk,
        .rst,
        .data_in_0(padded),
        .data_in_0_valid(padded_valid),
        .data_in_0_ready(padded_ready),
        .data_out_0(window),
        .data_out_0_valid(window_valid),
        .data_out_0_ready(window_ready)
    );
  end else begin : g_at_once
    parallel_window #(
        .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
        .DATA_IN_0_TENSOR_SIZE_DIM_0(DATA_IN_0_TENSOR_SIZE_DIM_0),
        .DATA_IN_0_TENSOR_SIZE_DIM_1(Width),
        .DATA_IN_0_TENSOR_SIZE_DIM_2(Height),
        .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
        .KERNEL_HEIGHT(KERNEL_HEIGHT),
        .KERNEL_WIDTH(KERNEL_WIDTH),
        .KERNEL_PARALLELISM_DIM_0(KERNEL_PARALLELISM_DIM_0),
        .STRIDE_HEIGHT(STRIDE_HEIGHT),
        .STRIDE_WIDTH(STRIDE_WIDTH),
        .DILATION_HEIGHT(DILATION_HEIGHT),
        .DILATION_WIDTH(DILATION_WIDTH),
        .GROUPS(GROUPS),
        .COUNT(COUNT),
        .SPARE(SPARE)
    ) windows (
        .clk,
        .rst,
        .data_in_0(padded),
        .data_in_0_valid(padded_valid),
        .data_in_0_ready(padded_ready),
        .data_out_0(window),
        .data_out_0_valid(window_valid),
        .data_out_0_ready(window_ready)
    );
  end

  if (REGISTERED) begin : g_registered
    // Memories are slow to read: what they give has one register, which a block memory can take in, and ready ends behind it.
    logic [OutWidth-1:0] beat;
    logic beat_valid, beat_ready;
    assign window_ready = !beat_valid || beat_ready;
    always_ff @(posedge clk) begin
      if (rst) beat_valid <= 1'b0;
      else if (window_ready) beat_valid <= window_valid;
    end
    always_ff @(posedge clk) if (window_ready) beat <= window;
    skid_buffer #(
        .DATA_WIDTH(OutWidth)
    ) registers (
        .clk,
        .rst,
        .data_in_0(beat),
        .data_in_0_valid(beat_valid),
        .data_in_0_ready(beat_ready),
        .data_out_0,
        .data_out_0_valid,
        .data_out_0_ready
    );
  end else begin : g_direct
    assign data_out_0 = window;
    assign data_out_0_valid = window_valid;
    assign window_ready = data_out_0_ready;
  end
endmodule
