/// Put a border around every image of a stream: rows, columns, channels, a pixel's channels PAR at a time.
/// The border is 0, or with LOWEST the lowest integer, which no maximum takes.
/// No latency, one beat per cycle; the beats of the border are extra. Nothing comes before the image's first pixel did.
/// Does not cut the ready path.
module image_padding #(
    parameter int DATA_IN_0_PRECISION_0       = 8,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0 = 4,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_1 = 8,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_2 = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 2,
    parameter int TOP                         = 1,
    parameter int BOTTOM                      = 1,
    parameter int LEFT                        = 1,
    parameter int RIGHT                       = 1,
    parameter bit LOWEST                      = 1'b0,
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
  localparam int Beats = DATA_IN_0_TENSOR_SIZE_DIM_0 / DATA_IN_0_PARALLELISM_DIM_0;
  localparam int Columns = DATA_IN_0_TENSOR_SIZE_DIM_1 + LEFT + RIGHT;
  localparam int Rows = DATA_IN_0_TENSOR_SIZE_DIM_2 + TOP + BOTTOM;
  localparam int ColumnWidth = $clog2(Columns + 1);
  localparam int RowWidth = $clog2(Rows + 1);
  localparam logic [DATA_IN_0_PRECISION_0-1:0] Element = {LOWEST, {(DATA_IN_0_PRECISION_0 - 1) {1'b0}}};

  logic [ColumnWidth-1:0] column;
  logic [RowWidth-1:0] row;
  logic moves, last_beat, last_column, last_row, is_pixel;
  // Past the borders before the image, and not yet in those behind it: registers, because long paths begin with them.
  logic in_columns, in_rows;
  logic begun;  // a pixel of the present image was taken, so that all of it will come

  loop_counter #(
      .COUNT(Beats)
  ) beats (
      .clk,
      .rst,
      .step(moves),
      .last(last_beat)
  );

  assign is_pixel = in_columns && in_rows;

  assign data_out_0_valid = (begun && !is_pixel) || data_in_0_valid;
  assign data_out_0 = is_pixel ? data_in_0 : {DATA_IN_0_PARALLELISM_DIM_0{Element}};
  assign data_in_0_ready = is_pixel && data_out_0_ready;
  assign moves = data_out_0_valid && data_out_0_ready;

  assign last_column = column == ColumnWidth'(Columns - 1);
  assign last_row = row == RowWidth'(Rows - 1);

  always_ff @(posedge clk) begin
    if (rst) begin
      column     <= '0;
      row        <= '0;
      in_columns <= LEFT == 0;
      in_rows    <= TOP == 0;
      begun      <= 1'b0;
    end else if (moves) begin
      begun <= (begun || is_pixel) && !(last_beat && last_column && last_row);
      if (last_beat) column <= last_column ? '0 : column + 1'b1;
      if (last_beat && last_column) row <= last_row ? '0 : row + 1'b1;
      // No column is the one before a border of 0: the counter holds one number more than there are columns.
      if (last_beat) begin
        if (last_column) in_columns <= LEFT == 0;
        else if (column == ColumnWidth'(LEFT - 1)) in_columns <= 1'b1;
        else if (column == ColumnWidth'(Columns - RIGHT - 1)) in_columns <= 1'b0;
      end
      if (last_beat && last_column) begin
        if (last_row) in_rows <= TOP == 0;
        else if (row == RowWidth'(TOP - 1)) in_rows <= 1'b1;
        else if (row == RowWidth'(Rows - BOTTOM - 1)) in_rows <= 1'b0;
      end
    end
  end
endmodule
