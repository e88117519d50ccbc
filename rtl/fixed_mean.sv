/// Divide sums by the number DIVISOR and round once, half to even, then saturate: exactly, by a multiplication with the
/// reciprocal and a comparison of the remainder. With a power of two it is a shift.
/// Three cycles of latency, one beat of DATA_IN_0_PARALLELISM_DIM_0 sums per cycle. Does not cut the ready path.
/// Does not take more than 40 bits of sum, the shift to the output's fraction included. Is arithmetic.mean in Python.
module fixed_mean #(
    parameter int DATA_IN_0_PRECISION_0       = 12,
    parameter int DATA_IN_0_PRECISION_1       = 4,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 1,
    parameter int DATA_OUT_0_PRECISION_0      = 8,
    parameter int DATA_OUT_0_PRECISION_1      = 4,
    parameter int DIVISOR                     = 9
) (
    input  logic                                                          clk,
    input  logic                                                          rst,
    input  logic [ DATA_IN_0_PARALLELISM_DIM_0*DATA_IN_0_PRECISION_0-1:0] data_in_0,
    input  logic                                                          data_in_0_valid,
    output logic                                                          data_in_0_ready,
    output logic [DATA_IN_0_PARALLELISM_DIM_0*DATA_OUT_0_PRECISION_0-1:0] data_out_0,
    output logic                                                          data_out_0_valid,
    input  logic                                                          data_out_0_ready
);
  localparam int Shift = DATA_OUT_0_PRECISION_1 - DATA_IN_0_PRECISION_1;
  localparam int Left = (Shift > 0) ? Shift : 0;
  localparam int Right = (Shift < 0) ? -Shift : 0;
  localparam logic [63:0] Divisor = 64'(DIVISOR) << Right;
  // An offset that is a multiple of the divisor makes every numerator positive: Offset * Divisor >= 2**(Width - 1).
  localparam int Width = DATA_IN_0_PRECISION_0 + Left;
  localparam logic [63:0] Offset = ((64'd1 << (Width - 1)) + Divisor - 64'd1) / Divisor;
  localparam int Unsigned = $clog2((64'd1 << (Width - 1)) + Offset * Divisor);
  // floor(n / Divisor) = n * Reciprocal >> Scale for all n of so many bits.
  localparam int Scale = Unsigned + $clog2(Divisor + 64'd1);
  localparam logic [Unsigned+1:0] Reciprocal = (Unsigned + 2)'(((64'd1 << Scale) + Divisor - 64'd1) / Divisor);

  if (Scale > 62) begin : g_check
    $error("fixed_mean: sums of %0d bits, shifted by %0d, are too long to be divided by %0d", DATA_IN_0_PRECISION_0,
           Shift, DIVISOR);
  end

  logic valid_1, valid_2;
  assign data_in_0_ready = !data_out_0_valid || data_out_0_ready;

  always_ff @(posedge clk) begin
    if (rst) {data_out_0_valid, valid_2, valid_1} <= '0;
    else if (data_in_0_ready) {data_out_0_valid, valid_2, valid_1} <= {valid_2, valid_1, data_in_0_valid};
  end

  for (genvar lane = 0; lane < DATA_IN_0_PARALLELISM_DIM_0; lane++) begin : g_lane
    logic signed [DATA_IN_0_PRECISION_0-1:0] sum;
    logic [Unsigned-1:0] numerator, numerator_1, numerator_2, quotient, remainder;
    logic [Unsigned-1:0] quotient_2;
    logic [2*Unsigned+1:0] product;
    logic signed [Unsigned+1:0] rounded;
    logic signed [DATA_OUT_0_PRECISION_0-1:0] saturated;
    logic up;

    assign sum = data_in_0[lane*DATA_IN_0_PRECISION_0+:DATA_IN_0_PRECISION_0];
    assign numerator = (Unsigned'(sum) << Left) + Unsigned'(Offset * Divisor);
    assign product = (2 * Unsigned + 2)'(numerator_1) * (2 * Unsigned + 2)'(Reciprocal);
    assign quotient = Unsigned'(product >> Scale);
    assign remainder = numerator_2 - Unsigned'(quotient_2 * Unsigned'(Divisor));
    assign up = {remainder, 1'b0} > (Unsigned + 1)'(Divisor)
        || ({remainder, 1'b0} == (Unsigned + 1)'(Divisor) && (quotient_2[0] ^ Offset[0]));
    assign rounded = $signed({2'b0, quotient_2}) - $signed((Unsigned + 2)'(Offset)) + $signed((Unsigned + 2)'(up));

    fixed_saturate #(
        .DATA_IN_0_PRECISION_0(Unsigned + 2),
        .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0)
    ) saturate (
        .data_in_0 (rounded),
        .data_out_0(saturated)
    );

    always_ff @(posedge clk) begin
      if (data_in_0_ready) begin
        numerator_1 <= numerator;
        numerator_2 <= numerator_1;
        quotient_2  <= quotient;
        data_out_0[lane*DATA_OUT_0_PRECISION_0+:DATA_OUT_0_PRECISION_0] <= saturated;
      end
    end
  end
endmodule
