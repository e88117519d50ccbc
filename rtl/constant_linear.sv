/// activation(x W^T + b) of a stream of vectors without multipliers, a whole vector in a beat; the activation is ReLU or none.
/// A network of additions, made for its weights, stands beside it. `network_digits` goes there, DIGIT_WIDTH bits of every element at
/// a time, the lowest first; their `network_sums` come back SUM_LATENCY cycles later, of those in which `network_moves` is high.
/// A vector takes ceil(bits / DIGIT_WIDTH) cycles, its digits; SUM_LATENCY + 2 cycles of latency, and with several digits as many
/// more. Elements are taken as numbers from 0 on: signed ones have their upper bit the other way.
/// `network_starts` has the bias, what the upper bits took away, and half of what the rounding drops.
/// Is arithmetic.linear in Python. Does not cut the path of ready: one gate is in it, two with several digits.
module constant_linear #(
    parameter int DATA_IN_0_PRECISION_0        = 8,
    parameter bit DATA_IN_0_SIGNED             = 1'b1,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0  = 4,
    parameter int DIGIT_WIDTH                  = 4,
    parameter int SUM_LATENCY                  = 2,
    parameter int SUM_WIDTH                    = 14,
    parameter int TOTAL_WIDTH                  = 20,
    parameter int TOTAL_FRACTION               = 10,
    parameter int DATA_OUT_0_PRECISION_0       = 8,
    parameter int DATA_OUT_0_PRECISION_1       = 4,
    parameter int DATA_OUT_0_TENSOR_SIZE_DIM_0 = 2,
    parameter bit RELU                         = 1'b0,
    localparam int Ins                         = DATA_IN_0_TENSOR_SIZE_DIM_0,
    localparam int Outs                        = DATA_OUT_0_TENSOR_SIZE_DIM_0,
    localparam int OutWidth                    = Outs * DATA_OUT_0_PRECISION_0
) (
    input  logic                                 clk,
    input  logic                                 rst,
    input  logic [Ins*DATA_IN_0_PRECISION_0-1:0] data_in_0,
    input  logic                                 data_in_0_valid,
    output logic                                 data_in_0_ready,
    output logic [                 OutWidth-1:0] data_out_0,
    output logic                                 data_out_0_valid,
    input  logic                                 data_out_0_ready,
    output logic                                 network_moves,
    output logic [          Ins*DIGIT_WIDTH-1:0] network_digits,
    input  logic [           Outs*SUM_WIDTH-1:0] network_sums,
    input  logic [         Outs*TOTAL_WIDTH-1:0] network_starts
);
  localparam int Bits = DATA_IN_0_PRECISION_0 - (DATA_IN_0_SIGNED ? 0 : 1);
  localparam int Digits = (Bits + DIGIT_WIDTH - 1) / DIGIT_WIDTH;

  // All stages move together, while the last one is empty or its beat leaves.
  logic moves, valid, last;
  logic [SUM_LATENCY-1:0] valid_at, last_at;
  assign moves = !data_out_0_valid || data_out_0_ready;
  assign network_moves = moves;

  logic total_valid;
  always_ff @(posedge clk) begin
    if (rst) {data_out_0_valid, total_valid, valid_at} <= '0;
    else if (moves) begin
      valid_at <= SUM_LATENCY'({valid_at, valid});
      total_valid <= valid_at[SUM_LATENCY-1] && last_at[SUM_LATENCY-1];
      data_out_0_valid <= total_valid;
    end
  end
  always_ff @(posedge clk) if (moves) last_at <= SUM_LATENCY'({last_at, last});

  // The digits of a vector.
  logic [Ins*Digits*DIGIT_WIDTH-1:0] numbers;
  for (genvar at = 0; at < Ins; at++) begin : g_number
    logic [DATA_IN_0_PRECISION_0-1:0] number;
    assign number = data_in_0[at*DATA_IN_0_PRECISION_0+:DATA_IN_0_PRECISION_0];
    if (DATA_IN_0_SIGNED) begin : g_signed
      assign numbers[at*Digits*DIGIT_WIDTH+:Digits*DIGIT_WIDTH] =
          (Digits * DIGIT_WIDTH)'({!number[Bits-1], number[Bits-2:0]});
    end else begin : g_unsigned
      logic unused_sign;
      assign unused_sign = &{1'b0, number[Bits]};
      assign numbers[at*Digits*DIGIT_WIDTH+:Digits*DIGIT_WIDTH] = (Digits * DIGIT_WIDTH)'(number[Bits-1:0]);
    end
  end

  if (Digits == 1) begin : g_whole
    assign data_in_0_ready = moves;
    assign valid = data_in_0_valid;
    assign last = 1'b1;
    assign network_digits = numbers;
  end else begin : g_digits
    // A vector is kept here for its digits, so that what is before it goes on.
    localparam int IndexWidth = $clog2(Digits);
    logic [Ins*Digits*DIGIT_WIDTH-1:0] kept;
    logic [IndexWidth-1:0] index;
    assign data_in_0_ready = !valid || (moves && last);
    always_ff @(posedge clk) begin
      if (rst) begin
        valid <= 1'b0;
        index <= '0;
      end else begin
        if (data_in_0_ready) valid <= data_in_0_valid;
        if (valid && moves) index <= last ? '0 : index + 1'b1;
      end
    end
    always_ff @(posedge clk) if (data_in_0_ready) kept <= numbers;
    assign last = index == IndexWidth'(Digits - 1);

    for (genvar at = 0; at < Ins; at++) begin : g_digit
      logic [Digits*DIGIT_WIDTH-1:0] number;
      assign number = kept[at*Digits*DIGIT_WIDTH+:Digits*DIGIT_WIDTH];
      assign network_digits[at*DIGIT_WIDTH+:DIGIT_WIDTH] = number[index*DIGIT_WIDTH+:DIGIT_WIDTH];
    end
  end

  // The sums of digits, the later ones with more weight, then rounding: half was added, so the lowest bit of a tie goes.
  localparam int Shift = TOTAL_FRACTION - DATA_OUT_0_PRECISION_1;
  localparam int Right = (Shift > 0) ? Shift : 0;
  localparam int Left = (Shift < 0) ? -Shift : 0;
  localparam int RoundedWidth = ((TOTAL_WIDTH > Right + 2) ? TOTAL_WIDTH - Right : 2) + Left;

  for (genvar lane = 0; lane < Outs; lane++) begin : g_lane
    logic signed [SUM_WIDTH-1:0] sum;
    logic signed [TOTAL_WIDTH-1:0] start, added, total;
    assign sum   = network_sums[lane*SUM_WIDTH+:SUM_WIDTH];
    assign start = network_starts[lane*TOTAL_WIDTH+:TOTAL_WIDTH];

    if (Digits == 1) begin : g_sum
      assign added = start + TOTAL_WIDTH'(sum);
      always_ff @(posedge clk) if (moves) total <= added;
    end else begin : g_sums
      localparam int LowWidth = (Digits - 1) * DIGIT_WIDTH;
      logic signed [TOTAL_WIDTH-1:0] upper;
      logic [LowWidth-1:0] low;
      logic adds, ends, primed;
      assign adds  = moves && valid_at[SUM_LATENCY-1];
      assign ends  = adds && last_at[SUM_LATENCY-1];
      assign added = upper + TOTAL_WIDTH'(sum);
      // A sum gets its start in the first cycle after a reset; its first digit comes later.
      always_ff @(posedge clk) begin
        if (rst) primed <= 1'b0;
        else primed <= 1'b1;
      end
      always_ff @(posedge clk) begin
        if (!primed || ends) upper <= start;
        else if (adds) upper <= added >>> DIGIT_WIDTH;
        if (adds) low <= LowWidth'({added[DIGIT_WIDTH-1:0], low} >> DIGIT_WIDTH);
        if (moves) total <= TOTAL_WIDTH'({added, low});
      end
    end

    logic signed [RoundedWidth-1:0] rounded;
    logic signed [DATA_OUT_0_PRECISION_0-1:0] saturated;
    if (Right > 0) begin : g_right
      logic signed [RoundedWidth+Right-1:0] extended;
      assign extended = (RoundedWidth + Right)'(total);
      assign rounded = {extended[RoundedWidth+Right-1:Right+1], extended[Right] && extended[Right-1:0] != '0};
    end else begin : g_left
      assign rounded = RoundedWidth'(total) <<< Left;
    end
    fixed_saturate #(
        .DATA_IN_0_PRECISION_0(RoundedWidth),
        .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
        .RELU(RELU)
    ) saturate (
        .data_in_0 (rounded),
        .data_out_0(saturated)
    );
    always_ff @(posedge clk) begin
      if (moves) data_out_0[lane*DATA_OUT_0_PRECISION_0+:DATA_OUT_0_PRECISION_0] <= saturated;
    end
  end
endmodule
