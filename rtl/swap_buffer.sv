/// Swap the two outer dimensions of a stream: ROWS x COLUMNS x BEATS beats come out as COLUMNS x ROWS x BEATS; with
/// TRANSPOSE, the elements of ROWS x COLUMNS matrices, PAR_IN of a row a beat, as COLUMNS x ROWS, PAR_OUT of a column a beat.
/// The first splits and joins the heads of attention, the second transposes.
/// Two cycles of latency after the last beat of a matrix, one beat per cycle. Stores two matrices. Cuts the ready path.
/// Does not take sizes that PAR_IN and PAR_OUT do not divide; BEATS is 1 with TRANSPOSE.
module swap_buffer #(
    parameter int DATA_IN_0_PRECISION_0        = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0  = 2,
    parameter int DATA_OUT_0_PARALLELISM_DIM_0 = 2,
    parameter int ROWS                         = 4,
    parameter int COLUMNS                      = 6,
    parameter int BEATS                        = 1,
    parameter bit TRANSPOSE                    = 1'b1,
    localparam int InWidth                     = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int OutWidth                    = DATA_OUT_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0
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
  // A row in memory is Words words; the read goes over Inner of them, then over blocks of rows, then over columns.
  localparam int Banks = TRANSPOSE ? DATA_OUT_0_PARALLELISM_DIM_0 : 1;
  localparam int Lanes = TRANSPOSE ? DATA_IN_0_PARALLELISM_DIM_0 : 1;
  localparam int Words = TRANSPOSE ? COLUMNS / DATA_IN_0_PARALLELISM_DIM_0 : COLUMNS * BEATS;
  localparam int Depth = ROWS / Banks * Words;
  localparam int AddressWidth = (Depth > 1) ? $clog2(Depth) : 1;
  localparam int LaneWidth = (Lanes > 1) ? $clog2(Lanes) : 1;

  if (!TRANSPOSE && DATA_IN_0_PARALLELISM_DIM_0 != DATA_OUT_0_PARALLELISM_DIM_0) begin : g_check
    $error("swap_buffer: beats of %0d elements cannot leave as beats of %0d without TRANSPOSE",
           DATA_IN_0_PARALLELISM_DIM_0, DATA_OUT_0_PARALLELISM_DIM_0);
  end
  if (TRANSPOSE && COLUMNS % DATA_IN_0_PARALLELISM_DIM_0 != 0) begin : g_check_columns
    $error("swap_buffer: %0d columns are no multiple of %0d a beat", COLUMNS, DATA_IN_0_PARALLELISM_DIM_0);
  end

  logic full, reads, last_beat, last_block, last_lane, last_column;
  logic [AddressWidth-1:0] address, column_at;
  logic [LaneWidth-1:0] lane, lane_1;
  logic [Banks*InWidth-1:0] words;

  bank_buffer #(
      .DATA_WIDTH(InWidth),
      .ROWS(ROWS),
      .BEATS(Words),
      .BANKS(Banks)
  ) banks (
      .clk,
      .rst,
      .data_in_0,
      .data_in_0_valid,
      .data_in_0_ready,
      .full,
      .done(reads && last_beat && last_block && last_lane && last_column),
      .address,
      .reads,
      .data(words)
  );

  assign reads = full && (!data_out_0_valid || data_out_0_ready);
  assign last_lane = lane == LaneWidth'(Lanes - 1);

  loop_counter #(.COUNT(BEATS)) beats (.clk, .rst, .step(reads), .last(last_beat));
  loop_counter #(.COUNT(ROWS / Banks)) blocks (.clk, .rst, .step(reads && last_beat), .last(last_block));
  loop_counter #(.COUNT(Words / BEATS)) columns (
      .clk, .rst, .step(reads && last_beat && last_block && last_lane), .last(last_column));

  always_ff @(posedge clk) begin
    if (rst) begin
      address          <= '0;
      column_at        <= '0;
      lane             <= '0;
      data_out_0_valid <= 1'b0;
    end else if (reads) begin
      data_out_0_valid <= 1'b1;
      if (!last_beat) begin
        address <= address + 1'b1;
      end else if (!last_block) begin
        address <= address + AddressWidth'(Words - BEATS + 1);
      end else begin
        lane <= last_lane ? '0 : lane + 1'b1;
        if (!last_lane) begin
          address <= column_at;
        end else begin
          address   <= last_column ? '0 : column_at + AddressWidth'(BEATS);
          column_at <= last_column ? '0 : column_at + AddressWidth'(BEATS);
        end
      end
    end else if (data_out_0_ready) begin
      data_out_0_valid <= 1'b0;
    end
  end

  always_ff @(posedge clk) if (reads) lane_1 <= lane;

  if (TRANSPOSE) begin : g_elements
    for (genvar bank = 0; bank < Banks; bank++) begin : g_bank
      logic [InWidth-1:0] word;
      assign word = words[bank*InWidth+:InWidth];
      assign data_out_0[bank*DATA_IN_0_PRECISION_0+:DATA_IN_0_PRECISION_0] =
          word[lane_1*DATA_IN_0_PRECISION_0+:DATA_IN_0_PRECISION_0];
    end
  end else begin : g_beats
    logic unused_lane;
    assign unused_lane = &{1'b0, lane_1};
    assign data_out_0 = words;
  end
endmodule
