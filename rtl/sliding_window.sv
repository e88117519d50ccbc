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

  // A place moved by less than the ring's length: both sums are made at once, and the second's sign chooses.
  // A layer of a model may have one of these names: that is no fault.
  /* verilator lint_off VARHIDDEN */
  function automatic [PlaceWidth-1:0] around(input [PlaceWidth-1:0] place, step, input signed [PlaceWidth:0] back);
    logic signed [PlaceWidth:0] wrapped;
    wrapped = $signed({1'b0, place}) + back;
    around = wrapped[PlaceWidth] ? place + step : wrapped[PlaceWidth-1:0];
  endfunction
  /* verilator lint_on VARHIDDEN */

  logic [PlaceWidth-1:0] write_at, read_at, origin, base;
  // Beats that arrived from the origin on; below zero where the origin is past what has arrived.
  logic signed [HeldWidth-1:0] held;
  logic room;  // for a beat to come: held < Depth
  // Beats that arrived behind the one that is read next; below zero where that one has not come.
  logic signed [HeldWidth-1:0] ahead, after_push, after_read, after_both;
  logic push, read;

  // The loops are one read ahead of the data: what ends with a read, and what moves then, stands in registers.
  logic primed, advance;
  logic last_channel, last_column, last_line, last_count, last_group, last_window_column, last_window_row;
  logic pass_ends, group_ends, window_ends;
  logic ends_pass, ends_group, ends_window;

  assign advance = read || !primed;
  assign pass_ends = last_channel && last_column && last_line;
  assign group_ends = pass_ends && last_count;
  assign window_ends = group_ends && last_group;

  loop_counter #(.COUNT(Group)) channels (.clk, .rst, .step(advance), .last(last_channel));
  loop_counter #(.COUNT(KERNEL_WIDTH)) columns (.clk, .rst, .step(advance && last_channel), .last(last_column));
  loop_counter #(.COUNT(KERNEL_HEIGHT)) lines (
      .clk, .rst, .step(advance && last_channel && last_column), .last(last_line));
  loop_counter #(.COUNT(COUNT)) passes (.clk, .rst, .step(advance && pass_ends), .last(last_count));
  loop_counter #(.COUNT(GROUPS)) groups (.clk, .rst, .step(advance && group_ends), .last(last_group));
  loop_counter #(.COUNT(Columns)) window_columns (
      .clk, .rst, .step(advance && window_ends), .last(last_window_column));
  loop_counter #(.COUNT(Rows)) window_rows (
      .clk, .rst, .step(advance && window_ends && last_window_column), .last(last_window_row));

  // What the read moves by in a pass, what the origin does at the end of a window, and what the read passes by then.
  logic [PlaceWidth-1:0] read_step, origin_step, read_step_next, origin_step_next;
  logic signed [PlaceWidth:0] read_back, origin_back;
  logic [HeldWidth-1:0] freed, freed_next;
  logic signed [HeldWidth-1:0] passed, passed_less, passed_next;

  always_comb begin
    if (!last_window_column) begin
      freed_next = HeldWidth'(ToColumn);
      origin_step_next = PlaceWidth'(ToColumn % Depth);
    end else if (!last_window_row) begin
      freed_next = HeldWidth'(ToRow);
      origin_step_next = PlaceWidth'(ToRow % Depth);
    end else begin
      freed_next = HeldWidth'(ToImage);
      origin_step_next = PlaceWidth'(ToImage % Depth);
    end
    if (!last_channel) read_step_next = PlaceWidth'(1);
    else if (!last_column) read_step_next = PlaceWidth'(ToPixel);
    else read_step_next = PlaceWidth'(ToLine);
    if (!pass_ends) passed_next = $signed(HeldWidth'(read_step_next));
    else if (!group_ends) passed_next = -$signed(HeldWidth'(Last));
    else if (!window_ends) passed_next = -$signed(HeldWidth'(Last - Group));
    else passed_next = $signed(freed_next) - $signed(HeldWidth'(End));
  end

  always_ff @(posedge clk) begin
    if (rst) primed <= 1'b0;
    else primed <= 1'b1;
  end
  always_ff @(posedge clk) begin
    if (advance) begin
      {ends_pass, ends_group, ends_window} <= {pass_ends, group_ends, window_ends};
      {read_step, origin_step} <= {read_step_next, origin_step_next};
      read_back <= $signed({1'b0, read_step_next}) - (PlaceWidth + 1)'(Depth);
      origin_back <= $signed({1'b0, origin_step_next}) - (PlaceWidth + 1)'(Depth);
      freed <= window_ends ? freed_next : '0;
      passed <= passed_next;
      passed_less <= passed_next - 1'b1;
    end
  end

  logic [PlaceWidth-1:0] origin_next, group_next;
  assign origin_next = around(origin, origin_step, origin_back);
  assign group_next = around(base, PlaceWidth'(Group), (PlaceWidth + 1)'(Group - Depth));

  assign data_in_0_ready = room;
  assign push = data_in_0_valid && room;
  assign read = !ahead[HeldWidth-1] && (!data_out_0_valid || data_out_0_ready);
  assign after_push = ahead + 1'b1;
  assign after_read = ahead - passed;
  assign after_both = ahead - passed_less;

  always_ff @(posedge clk) begin
    if (rst) begin
      write_at         <= '0;
      read_at          <= '0;
      origin           <= '0;
      base             <= '0;
      held             <= '0;
      room             <= 1'b1;
      ahead            <= '1;
      data_out_0_valid <= 1'b0;
    end else begin
      if (push) write_at <= (write_at == PlaceWidth'(Depth - 1)) ? '0 : write_at + 1'b1;
      held <= (read ? held - $signed(freed) : held) + $signed(HeldWidth'(push));
      if (push) room <= (read && ends_window) || held != $signed(HeldWidth'(Depth - 1));
      else if (read && ends_window) room <= 1'b1;
      if (read) ahead <= push ? after_both : after_read;
      else if (push) ahead <= after_push;
      if (read) begin
        data_out_0_valid <= 1'b1;
        if (ends_window) {origin, base, read_at} <= {3{origin_next}};
        else if (ends_group) {base, read_at} <= {2{group_next}};
        else if (ends_pass) read_at <= base;
        else read_at <= around(read_at, read_step, read_back);
      end else if (data_out_0_ready) begin
        data_out_0_valid <= 1'b0;
      end
    end
  end

  ram #(
      .DATA_WIDTH(Beat),
      .DEPTH(Depth)
  ) memory (
      .clk,
      .write(push),
      .write_address(write_at[AddressWidth-1:0]),
      .write_data(data_in_0),
      .read,
      .read_address(read_at[AddressWidth-1:0]),
      .read_data(data_out_0)
  );
endmodule
