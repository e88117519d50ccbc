/// Round a stream of fixed-point numbers to floating point of MANTISSA_WIDTH bits, the leading one included. A number becomes
/// a multiple of a power of two, the step: the one that leaves it that many bits, but no less than 2**(TOP - SPAN), and none
/// below that of the stream; half to even. It saturates at 2**MANTISSA_WIDTH - 1 of the steps 2**TOP on both sides.
/// TOP is TOP_HIGHEST; with BLOCK_SIZE it is the step of the largest magnitude of a block, from TOP_LOWEST to TOP_HIGHEST.
/// Results are multiples of 2**DROPPED, and are given without these zeros.
/// 6 cycles of latency, one beat per cycle; with BLOCK_SIZE BLOCK_SIZE / PAR + 8 for a block's first beat, the next block
/// arrives meanwhile, and two blocks are stored. Is arithmetic.round_floats in Python. Does not cut the ready path at its
/// output, nor, without BLOCK_SIZE, at its input. Does not take blocks that PAR does not divide.
module minifloat_cast #(
    parameter int DATA_IN_0_PRECISION_0       = 16,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 2,
    parameter int BLOCK_SIZE                  = 0,
    parameter int MANTISSA_WIDTH              = 4,
    parameter int TOP_LOWEST                  = 12,
    parameter int TOP_HIGHEST                 = 12,
    parameter int SPAN                        = 10,
    parameter int DROPPED                     = 2,
    parameter int DATA_OUT_0_PRECISION_0      = 15,
    localparam int InWidth                    = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int OutWidth                   = DATA_IN_0_PARALLELISM_DIM_0 * DATA_OUT_0_PRECISION_0
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
  localparam int Out = DATA_OUT_0_PRECISION_0;
  localparam int Mantissa = MANTISSA_WIDTH;

  // The exponent of the step of numbers whose leading one is in a place; of the largest ones of their block; of the smallest.
  // A layer of a model may have one of these names: that is no fault.
  /* verilator lint_off VARHIDDEN */
  function automatic int own_step(input int at);
    own_step = (at >= Mantissa) ? at - Mantissa + 1 : 0;
  endfunction
  function automatic int top_step(input int at);
    top_step = (own_step(at) > TOP_LOWEST) ? own_step(at) : TOP_LOWEST;
    top_step = (top_step < TOP_HIGHEST) ? top_step : TOP_HIGHEST;
  endfunction
  function automatic int low_step(input int at);
    low_step = (top_step(at) > SPAN) ? top_step(at) - SPAN : 0;
  endfunction
  function automatic int highest_step;
    highest_step = (own_step(Width - 1) > low_step(Width - 1)) ? own_step(Width - 1) : low_step(Width - 1);
    highest_step = (highest_step < top_step(Width - 1)) ? highest_step : top_step(Width - 1);
    highest_step = (highest_step < Width) ? highest_step : Width;
  endfunction

  // A step of 2**Width leaves zeros, so larger ones need not be told apart.
  localparam int Most = highest_step();
  localparam int ShiftWidth = (Most > 0) ? $clog2(Most + 1) : 1;
  localparam int StepWidth = $clog2(((own_step(Width - 1) > top_step(Width - 1)) ? own_step(Width - 1) : top_step(Width - 1)) + 2);

  // Shifts to the left before the rounding, and after it.
  function automatic logic [ShiftWidth-1:0] to_place(input int step);
    to_place = ShiftWidth'((step < Most) ? Most - step : 0);
  endfunction
  function automatic logic [ShiftWidth-1:0] from_place(input int step);
    from_place = ShiftWidth'((step > Most) ? Most - DROPPED : (step > DROPPED) ? step - DROPPED : 0);
  endfunction

  // All of a step: its exponent, and both shifts.
  localparam int Shifts = 2 * ShiftWidth;
  localparam int All = StepWidth + Shifts;
  function automatic logic [All-1:0] of_step(input int step);
    of_step = {StepWidth'(step), to_place(step), from_place(step)};
  endfunction
  /* verilator lint_on VARHIDDEN */

  if (BLOCK_SIZE % Lanes != 0) begin : g_check
    $error("minifloat_cast: blocks of %0d are no multiple of %0d a beat", BLOCK_SIZE, Lanes);
  end

  logic [InWidth-1:0] beat, beat_0, beat_1, beat_2;
  logic beat_valid, beat_ready, advance;
  logic [4:0] valid_at;
  logic [All-1:0] top, low;
  logic [StepWidth-1:0] top_exponent, low_exponent;
  assign top_exponent = top[All-1-:StepWidth];
  assign low_exponent = low[All-1-:StepWidth];

  // Six registers that move together: magnitudes, their steps, the step of each number, numbers shifted to one place,
  // their rounding, and what is in range of that, shifted back.
  assign advance = !data_out_0_valid || data_out_0_ready;
  assign beat_ready = advance;
  always_ff @(posedge clk) begin
    if (rst) {data_out_0_valid, valid_at} <= '0;
    else if (advance) {data_out_0_valid, valid_at} <= {valid_at, beat_valid};
  end
  always_ff @(posedge clk) if (advance) {beat_2, beat_1, beat_0} <= {beat_1, beat_0, beat};

  if (BLOCK_SIZE > 0) begin : g_blocks
    logic [Width:0] largest_doubled;
    logic [Width-1:0] largest;
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
    logic [All-1:0] top_next, low_next;
    always_comb begin
      {top_next, low_next} = {of_step(top_step(0)), of_step(low_step(0))};
      for (int at = 1; at < Width; at++) if (largest[at]) {top_next, low_next} = {of_step(top_step(at)), of_step(low_step(at))};
    end
    always_ff @(posedge clk) begin
      if (advance) begin
        largest <= Width'((largest_doubled + 1'b1) >> 1);
        {top, low} <= {top_next, low_next};
      end
    end
    logic unused_bit;
    assign unused_bit = &{1'b0, largest[0]};
  end else begin : g_alone
    assign beat = data_in_0;
    assign beat_valid = data_in_0_valid;
    assign data_in_0_ready = beat_ready;
    assign {top, low} = {of_step(TOP_HIGHEST), of_step(low_step(0))};
  end

  for (genvar lane = 0; lane < Lanes; lane++) begin : g_lane
    localparam int Aligned = Mantissa + Most + 1;
    logic [Width-1:0] number, magnitude;
    logic [All-1:0] own, own_next;
    logic [StepWidth-1:0] exponent;
    logic [ShiftWidth-1:0] left, back;
    logic above, at_top;
    // The flags and the shift back of the numbers that are aligned, and of those that are rounded.
    logic above_3, at_top_3, negative_3, above_4, at_top_4, negative_4, saturates;
    logic [ShiftWidth-1:0] back_3, back_4;
    logic signed [Aligned-1:0] aligned;
    logic signed [Mantissa+1:0] rounded, rounded_4, highest, mantissa;

    assign exponent = own[All-1-:StepWidth];
    assign number = beat[lane*Width+:Width];
    always_comb begin
      own_next = of_step(own_step(0));
      for (int at = 1; at < Width; at++) if (magnitude[at]) own_next = of_step(own_step(at));
    end
    fixed_round #(
        .DATA_IN_0_PRECISION_0(Aligned),
        .DATA_IN_0_PRECISION_1(Most),
        .DATA_OUT_0_PRECISION_1(0),
        .ROUNDED_WIDTH(Mantissa + 2)
    ) rounds (
        .data_in_0(aligned),
        .rounded
    );
    // Rounded up to a power of two, a number may be beyond the highest one.
    assign highest = (Mantissa + 2)'((1 << Mantissa) - 1);
    assign saturates = above_4 || (at_top_4 && rounded_4[Mantissa] && rounded_4[Mantissa-1:0] == '0);
    assign mantissa = !saturates ? rounded_4 : negative_4 ? -highest : highest;

    always_ff @(posedge clk) begin
      if (advance) begin
        magnitude <= (number ^ {Width{number[Width-1]}}) + Width'(number[Width-1]);
        own <= own_next;
        if (exponent > top_exponent) {left, back} <= top[Shifts-1:0];
        else if (exponent < low_exponent) {left, back} <= low[Shifts-1:0];
        else {left, back} <= own[Shifts-1:0];
        above <= exponent > top_exponent;
        at_top <= exponent >= top_exponent || low_exponent == top_exponent;
        aligned <= Aligned'($signed(beat_2[lane*Width+:Width])) <<< left;
        {above_3, at_top_3, negative_3, back_3} <= {above, at_top, beat_2[lane*Width+Width-1], back};
        {above_4, at_top_4, negative_4, back_4} <= {above_3, at_top_3, negative_3, back_3};
        rounded_4 <= rounded;
        data_out_0[lane*Out+:Out] <= Out'(mantissa) <<< back_4;
      end
    end
    logic unused_bit;
    assign unused_bit = &{1'b0, magnitude[0], mantissa};
  end
endmodule
