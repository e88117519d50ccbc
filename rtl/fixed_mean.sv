/// Divide sums by the number DIVISOR and round once, half to even, then saturate: exactly, by one multiplication with a
/// reciprocal. With a power of two it is a shift.
/// Four cycles of latency, one beat of DATA_IN_0_PARALLELISM_DIM_0 sums per cycle. Does not cut the ready path.
/// With SERIAL it has no multipliers: a beat takes a cycle for each bit of the numerator, and one; two more of latency.
/// Up to WAITING beats wait for their turn meanwhile, in a fifo with a latency of its own.
/// Does not take more than 40 bits of sum, the shift to the output's fraction included. Is arithmetic.mean in Python.
module fixed_mean #(
    parameter int DATA_IN_0_PRECISION_0       = 12,
    parameter int DATA_IN_0_PRECISION_1       = 4,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 1,
    parameter int DATA_OUT_0_PRECISION_0      = 8,
    parameter int DATA_OUT_0_PRECISION_1      = 4,
    parameter int DIVISOR                     = 9,
    parameter bit SERIAL                      = 1'b0,
    parameter int WAITING                     = 1
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
  // n / Divisor + 1/2 = (2 n + Divisor) / Double, rounded down. What is halfway is a multiple of Double: one less if odd.
  localparam logic [63:0] Double = 64'd2 * Divisor;
  localparam logic [63:0] Added = Offset * Double + Divisor;
  localparam int Unsigned = $clog2((64'd1 << Width) + Added);
  // For all N of so many bits, N * Reciprocal >> Scale is floor(N / Double), and where that is exact, the bits below are
  // less than Reciprocal.
  localparam int Scale = Unsigned + $clog2(Double);
  localparam logic [Unsigned:0] Reciprocal = (Unsigned + 1)'(((64'd1 << Scale) + Double - 64'd1) / Double);
  localparam int Fewer = Width + 2 - $clog2(Divisor + 64'd1);
  localparam int RoundedWidth = (Fewer > 2) ? Fewer : 2;
  localparam bit IsPower = (Divisor & (Divisor - 64'd1)) == '0;

  if (Scale > 63) begin : g_check
    $error("fixed_mean: sums of %0d bits, shifted by %0d, are too long to be divided by %0d", DATA_IN_0_PRECISION_0,
           Shift, DIVISOR);
  end

  localparam int Lanes = DATA_IN_0_PARALLELISM_DIM_0;
  localparam int Product = 2 * Unsigned + 3;

  logic [Lanes*(Unsigned+1)-1:0] numerators;
  logic [Lanes*Product-1:0] products;
  logic moves, multiplied, divided;
  assign moves = !data_out_0_valid || data_out_0_ready;

  for (genvar lane = 0; lane < Lanes; lane++) begin : g_numerator
    logic signed [DATA_IN_0_PRECISION_0-1:0] sum;
    assign sum = data_in_0[lane*DATA_IN_0_PRECISION_0+:DATA_IN_0_PRECISION_0];
    assign numerators[lane*(Unsigned+1)+:Unsigned+1] = {1'b0, (Unsigned'(sum) << (Left + 1)) + Unsigned'(Added)};
  end

  if (SERIAL && !IsPower) begin : g_serial
    logic [Lanes*(Unsigned+1)-1:0] waiting;
    logic waiting_valid, waiting_ready, unused_beside;

    fifo #(
        .DATA_WIDTH(Lanes * (Unsigned + 1)),
        .DEPTH(WAITING)
    ) sums (
        .clk,
        .rst,
        .data_in_0(numerators),
        .data_in_0_valid,
        .data_in_0_ready,
        .data_out_0(waiting),
        .data_out_0_valid(waiting_valid),
        .data_out_0_ready(waiting_ready)
    );
    serial_multiply #(
        .DATA_IN_0_PRECISION_0(Unsigned + 2),
        .DATA_IN_1_PRECISION_0(Unsigned + 1),
        .LANES(Lanes)
    ) multiply (
        .clk,
        .rst,
        .data_in_0({Lanes{1'b0, Reciprocal}}),
        .data_in_1(waiting),
        .beside(1'b0),
        .data_in_0_valid(waiting_valid),
        .data_in_0_ready(waiting_ready),
        .data_out_0(products),
        .beside_out(unused_beside),
        .data_out_0_valid(multiplied),
        .data_out_0_ready(moves)
    );
  end else begin : g_at_once
    logic taken;
    assign data_in_0_ready = moves;
    always_ff @(posedge clk) begin
      if (rst) {multiplied, taken} <= '0;
      else if (moves) {multiplied, taken} <= {taken, data_in_0_valid};
    end
    for (genvar lane = 0; lane < Lanes; lane++) begin : g_lane
      if (IsPower) begin : g_shift
        logic [Unsigned:0] numerator;
        always_ff @(posedge clk) begin
          if (moves) begin
            numerator <= numerators[lane*(Unsigned+1)+:Unsigned+1];
            products[lane*Product+:Product] <= Product'(numerator) << Unsigned;
          end
        end
      end else begin : g_multiply
        fixed_product #(
            .DATA_IN_0_PRECISION_0(Unsigned + 1),
            .DATA_IN_1_PRECISION_0(Unsigned + 2)
        ) multiply (
            .clk,
            .moves,
            .data_in_0(numerators[lane*(Unsigned+1)+:Unsigned+1]),
            .data_in_1({1'b0, Reciprocal}),
            .product(products[lane*Product+:Product])
        );
      end
    end
  end

  always_ff @(posedge clk) begin
    if (rst) {data_out_0_valid, divided} <= '0;
    else if (moves) {data_out_0_valid, divided} <= {divided, multiplied};
  end

  for (genvar lane = 0; lane < Lanes; lane++) begin : g_lane
    logic [Product-1:0] product;
    logic signed [RoundedWidth-1:0] quotient, rounded;
    logic signed [DATA_OUT_0_PRECISION_0-1:0] saturated;
    logic less;

    assign product = products[lane*Product+:Product];

    fixed_saturate #(
        .DATA_IN_0_PRECISION_0(RoundedWidth),
        .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0)
    ) saturate (
        .data_in_0 (rounded),
        .data_out_0(saturated)
    );

    always_ff @(posedge clk) begin
      if (moves) begin
        quotient <= RoundedWidth'(product >> Scale) - RoundedWidth'(Offset);
        less <= product[Scale-1:0] < Scale'(Reciprocal) && (product[Scale] ^ Offset[0]);
        data_out_0[lane*DATA_OUT_0_PRECISION_0+:DATA_OUT_0_PRECISION_0] <= saturated;
      end
    end
    assign rounded = quotient - $signed(RoundedWidth'(less));
  end
endmodule
