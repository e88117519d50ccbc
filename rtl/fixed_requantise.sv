/// Requantise one signed fixed-point number: shift to the other fraction, round, saturate. Combinational.
/// Rounds half to even, as torch.round does, or down with FLOOR; RELU makes 0 the lowest output.
/// Is arithmetic.requantise in Python.
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
  localparam int Out = DATA_OUT_0_PRECISION_0;
  localparam int Shift = DATA_IN_0_PRECISION_1 - DATA_OUT_0_PRECISION_1;
  localparam int Shifted = DATA_IN_0_PRECISION_0 - Shift;
  localparam int Rounded = ((Shifted > 1) ? Shifted : 1) + 1;
  localparam int Width = (Rounded > Out) ? Rounded : Out + 1;

  logic signed [Width-1:0] rounded, down;

  fixed_round #(
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_PRECISION_1(DATA_IN_0_PRECISION_1),
      .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
      .FLOOR(FLOOR),
      .ROUNDED_WIDTH(Width)
  ) rounds (
      .data_in_0,
      .rounded
  );
  fixed_round #(
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_PRECISION_1(DATA_IN_0_PRECISION_1),
      .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
      .FLOOR(1'b1),
      .ROUNDED_WIDTH(Width)
  ) rounds_down (
      .data_in_0,
      .rounded(down)
  );

  // The number rounded down tells what saturates, beside the rounding instead of behind it: a number in the range and
  // below its highest stays in the range if it is rounded up.
  logic negative, fits, highest, unused_carry;
  assign negative = down[Width-1];
  assign fits = down[Width-1:Out-1] == {(Width - Out + 1) {negative}};
  assign highest = !negative && down[Out-2:0] == '1;
  assign unused_carry = &{1'b0, rounded[Width-1:Out]};

  always_comb begin
    if (negative && RELU) data_out_0 = '0;
    else if (fits && !highest) data_out_0 = rounded[Out-1:0];
    else data_out_0 = {negative, {(Out - 1) {!negative}}};
  end
endmodule
