/// The windows of an image, one after another, from a stream of its pixels: what convolution and pooling work on.
/// Pixels come in rows; a pixel's channels come PAR at a time (DATA_IN_0_PARALLELISM_DIM_0, PAR divides CHANNELS / GROUPS).
/// For each window, row by row: for each of GROUPS groups of channels, COUNT times: rows of the window, columns, the
/// group's channels. One beat per cycle, so an image takes windows * COUNT * KERNEL_HEIGHT * KERNEL_WIDTH * CHANNELS / PAR.
/// Stores the pixels from a window's first to its last one and SPARE more, so the next ones arrive meanwhile.
/// Two cycles of latency after the last pixel of the first window. `data_in_0_ready` depends on registers alone.
/// Does not pad: image_padding does. Pixels that no window has are taken and dropped.
module sliding_window #(
    parameter int DATA_IN_0_PRECISION_0       = 8,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0 = 4,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_1 = 8,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_2 = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 2,
    parameter int KERNEL_HEIGHT               = 3,
    parameter int KERNEL_WIDTH                = 3,
    parameter int STRIDE_HEIGHT               = 1,
    parameter int STRIDE_WIDTH                = 1,
    parameter int DILATION_HEIGHT             = 1,
    parameter int DILATION_WIDTH              = 1,
    parameter int GROUPS                      = 1,
    parameter int COUNT                       = 1,
    parameter int SPARE                       = DATA_IN_0_TENSOR_SIZE_DIM_1,
    localparam int Beat                       = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0
) (
    input  logic            clk,
    input  logic            rst,
    input  logic [Beat-1:0] data_in_0,
    input  logic            data_in_0_valid,
    output logic            data_in_0_ready,
    output logic [Beat-1:0] data_out_0,
    output logic            data_out_0_valid,
    input  logic            data_out_0_ready
);
  localparam int Width = DATA_IN_0_TENSOR_SIZE_DIM_1;
  localparam int Height = DATA_IN_0_TENSOR_SIZE_DIM_2;
  localparam int Beats = DATA_IN_0_TENSOR_SIZE_DIM_0 / DATA_IN_0_PARALLELISM_DIM_0;  // of a pixel
  localparam int Group = Beats / GROUPS;
  // Pixels from the first to the last row and column of a window.
  localparam int Tall = (KERNEL_HEIGHT - 1) * DILATION_HEIGHT + 1;
  localparam int Wide = (KERNEL_WIDTH - 1) * DILATION_WIDTH + 1;
  localparam int Columns = (Width - Wide) / STRIDE_WIDTH + 1;
  localparam int Rows = (Height - Tall) / STRIDE_HEIGHT + 1;

  if (Group * GROUPS * DATA_IN_0_PARALLELISM_DIM_0 != DATA_IN_0_TENSOR_SIZE_DIM_0) begin : g_check_channels
    $error("sliding_window: %0d channels are no multiple of %0d groups of %0d a beat", DATA_IN_0_TENSOR_SIZE_DIM_0,
           GROUPS, DATA_IN_0_PARALLELISM_DIM_0);
  end
  if (Wide > Width || Tall > Height) begin : g_check_size
    $error("sliding_window: a window of %0d x %0d does not fit into an image of %0d x %0d", Tall, Wide,
           Height, Width);
  end

  // Memory is a ring. A place in it is counted from the window's first pixel, its origin, in beats.
  localparam int Span = ((Tall - 1) * Width + Wide) * Beats;
  localparam int Depth = Span + SPARE * Beats;
  // How far the origin moves: to the next window, to the next row of windows, to the next image.
  localparam int ToColumn = STRIDE_WIDTH * Beats;
  localparam int ToRow = (STRIDE_HEIGHT * Width - (Columns - 1) * STRIDE_WIDTH) * Beats;
  localparam int ToImage = (Height * Width - (Rows - 1) * STRIDE_HEIGHT * Width - (Columns - 1) * STRIDE_WIDTH) * Beats;
  localparam int Farthest = (ToRow > ToImage) ? ToRow : ToImage;
  localparam int Reach = (Depth > Farthest) ? Depth : Farthest;
  // How far a read moves at the end of a pixel's group, and of a window's row.
  localparam int ToPixel = DILATION_WIDTH * Beats - Group + 1;
  localparam int ToLine = (DILATION_HEIGHT * Width - Wide + 1) * Beats - Group + 1;
  // From the first to the last beat of a pass, and of a window.
  localparam int Last = Span - Beats + Group - 1;
  localparam int End = Last + (GROUPS - 1) * Group;

  localparam int PlaceWidth = $clog2(2 * Depth);  // a sum of two places, before it is brought back into the ring
  localparam int AddressWidth = (Depth > 1) ? $clog2(Depth) : 1;
  localparam int HeldWidth = $clog2(2 * Reach + 1) + 1;

  function automatic [PlaceWidth-1:0] around(input [PlaceWidth-1:0] place);
    around = (place >= PlaceWidth'(Depth)) ? place - PlaceWidth'(Depth) : place;
  endfunction

  logic [Beat-1:0] memory[Depth];
  logic [PlaceWidth-1:0] write_at, read_at, origin, base;
  // Beats that arrived from the origin on; below zero where the origin is past what has arrived.
  logic signed [HeldWidth-1:0] held;
  // Beats that arrived from the read on: the next read's comparison is made a cycle before, with and without a read in
  // this one, because long paths begin with it.
  logic signed [HeldWidth-1:0] left, left_after_read;
  logic available;

  logic last_channel, last_column, last_line, last_count, last_group, last_window_column, last_window_row;
  logic ends_pass, ends_group, ends_window, push, read;

  loop_counter #(.COUNT(Group)) channels (.clk, .rst, .step(read), .last(last_channel));
  loop_counter #(.COUNT(KERNEL_WIDTH)) columns (.clk, .rst, .step(read && last_channel), .last(last_column));
  loop_counter #(.COUNT(KERNEL_HEIGHT)) lines (
      .clk, .rst, .step(read && last_channel && last_column), .last(last_line));
  loop_counter #(.COUNT(COUNT)) passes (.clk, .rst, .step(read && ends_pass), .last(last_count));
  loop_counter #(.COUNT(GROUPS)) groups (.clk, .rst, .step(read && ends_group), .last(last_group));
  loop_counter #(.COUNT(Columns)) window_columns (
      .clk, .rst, .step(read && ends_window), .last(last_window_column));
  loop_counter #(.COUNT(Rows)) window_rows (
      .clk, .rst, .step(read && ends_window && last_window_column), .last(last_window_row));

  assign ends_pass = last_channel && last_column && last_line;
  assign ends_group = ends_pass && last_count;
  assign ends_window = ends_group && last_group;

  // What the origin moves by at the end of a window, and the read otherwise.
  logic [PlaceWidth-1:0] origin_step, origin_next, read_step;
  logic [HeldWidth-1:0] freed;

  always_comb begin
    if (!last_window_column) freed = HeldWidth'(ToColumn);
    else if (!last_window_row) freed = HeldWidth'(ToRow);
    else freed = HeldWidth'(ToImage);
    if (!last_window_column) origin_step = PlaceWidth'(ToColumn % Depth);
    else if (!last_window_row) origin_step = PlaceWidth'(ToRow % Depth);
    else origin_step = PlaceWidth'(ToImage % Depth);
    origin_next = around(origin + origin_step);
    if (!last_channel) read_step = PlaceWidth'(1);
    else if (!last_column) read_step = PlaceWidth'(ToPixel);
    else read_step = PlaceWidth'(ToLine);
  end

  assign data_in_0_ready = held < $signed(HeldWidth'(Depth));
  assign push = data_in_0_valid && data_in_0_ready;
  assign read = available && (!data_out_0_valid || data_out_0_ready);

  always_comb begin
    if (!ends_pass) left_after_read = left - $signed(HeldWidth'(read_step));
    else if (!ends_group) left_after_read = left + $signed(HeldWidth'(Last));
    else if (!ends_window) left_after_read = left + $signed(HeldWidth'(Last - Group));
    else left_after_read = left + $signed(HeldWidth'(End)) - $signed(freed);
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      write_at         <= '0;
      read_at          <= '0;
      origin           <= '0;
      base             <= '0;
      held             <= '0;
      left             <= '0;
      available        <= 1'b0;
      data_out_0_valid <= 1'b0;
    end else begin
      if (push) write_at <= around(write_at + PlaceWidth'(1));
      held <= held + $signed(HeldWidth'(push)) - ((read && ends_window) ? $signed(freed) : '0);
      left <= (read ? left_after_read : left) + $signed(HeldWidth'(push));
      if (push) available <= read ? !left_after_read[HeldWidth-1] : !left[HeldWidth-1];
      else available <= read ? left_after_read > $signed(HeldWidth'(0)) : left > $signed(HeldWidth'(0));
      if (read) begin
        data_out_0_valid <= 1'b1;
        if (ends_window) begin
          origin      <= origin_next;
          base        <= origin_next;
          read_at     <= origin_next;
        end else if (ends_group) begin
          base        <= around(base + PlaceWidth'(Group));
          read_at     <= around(base + PlaceWidth'(Group));
        end else if (ends_pass) begin
          read_at <= base;
        end else begin
          read_at <= around(read_at + read_step);
        end
      end else if (data_out_0_ready) begin
        data_out_0_valid <= 1'b0;
      end
    end
  end

  always_ff @(posedge clk) begin
    if (push) memory[write_at[AddressWidth-1:0]] <= data_in_0;
    if (read) data_out_0 <= memory[read_at[AddressWidth-1:0]];
  end
endmodule
