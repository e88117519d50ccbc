/// Divide numbers without sign, rounded half to even: result = numerator * 2**FRACTION / denominator, saturated to
/// RESULT_WIDTH bits with a sign, and the negative of that with `negative`. Restoring division, a stage for each bit of the
/// quotient.
/// QUOTIENT_WIDTH + 2 cycles of latency, one division per cycle. All stages move together while `moves` is high.
/// Does not divide by 0, and takes no quotient of more than QUOTIENT_WIDTH bits.
module fixed_divide #(
    parameter int NUMERATOR_WIDTH   = 8,
    parameter int DENOMINATOR_WIDTH = 10,
    parameter int FRACTION          = 8,
    parameter int QUOTIENT_WIDTH    = 9,
    parameter int RESULT_WIDTH      = 8
) (
    input  logic                         clk,
    input  logic                         moves,
    input  logic [  NUMERATOR_WIDTH-1:0] numerator,
    input  logic [DENOMINATOR_WIDTH-1:0] denominator,
    input  logic                         negative,
    output logic [     RESULT_WIDTH-1:0] result
);
  localparam int Width = DENOMINATOR_WIDTH + QUOTIENT_WIDTH;

  // Before stage s: what remains, its divisor, the bits that are still to come, and the quotient so far.
  for (genvar s = 0; s <= QUOTIENT_WIDTH; s++) begin : g_stage
    logic [DENOMINATOR_WIDTH-1:0] rest, divisor;
    logic [QUOTIENT_WIDTH-1:0] bits;  // the high ones are still of the dividend, the low ones already of the quotient

    if (s == 0) begin : g_start
      assign divisor = denominator;
      assign {rest, bits} = Width'(numerator) << FRACTION;
    end else begin : g_bit
      logic [DENOMINATOR_WIDTH:0] shifted, difference;
      assign shifted = {g_stage[s-1].rest, g_stage[s-1].bits[QUOTIENT_WIDTH-1]};
      assign difference = shifted - {1'b0, g_stage[s-1].divisor};
      always_ff @(posedge clk) begin
        if (moves) begin
          divisor <= g_stage[s-1].divisor;
          // Below zero the subtraction is taken back.
          rest    <= difference[DENOMINATOR_WIDTH] ? shifted[DENOMINATOR_WIDTH-1:0] : difference[DENOMINATOR_WIDTH-1:0];
          bits    <= QUOTIENT_WIDTH'({g_stage[s-1].bits, !difference[DENOMINATOR_WIDTH]});
        end
      end
    end
  end

  logic [QUOTIENT_WIDTH-1:0] quotient;
  logic [DENOMINATOR_WIDTH-1:0] rest, divisor;
  logic [QUOTIENT_WIDTH:0] negative_at;
  logic up;
  logic [QUOTIENT_WIDTH-1:0] quotient_1;
  logic signed [DENOMINATOR_WIDTH+1:0] less;
  logic signed [QUOTIENT_WIDTH+1:0] rounded;
  logic signed [RESULT_WIDTH-1:0] saturated;
  assign quotient = g_stage[QUOTIENT_WIDTH].bits;
  assign rest = g_stage[QUOTIENT_WIDTH].rest;
  assign divisor = g_stage[QUOTIENT_WIDTH].divisor;
  // Up if twice the rest is more than the divisor, or as much where the quotient is odd: the sign of one difference.
  assign less = $signed({2'b0, divisor}) - $signed({1'b0, rest, quotient[0]});
  // -(q + 1) is ~q, and -q is ~q + 1.
  assign rounded = $signed({2'b0, quotient_1} ^ {(QUOTIENT_WIDTH + 2) {negative_at[QUOTIENT_WIDTH]}})
      + $signed((QUOTIENT_WIDTH + 2)'({1'b0, up ^ negative_at[QUOTIENT_WIDTH]}));

  fixed_saturate #(
      .DATA_IN_0_PRECISION_0(QUOTIENT_WIDTH + 2),
      .DATA_OUT_0_PRECISION_0(RESULT_WIDTH)
  ) saturate (
      .data_in_0 (rounded),
      .data_out_0(saturated)
  );

  always_ff @(posedge clk) begin
    if (moves) begin
      negative_at <= (QUOTIENT_WIDTH + 1)'({negative_at, negative});
      quotient_1 <= quotient;
      up         <= less[DENOMINATOR_WIDTH+1];
      result     <= saturated;
    end
  end
endmodule
