/// Softmax over rows of DATA_IN_0_TENSOR_SIZE_DIM_0 numbers: exp(x - maximum) / sum, in integers throughout.
/// The exponentials come from a table and have EXP_FRACTION bits after the point; their sum is exact; the quotient is
/// rounded once, half to even, and saturated (1 is beyond most formats). One beat per cycle, a row in as many cycles as
/// it has beats, 2 * BEATS + 9 cycles of latency and one for each of the output's bits after the point; stores four rows.
/// With HAS_MASK, what MASK_FILE has a 1 for is left out, and a row of such alone gives zeros; a word for each of MASK_BEATS
/// beats, then again from the first.
/// FILE has 2**DATA_IN_0_PRECISION_0 words of EXP_FRACTION + 1 bits: word d is exp(-d / 2**DATA_IN_0_PRECISION_1).
/// Is arithmetic.softmax in Python. Does not cut the ready path at its output.
module fixed_softmax #(
    parameter int DATA_IN_0_PRECISION_0       = 8,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0 = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 2,
    parameter int EXP_FRACTION                = 14,
    parameter int DATA_OUT_0_PRECISION_0      = 8,
    parameter int DATA_OUT_0_PRECISION_1      = 7,
    parameter     FILE                        = "exp.mem",
    parameter bit HAS_MASK                    = 1'b0,
    parameter int MASK_BEATS                  = 1,
    parameter     MASK_FILE                   = "mask.mem",
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
  localparam int Lanes = DATA_IN_0_PARALLELISM_DIM_0;
  localparam int Beats = DATA_IN_0_TENSOR_SIZE_DIM_0 / Lanes;
  localparam int ExpWidth = EXP_FRACTION + 1;
  localparam int TermWidth = ExpWidth + 1;  // with the sign that sums are computed with
  localparam int SumWidth = TermWidth + $clog2(Beats) + $clog2(Lanes);
  localparam int QuotientWidth = DATA_OUT_0_PRECISION_1 + 1;
  localparam int Stages = QuotientWidth + 2;

  if (Beats * Lanes != DATA_IN_0_TENSOR_SIZE_DIM_0) begin : g_check
    $error("fixed_softmax: %0d numbers are no multiple of %0d a beat", DATA_IN_0_TENSOR_SIZE_DIM_0, Lanes);
  end
  if (DATA_OUT_0_PRECISION_1 < 0) begin : g_check_fraction
    $error("fixed_softmax: results below 1 need bits after the point, not %0d", DATA_OUT_0_PRECISION_1);
  end

  // With a mask, elements have a bit more: what is left out is below all others, and its two highest bits differ.
  localparam int Width = DATA_IN_0_PRECISION_0 + (HAS_MASK ? 1 : 0);
  logic [Lanes*Width-1:0] marked;
  if (HAS_MASK) begin : g_mask
    localparam int AddressWidth = (MASK_BEATS > 1) ? $clog2(MASK_BEATS) : 1;
    logic [AddressWidth-1:0] beat, beat_next;
    logic [Lanes-1:0] mask;
    always_comb begin
      beat_next = beat;
      if (rst) beat_next = '0;
      else if (data_in_0_valid && data_in_0_ready) begin
        beat_next = (beat == AddressWidth'(MASK_BEATS - 1)) ? '0 : beat + 1'b1;
      end
    end
    always_ff @(posedge clk) beat <= beat_next;
    rom #(
        .DATA_WIDTH(Lanes),
        .DEPTH(MASK_BEATS),
        .FILE(MASK_FILE)
    ) masks (
        .clk,
        .enable(1'b1),
        .address(beat_next),
        .data(mask)
    );
    for (genvar lane = 0; lane < Lanes; lane++) begin : g_lane
      logic [DATA_IN_0_PRECISION_0-1:0] element;
      assign element = data_in_0[lane*DATA_IN_0_PRECISION_0+:DATA_IN_0_PRECISION_0];
      assign marked[lane*Width+:Width] =
          mask[lane] ? {1'b1, {DATA_IN_0_PRECISION_0{1'b0}}} : {element[DATA_IN_0_PRECISION_0-1], element};
    end
  end else begin : g_plain
    assign marked = data_in_0;
  end

  // x beside its row's maximum, and how far it is below that.
  logic [Lanes*Width-1:0] row;
  logic [InWidth-1:0] below;
  logic signed [Width-1:0] maximum;
  logic [Lanes-1:0] left_out;  // beside the powers
  logic row_valid, row_ready;

  row_statistic #(
      .DATA_IN_0_PRECISION_0(Width),
      .DATA_IN_0_PARALLELISM_DIM_0(Lanes),
      .BEATS(Beats),
      .MAXIMUM(1'b1),
      .REDUCED_PRECISION(Width)
  ) largest (
      .clk,
      .rst,
      .data_in_0(marked),
      .reduced(marked),
      .data_in_0_valid,
      .data_in_0_ready,
      .data_out_0(row),
      .statistic(maximum),
      .data_out_0_valid(row_valid),
      .data_out_0_ready(row_ready)
  );

  for (genvar lane = 0; lane < Lanes; lane++) begin : g_below
    assign below[lane*DATA_IN_0_PRECISION_0+:DATA_IN_0_PRECISION_0] =
        maximum[DATA_IN_0_PRECISION_0-1:0] - row[lane*Width+:DATA_IN_0_PRECISION_0];
    if (HAS_MASK) begin : g_left_out
      logic left_out_1;
      always_ff @(posedge clk) begin
        if (row_ready) left_out_1 <= row[lane*Width+Width-1] != row[lane*Width+Width-2];
        if (row_ready) left_out[lane] <= left_out_1;
      end
    end else begin : g_none_left_out
      assign left_out[lane] = 1'b0;
    end
  end
  if (HAS_MASK) begin : g_top
    logic unused_top;
    assign unused_top = &{1'b0, maximum[Width-1]};
  end

  logic [Lanes*ExpWidth-1:0] looked_up, power, term;
  logic [Lanes*TermWidth-1:0] summand;
  logic power_valid, power_ready, term_valid, moves;
  logic [SumWidth-1:0] sum, denominator;

  fixed_table #(
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_PARALLELISM_DIM_0(Lanes),
      .DATA_OUT_0_PRECISION_0(ExpWidth),
      .FILE(FILE)
  ) exponential (
      .clk,
      .rst,
      .data_in_0(below),
      .data_in_0_valid(row_valid),
      .data_in_0_ready(row_ready),
      .data_out_0(looked_up),
      .data_out_0_valid(power_valid),
      .data_out_0_ready(power_ready)
  );

  for (genvar lane = 0; lane < Lanes; lane++) begin : g_summand
    assign power[lane*ExpWidth+:ExpWidth] = left_out[lane] ? '0 : looked_up[lane*ExpWidth+:ExpWidth];
    assign summand[lane*TermWidth+:TermWidth] = {1'b0, power[lane*ExpWidth+:ExpWidth]};
  end

  row_statistic #(
      .DATA_IN_0_PRECISION_0(ExpWidth),
      .DATA_IN_0_PARALLELISM_DIM_0(Lanes),
      .BEATS(Beats),
      .MAXIMUM(1'b0),
      .REDUCED_PRECISION(TermWidth)
  ) total (
      .clk,
      .rst,
      .data_in_0(power),
      .reduced(summand),
      .data_in_0_valid(power_valid),
      .data_in_0_ready(power_ready),
      .data_out_0(term),
      .statistic(sum),
      .data_out_0_valid(term_valid),
      .data_out_0_ready(moves)
  );

  // A row that is left out whole has no powers; 0 / 1 is 0.
  assign denominator = (HAS_MASK && sum == '0) ? SumWidth'(1) : sum;

  // The quotients: all stages of the dividers move together.
  logic [Stages-1:0] valid_at;
  assign moves = !data_out_0_valid || data_out_0_ready;
  assign data_out_0_valid = valid_at[Stages-1];

  always_ff @(posedge clk) begin
    if (rst) valid_at <= '0;
    else if (moves) valid_at <= {valid_at[Stages-2:0], term_valid};
  end

  for (genvar lane = 0; lane < Lanes; lane++) begin : g_lane
    fixed_divide #(
        .NUMERATOR_WIDTH(ExpWidth),
        .DENOMINATOR_WIDTH(SumWidth),
        .FRACTION(DATA_OUT_0_PRECISION_1),
        .QUOTIENT_WIDTH(QuotientWidth),
        .RESULT_WIDTH(DATA_OUT_0_PRECISION_0)
    ) divide (
        .clk,
        .moves,
        .numerator(term[lane*ExpWidth+:ExpWidth]),
        .denominator(denominator),
        .negative(1'b0),
        .result(data_out_0[lane*DATA_OUT_0_PRECISION_0+:DATA_OUT_0_PRECISION_0])
    );
  end
endmodule
