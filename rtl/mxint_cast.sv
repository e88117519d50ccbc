/// Round a stream of fixed-point numbers to mxint: each block of BLOCK_SIZE numbers shares a power of two, and has integers of
/// MANTISSA_WIDTH bits. With 2**k the power at or below a block's largest magnitude, numbers become multiples of
/// 2**(k - MANTISSA_WIDTH + 2), half to even, and saturate at 2**(MANTISSA_WIDTH - 1) - 1 of them on both sides; a step below
/// that of the stream changes nothing. Numbers keep their fraction and have one bit more, since one may be rounded up to it.
/// BLOCK_SIZE / PAR + 7 cycles of latency for a block's first beat, one beat per cycle, the next block arrives meanwhile.
/// Stores two blocks. Is arithmetic.round_blocks in Python. Does not cut the ready path at its output, and does not take blocks
/// that PAR does not divide, nor mantissas of more bits than the numbers, which would change nothing.
module mxint_cast #(
    parameter int DATA_IN_0_PRECISION_0       = 16,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 2,
    parameter int BLOCK_SIZE                  = 8,
    parameter int MANTISSA_WIDTH              = 8,
    localparam int InWidth                    = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int OutPrecision               = DATA_IN_0_PRECISION_0 + 1,
    localparam int OutWidth                   = DATA_IN_0_PARALLELISM_DIM_0 * OutPrecision
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
  localparam int Width = DATA_IN_0_PRECISION_0;
  // The largest magnitude has Width bits at most: a step is 2**Most of the stream's at most.
  localparam int Most = Width + 1 - MANTISSA_WIDTH;
  localparam int ShiftWidth = $clog2(Most + 1);

  if (BLOCK_SIZE % Lanes != 0) begin : g_check
    $error("mxint_cast: blocks of %0d are no multiple of %0d a beat", BLOCK_SIZE, Lanes);
  end
  if (MANTISSA_WIDTH < 2 || MANTISSA_WIDTH > Width) begin : g_check_width
    $error("mxint_cast: mantissas have 2 to %0d bits, not %0d", Width, MANTISSA_WIDTH);
  end

  logic [InWidth-1:0] beat, beat_0, beat_1;
  logic [Width:0] largest_doubled;
  logic [Width-1:0] largest;
  logic beat_valid, beat_ready, advance;
  logic [3:0] valid_at;

  block_maximum #(
      .DATA_IN_0_PRECISION_0(Width),
      .DATA_IN_0_PARALLELISM_DIM_0(Lanes),
      .BLOCK_SIZE(BLOCK_SIZE)
  ) largest_of_block (
      .clk,
      .rst,
      .data_in_0,
      .data_in_0_valid,
      .data_in_0_ready,
      .data_out_0(beat),
      .largest_doubled,
      .data_out_0_valid(beat_valid),
      .data_out_0_ready(beat_ready)
  );

  // Five registers that move together: the largest magnitude, the zeros above it, numbers without them, their
  // rounding, and what is in range of that, shifted back.
  assign advance = !data_out_0_valid || data_out_0_ready;
  assign beat_ready = advance;
  always_ff @(posedge clk) begin
    if (rst) {data_out_0_valid, valid_at} <= '0;
    else if (advance) {data_out_0_valid, valid_at} <= {valid_at, beat_valid};
  end

  logic [ShiftWidth-1:0] zeros, zeros_1, zeros_2, back;
  always_comb begin
    zeros = ShiftWidth'(Most);
    for (int at = Width - Most; at < Width; at++) if (largest[at]) zeros = ShiftWidth'(Width - 1 - at);
  end
  always_ff @(posedge clk) begin
    if (advance) begin
      largest <= Width'((largest_doubled + 1'b1) >> 1);
      beat_0  <= beat;
      beat_1  <= beat_0;
      zeros_1 <= zeros;
      zeros_2 <= zeros_1;
      back    <= ShiftWidth'(Most) - zeros_2;
    end
  end

  for (genvar lane = 0; lane < Lanes; lane++) begin : g_lane
    // Shifted left, the block's leading one is in one place, and the step is 2**Most.
    logic signed [Width:0] aligned, aligned_2;
    logic signed [MANTISSA_WIDTH:0] rounded, rounded_3, highest, mantissa;
    logic high, low;
    logic signed [OutPrecision-1:0] number;
    assign aligned = (Width + 1)'($signed(beat_1[lane*Width+:Width])) <<< zeros_1;
    always_ff @(posedge clk) if (advance) aligned_2 <= aligned;
    fixed_round #(
        .DATA_IN_0_PRECISION_0(Width + 1),
        .DATA_IN_0_PRECISION_1(Most),
        .DATA_OUT_0_PRECISION_1(0),
        .ROUNDED_WIDTH(MANTISSA_WIDTH + 1)
    ) rounds (
        .data_in_0(aligned_2),
        .rounded
    );
    assign highest = (MANTISSA_WIDTH + 1)'((1 << (MANTISSA_WIDTH - 1)) - 1);
    always_ff @(posedge clk) if (advance) rounded_3 <= rounded;
    // Beyond the range the two highest bits differ; below it, too, is the negative power of two at its end.
    assign high = !rounded_3[MANTISSA_WIDTH] && rounded_3[MANTISSA_WIDTH-1];
    assign low = rounded_3[MANTISSA_WIDTH] && (!rounded_3[MANTISSA_WIDTH-1] || rounded_3[MANTISSA_WIDTH-2:0] == '0);
    assign mantissa = high ? highest : low ? -highest : rounded_3;
    assign number = OutPrecision'(mantissa) <<< back;
    always_ff @(posedge clk) if (advance) data_out_0[lane*OutPrecision+:OutPrecision] <= number;
  end

  // The lowest bits do not matter for the exponent.
  logic unused_bits;
  assign unused_bits = &{1'b0, largest};
endmodule
