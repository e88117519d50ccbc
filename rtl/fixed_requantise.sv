/// Requantise one signed fixed-point number: shift to the other fraction, round, saturate. Combinational.
/// Rounds half to even, as torch.round does, or down with FLOOR; RELU makes 0 the lowest output.
/// Fractions may be negative or larger than their width. Is the same as arithmetic.requantise in Python.
module fixed_requantise #(
    parameter int DATA_IN_0_PRECISION_0  = 20,
    parameter int DATA_IN_0_PRECISION_1  = 10,
    parameter int DATA_OUT_0_PRECISION_0 = 8,
    parameter int DATA_OUT_0_PRECISION_1 = 4,
    parameter bit FLOOR                  = 1'b0,
    parameter bit RELU                   = 1'b0
) (
    input  logic signed [ DATA_IN_0_PRECISION_0-1:0] data_in_0,
    output logic signed [DATA_OUT_0_PRECISION_0-1:0] data_out_0
);
  localparam int Shift = DATA_IN_0_PRECISION_1 - DATA_OUT_0_PRECISION_1;
  localparam int Right = (Shift > 0) ? Shift : 0;
  localparam int Left = (Shift < 0) ? -Shift : 0;
  // What is left after the shift, one bit more for the carry of rounding; never narrower than the output.
  localparam int Kept = (DATA_IN_0_PRECISION_0 > Right) ? DATA_IN_0_PRECISION_0 - Right : 1;
  localparam int Needed = Kept + Left + 1;
  localparam int Width = (Needed > DATA_OUT_0_PRECISION_0) ? Needed : DATA_OUT_0_PRECISION_0 + 1;
  localparam int Top = Width - DATA_OUT_0_PRECISION_0 + 1;

  logic signed [Width-1:0] rounded;

  if (Right == 0) begin : g_left
    assign rounded = Width'(data_in_0) <<< Left;
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
    assign rounded = Width'(quotient) + Width'($signed({1'b0, up}));
  end

  // It fits if all bits above the output's sign bit are copies of it.
  logic negative, fits;
  assign negative = rounded[Width-1];
  assign fits = rounded[Width-1-:Top] == {Top{negative}};

  always_comb begin
    if (negative && RELU) data_out_0 = '0;
    else if (fits) data_out_0 = rounded[DATA_OUT_0_PRECISION_0-1:0];
    else data_out_0 = {negative, {(DATA_OUT_0_PRECISION_0 - 1) {!negative}}};
  end
endmodule
