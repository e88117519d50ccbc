/// Shift a signed fixed-point number to another fraction and round: half to even, as torch.round does, or down with
/// FLOOR. Combinational. ROUNDED_WIDTH has to hold every result: one bit more than the shifted number, two at least.
/// Fractions may be negative or larger than their width. Does not saturate: fixed_saturate does.
module fixed_round #(
    parameter int DATA_IN_0_PRECISION_0 = 20,
    parameter int DATA_IN_0_PRECISION_1 = 10,
    parameter int DATA_OUT_0_PRECISION_1 = 4,
    parameter bit FLOOR = 1'b0,
    parameter int ROUNDED_WIDTH = 15
) (
    input  logic signed [DATA_IN_0_PRECISION_0-1:0] data_in_0,
    output logic signed [        ROUNDED_WIDTH-1:0] rounded
);
  localparam int Shift = DATA_IN_0_PRECISION_1 - DATA_OUT_0_PRECISION_1;
  localparam int Right = (Shift > 0) ? Shift : 0;
  localparam int Left = (Shift < 0) ? -Shift : 0;
  localparam int Kept = (DATA_IN_0_PRECISION_0 > Right) ? DATA_IN_0_PRECISION_0 - Right : 1;

  if (ROUNDED_WIDTH < Kept + Left + 1) begin : g_check
    $error("fixed_round: ROUNDED_WIDTH is %0d; a carry needs %0d", ROUNDED_WIDTH, Kept + Left + 1);
  end

  if (Right == 0) begin : g_left
    assign rounded = ROUNDED_WIDTH'(data_in_0) <<< Left;
  end else begin : g_right
    localparam int Full = Kept + Right;
    logic signed [Full-1:0] extended;
    logic signed [Kept-1:0] quotient;
    logic up;
    assign extended = Full'(data_in_0);
    assign quotient = extended[Full-1:Right];
    if (FLOOR) begin : g_floor
      logic unused_remainder;
      assign unused_remainder = &{1'b0, extended[Right-1:0]};
      assign up = 1'b0;
    end else if (Right == 1) begin : g_half
      assign up = extended[0] && quotient[0];
    end else begin : g_even
      assign up = extended[Right-1] && (quotient[0] || extended[Right-2:0] != '0);
    end
    assign rounded = ROUNDED_WIDTH'(quotient) + ROUNDED_WIDTH'($signed({1'b0, up}));
  end
endmodule
