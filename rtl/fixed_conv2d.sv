/// activation(conv2d(x, W) + b) of a stream of images: rows, columns, channels. The activation is ReLU or none.
/// A border of zeros (PADDING_*), the windows one after another, and a dot product of each with every filter:
/// TAPS * PAR_IN * PAR_OUT multipliers (the PARALLELISM parameters); PAR_IN divides IN / GROUPS and PAR_OUT OUT / GROUPS.
/// Or a beat has the channels of several whole groups, and a beat of results all of theirs: then each lane of results has the
/// channels of its group, TAPS * IN / GROUPS * PAR_OUT multipliers, and a window takes GROUPS / (groups of a beat) turns.
/// TAPS is WEIGHT_PARALLELISM_DIM_1 * WEIGHT_PARALLELISM_DIM_0, rows and columns of the kernel at once: 1 and 1, some rows
/// and 1, or KERNEL_HEIGHT and some columns, their numbers dividing the kernel's. A part of a column or of a window is a
/// piece of the whole, which is there at once.
/// An image takes windows * KERNEL_HEIGHT * KERNEL_WIDTH / TAPS * (IN / GROUPS / PAR_IN) * (OUT / PAR_OUT) cycles, if its
/// pixels come in time. 10 + $clog2(TAPS * PAR_IN) cycles of latency from the last pixel of the first window (3 more with
/// TAPS, 4 with pieces), and the cycles of one dot product. Stores the rows of one window, and SPARE pixels, with TAPS columns, more.
/// Cuts both paths, but for the ready of a border and of TAPS.
/// Memory files as of fixed_linear_core: a filter's elements are kernel rows, kernel columns, channels of its group; with
/// TAPS they are those of parallel_window. Is arithmetic.conv2d in Python.
module fixed_conv2d #(
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
    parameter int GROUPS                       = 1,
    parameter int SPARE                        = DATA_IN_0_TENSOR_SIZE_DIM_1 * STRIDE_HEIGHT,
    parameter int WEIGHT_PRECISION_0           = 8,
    parameter int WEIGHT_PRECISION_1           = 6,
    parameter int WEIGHT_PARALLELISM_DIM_0     = 1,
    parameter int WEIGHT_PARALLELISM_DIM_1     = 1,
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
    localparam int InWidth                     = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
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
  localparam int Channels = DATA_IN_0_TENSOR_SIZE_DIM_0 / GROUPS;
  localparam int Slices = (DATA_IN_0_PARALLELISM_DIM_0 > Channels) ? DATA_IN_0_PARALLELISM_DIM_0 / Channels : 1;
  localparam int Turns = GROUPS / Slices;
  localparam int Filters = DATA_OUT_0_TENSOR_SIZE_DIM_0 / Turns;  // of a turn
  localparam int Passes = Filters / DATA_OUT_0_PARALLELISM_DIM_0;
  localparam int Taps = WEIGHT_PARALLELISM_DIM_1 * WEIGHT_PARALLELISM_DIM_0;
  localparam int Lanes = Taps * DATA_IN_0_PARALLELISM_DIM_0;
  // Of the windows: a column or all, of which a beat is a piece.
  localparam int Rows = (Taps > 1) ? KERNEL_HEIGHT : 1;
  localparam int Columns = (WEIGHT_PARALLELISM_DIM_0 > 1) ? KERNEL_WIDTH : 1;
  localparam int Pieces = Rows * Columns / Taps;
  localparam int LanesWidth = Lanes * DATA_IN_0_PRECISION_0;

  if (DATA_OUT_0_TENSOR_SIZE_DIM_0 % GROUPS != 0 || Filters % DATA_OUT_0_PARALLELISM_DIM_0 != 0) begin : g_check
    $error("fixed_conv2d: %0d filters are no multiple of %0d groups of %0d a beat", DATA_OUT_0_TENSOR_SIZE_DIM_0,
           Turns, DATA_OUT_0_PARALLELISM_DIM_0);
  end
  if (Slices > 1 && (Slices * Channels != DATA_IN_0_PARALLELISM_DIM_0 || Turns * Slices != GROUPS || Passes != 1)) begin : g_check_slices
    $error("fixed_conv2d: %0d channels and %0d results a beat are not all of some of %0d groups",
           DATA_IN_0_PARALLELISM_DIM_0, DATA_OUT_0_PARALLELISM_DIM_0, GROUPS);
  end
  if (Rows % WEIGHT_PARALLELISM_DIM_1 != 0 || Columns % WEIGHT_PARALLELISM_DIM_0 != 0 ||
      (Columns > 1 && WEIGHT_PARALLELISM_DIM_1 != KERNEL_HEIGHT)) begin : g_check_taps
    $error("fixed_conv2d: %0d rows and %0d columns at once do not divide a kernel of %0d and %0d",
           WEIGHT_PARALLELISM_DIM_1, WEIGHT_PARALLELISM_DIM_0, KERNEL_HEIGHT, KERNEL_WIDTH);
  end

  logic [Pieces*LanesWidth-1:0] whole;
  logic [LanesWidth-1:0] window, sliced;
  logic whole_valid, whole_ready, window_valid, window_ready;

  padded_windows #(
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_TENSOR_SIZE_DIM_0(DATA_IN_0_TENSOR_SIZE_DIM_0),
      .DATA_IN_0_TENSOR_SIZE_DIM_1(DATA_IN_0_TENSOR_SIZE_DIM_1),
      .DATA_IN_0_TENSOR_SIZE_DIM_2(DATA_IN_0_TENSOR_SIZE_DIM_2),
      .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
      .KERNEL_HEIGHT(KERNEL_HEIGHT),
      .KERNEL_WIDTH(KERNEL_WIDTH),
      .KERNEL_PARALLELISM_DIM_0(Columns),
      .KERNEL_PARALLELISM_DIM_1(Rows),
      .STRIDE_HEIGHT(STRIDE_HEIGHT),
      .STRIDE_WIDTH(STRIDE_WIDTH),
      .DILATION_HEIGHT(DILATION_HEIGHT),
      .DILATION_WIDTH(DILATION_WIDTH),
      .PADDING_TOP(PADDING_TOP),
      .PADDING_BOTTOM(PADDING_BOTTOM),
      .PADDING_LEFT(PADDING_LEFT),
      .PADDING_RIGHT(PADDING_RIGHT),
      .GROUPS(Turns),
      .COUNT(Passes),
      .SPARE(SPARE)
  ) windows (
      .clk,
      .rst,
      .data_in_0,
      .data_in_0_valid,
      .data_in_0_ready,
      .data_out_0(whole),
      .data_out_0_valid(whole_valid),
      .data_out_0_ready(whole_ready)
  );

  if (Pieces > 1) begin : g_pieces
    width_downsizer #(
        .DATA_WIDTH(LanesWidth),
        .RATIO(Pieces)
    ) pieces (
        .clk,
        .rst,
        .data_in_0(whole),
        .data_in_0_valid(whole_valid),
        .data_in_0_ready(whole_ready),
        .data_out_0(window),
        .data_out_0_valid(window_valid),
        .data_out_0_ready(window_ready)
    );
  end else begin : g_whole
    assign window = whole;
    assign window_valid = whole_valid;
    assign whole_ready = window_ready;
  end

  // A window's beat has a position's channels together, a slice a group's.
  localparam int Part = DATA_IN_0_PARALLELISM_DIM_0 / Slices * DATA_IN_0_PRECISION_0;
  for (genvar slice = 0; slice < Slices; slice++) begin : g_slice
    for (genvar tap = 0; tap < Taps; tap++) begin : g_tap
      assign sliced[(slice*Taps+tap)*Part+:Part] = window[(tap*Slices+slice)*Part+:Part];
    end
  end

  fixed_linear_core #(
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_PRECISION_1(DATA_IN_0_PRECISION_1),
      .WEIGHT_PRECISION_0(WEIGHT_PRECISION_0),
      .WEIGHT_PRECISION_1(WEIGHT_PRECISION_1),
      .HAS_BIAS(HAS_BIAS),
      .BIAS_PRECISION_0(BIAS_PRECISION_0),
      .BIAS_PRECISION_1(BIAS_PRECISION_1),
      .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
      .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
      .DATA_IN_0_TENSOR_SIZE_DIM_0(KERNEL_HEIGHT * KERNEL_WIDTH * Channels),
      .DATA_IN_0_PARALLELISM_DIM_0(Lanes / Slices),
      .SLICES(Slices),
      .DATA_OUT_0_TENSOR_SIZE_DIM_0(DATA_OUT_0_TENSOR_SIZE_DIM_0),
      .DATA_OUT_0_PARALLELISM_DIM_0(DATA_OUT_0_PARALLELISM_DIM_0),
      .FLOOR(FLOOR),
      .RELU(RELU),
      .WEIGHT_FILE(WEIGHT_FILE),
      .BIAS_FILE(BIAS_FILE)
  ) core (
      .clk,
      .rst,
      .data_in_0(sliced),
      .data_in_0_valid(window_valid),
      .data_in_0_ready(window_ready),
      .data_out_0,
      .data_out_0_valid,
      .data_out_0_ready
  );
endmodule
