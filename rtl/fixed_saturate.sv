/// The nearest number of fewer bits: the ends of the range for what is beyond them; RELU makes 0 the lowest.
/// Combinational. Also lengthens.
module fixed_saturate #(
    parameter int DATA_IN_0_PRECISION_0  = 16,
    parameter int DATA_OUT_0_PRECISION_0 = 8,
    parameter bit RELU                   = 1'b0
) (
    input  logic signed [ DATA_IN_0_PRECISION_0-1:0] data_in_0,
    output logic signed [DATA_OUT_0_PRECISION_0-1:0] data_out_0
);
  localparam bit Longer = DATA_IN_0_PRECISION_0 > DATA_OUT_0_PRECISION_0;
  localparam int Width = Longer ? DATA_IN_0_PRECISION_0 : DATA_OUT_0_PRECISION_0 + 1;
  localparam int Top = Width - DATA_OUT_0_PRECISION_0 + 1;

  // It fits if all bits above the output's sign bit are copies of it.
  logic [Width-1:0] number;
  logic negative, fits;
  assign number   = Width'(data_in_0);
  assign negative = number[Width-1];
  assign fits     = number[Width-1-:Top] == {Top{negative}};

  always_comb begin
    if (negative && RELU) data_out_0 = '0;
    else if (fits) data_out_0 = number[DATA_OUT_0_PRECISION_0-1:0];
    else data_out_0 = {negative, {(DATA_OUT_0_PRECISION_0 - 1) {!negative}}};
  end
endmodule
