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
  localparam int Shift = DATA_IN_0_PRECISION_1 - DATA_OUT_0_PRECISION_1;
  localparam int Shifted = DATA_IN_0_PRECISION_0 - Shift;
  localparam int Width = ((Shifted > 1) ? Shifted : 1) + 1;

  logic signed [Width-1:0] rounded;

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
  fixed_saturate #(
      .DATA_IN_0_PRECISION_0(Width),
      .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
      .RELU(RELU)
  ) saturate (
      .data_in_0(rounded),
      .data_out_0
  );
endmodule
