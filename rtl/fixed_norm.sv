/// Layer norm, or without MEAN RMS norm, over rows of N = DATA_IN_0_TENSOR_SIZE_DIM_0 numbers, in integers throughout:
/// c = N x - sum(x), or x; root = floor(sqrt((sum(c c) + EPSILON) 4**ROOT_FRACTION / N)), both without any other rounding;
/// n = c 2**ROOT_FRACTION / root, rounded half to even to NORM_FRACTION bits; out = n weight + bias, requantised.
/// EPSILON is eps 4**DATA_IN_0_PRECISION_1 times N**3, or times N without MEAN, and at least 1.
/// One beat per cycle, but ROOTS rows take ROOT_WIDTH + 2 cycles at least, the width of the root. Some 2 * BEATS +
/// ROOT_WIDTH + NORM_FRACTION + 25 cycles of latency. Stores four rows. WEIGHT_FILE and BIAS_FILE have a word a beat.
/// With SERIAL it has no multipliers: a beat takes a cycle for each bit of c, or if that is more, of the weight, and one.
/// Is arithmetic.norm in Python. Does not cut the ready path at its output.
module fixed_norm #(
    parameter int DATA_IN_0_PRECISION_0       = 8,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0 = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 2,
    parameter bit MEAN                        = 1'b1,
    parameter bit SERIAL                      = 1'b0,
    parameter logic [63:0] EPSILON            = 64'd1,
    parameter int ROOT_FRACTION               = 8,
    parameter int NORM_FRACTION               = 12,
    parameter int ROOTS                       = 1,
    parameter bit HAS_WEIGHT                  = 1'b1,
    parameter int WEIGHT_PRECISION_0          = 8,
    parameter int WEIGHT_PRECISION_1          = 6,
    parameter bit HAS_BIAS                    = 1'b1,
    parameter int BIAS_PRECISION_0            = 8,
    parameter int BIAS_PRECISION_1            = 6,
    parameter int DATA_OUT_0_PRECISION_0      = 8,
    parameter int DATA_OUT_0_PRECISION_1      = 4,
    parameter     WEIGHT_FILE                 = "weight.mem",
    parameter     BIAS_FILE                   = "bias.mem",
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
  localparam int Size = DATA_IN_0_TENSOR_SIZE_DIM_0;
  localparam int Lanes = DATA_IN_0_PARALLELISM_DIM_0;
  localparam int Beats = Size / Lanes;
  localparam int SizeBits = $clog2(Size);
  // Beats and lanes are summed apart, which may take a bit more than the row's size needs.
  localparam int RowBits = $clog2(Beats) + $clog2(Lanes);
  localparam int CentredWidth = MEAN ? DATA_IN_0_PRECISION_0 + SizeBits + 1 : DATA_IN_0_PRECISION_0;
  localparam int SquareWidth = 2 * CentredWidth;
  localparam int SumWidth = SquareWidth + RowBits;
  localparam int EpsilonWidth = $clog2(EPSILON + 64'd1);
  localparam int TotalWidth = ((SumWidth > EpsilonWidth) ? SumWidth : EpsilonWidth) + 1;
  localparam int RootWidth = (TotalWidth + 1) / 2 + ROOT_FRACTION;
  localparam int NumeratorWidth = CentredWidth + ROOT_FRACTION;
  // |c| / root is at most sqrt(N), and twice that where the root has lost its fraction.
  localparam int QuotientWidth = (SizeBits + 1) / 2 + 2 + NORM_FRACTION;
  localparam int NormWidth = QuotientWidth + 1;
  localparam int Divided = QuotientWidth + 3;  // with a stage for the magnitude
  // Products that need a multiplier: by the row's size, and by the weight.
  localparam bit SerialSize = SERIAL && MEAN && (Size & (Size - 1)) != 0;
  localparam bit SerialWeight = SERIAL && HAS_WEIGHT;

  if (Beats * Lanes != Size) begin : g_check
    $error("fixed_norm: %0d numbers are no multiple of %0d a beat", Size, Lanes);
  end

  // c, centred on the mean
  logic [Lanes*CentredWidth-1:0] centred, held;
  logic centred_valid, centred_ready;

  if (MEAN) begin : g_mean
    logic [InWidth-1:0] row;
    logic signed [DATA_IN_0_PRECISION_0+RowBits-1:0] sum;
    logic row_valid, row_ready;

    row_statistic #(
        .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
        .DATA_IN_0_PARALLELISM_DIM_0(Lanes),
        .BEATS(Beats),
        .MAXIMUM(1'b0),
        .REDUCED_PRECISION(DATA_IN_0_PRECISION_0)
    ) total (
        .clk,
        .rst,
        .data_in_0,
        .reduced(data_in_0),
        .data_in_0_valid,
        .data_in_0_ready,
        .data_out_0(row),
        .statistic(sum),
        .data_out_0_valid(row_valid),
        .data_out_0_ready(row_ready)
    );

    // Elements times the size beside the row's sum.
    logic [Lanes*CentredWidth-1:0] scaled;
    logic signed [DATA_IN_0_PRECISION_0+RowBits-1:0] sum_of_scaled;
    logic scaled_valid, scaled_ready;

    if (SerialSize) begin : g_serial
      serial_multiply #(
          .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
          .DATA_IN_1_PRECISION_0(SizeBits + 1),
          .LANES(Lanes),
          .BESIDE_WIDTH(DATA_IN_0_PRECISION_0 + RowBits)
      ) scale (
          .clk,
          .rst,
          .data_in_0(row),
          .data_in_1({Lanes{(SizeBits + 1)'(Size)}}),
          .beside(sum),
          .data_in_0_valid(row_valid),
          .data_in_0_ready(row_ready),
          .data_out_0(scaled),
          .beside_out(sum_of_scaled),
          .data_out_0_valid(scaled_valid),
          .data_out_0_ready(scaled_ready)
      );
    end else begin : g_at_once
      for (genvar lane = 0; lane < Lanes; lane++) begin : g_lane
        logic signed [DATA_IN_0_PRECISION_0-1:0] element;
        assign element = row[lane*DATA_IN_0_PRECISION_0+:DATA_IN_0_PRECISION_0];
        assign scaled[lane*CentredWidth+:CentredWidth] = CentredWidth'(element) * CentredWidth'(Size);
      end
      assign sum_of_scaled = sum;
      assign scaled_valid = row_valid;
      assign row_ready = scaled_ready;
    end

    assign scaled_ready = !centred_valid || centred_ready;
    always_ff @(posedge clk) begin
      if (rst) centred_valid <= 1'b0;
      else if (scaled_ready) centred_valid <= scaled_valid;
    end
    for (genvar lane = 0; lane < Lanes; lane++) begin : g_centre
      logic signed [CentredWidth-1:0] element;
      assign element = scaled[lane*CentredWidth+:CentredWidth];
      always_ff @(posedge clk) begin
        if (scaled_ready) begin
          centred[lane*CentredWidth+:CentredWidth] <= CentredWidth'(element) - CentredWidth'(sum_of_scaled);
        end
      end
    end
  end else begin : g_plain
    assign centred = data_in_0;
    assign centred_valid = data_in_0_valid;
    assign data_in_0_ready = centred_ready;
  end

  // The row waits while its squares are summed and the root is found.
  logic [1:0] branch_valid, branch_ready;
  logic [Lanes*SquareWidth-1:0] squares;
  logic squares_valid, squares_ready, sum_valid, sum_ready, found_valid, found_ready, held_valid, held_ready;
  logic root_valid, root_ready, pair_valid, moves;
  logic [SumWidth-1:0] sum_of_squares;
  logic [RootWidth-1:0] found, root;

  stream_fork #(
      .COUNT(2)
  ) forks (
      .clk,
      .rst,
      .data_in_0_valid(centred_valid),
      .data_in_0_ready(centred_ready),
      .data_out_0_valid(branch_valid),
      .data_out_0_ready(branch_ready)
  );

  fifo #(
      .DATA_WIDTH(Lanes * CentredWidth),
      .DEPTH(2 * Beats + RootWidth + 6)
  ) rows (
      .clk,
      .rst,
      .data_in_0(centred),
      .data_in_0_valid(branch_valid[0]),
      .data_in_0_ready(branch_ready[0]),
      .data_out_0(held),
      .data_out_0_valid(held_valid),
      .data_out_0_ready(held_ready)
  );

  if (SERIAL) begin : g_serial_square
    logic unused_beside;
    serial_multiply #(
        .DATA_IN_0_PRECISION_0(CentredWidth),
        .DATA_IN_1_PRECISION_0(CentredWidth),
        .LANES(Lanes)
    ) square (
        .clk,
        .rst,
        .data_in_0(centred),
        .data_in_1(centred),
        .beside('0),
        .data_in_0_valid(branch_valid[1]),
        .data_in_0_ready(branch_ready[1]),
        .data_out_0(squares),
        .beside_out(unused_beside),
        .data_out_0_valid(squares_valid),
        .data_out_0_ready(squares_ready)
    );
  end else begin : g_square_at_once
    assign branch_ready[1] = !squares_valid || squares_ready;
    always_ff @(posedge clk) begin
      if (rst) squares_valid <= 1'b0;
      else if (branch_ready[1]) squares_valid <= branch_valid[1];
    end
    for (genvar lane = 0; lane < Lanes; lane++) begin : g_square
      fixed_product #(
          .DATA_IN_0_PRECISION_0(CentredWidth),
          .DATA_IN_1_PRECISION_0(CentredWidth),
          .BARE(1'b1)
      ) square (
          .clk,
          .moves(branch_ready[1]),
          .data_in_0(centred[lane*CentredWidth+:CentredWidth]),
          .data_in_1(centred[lane*CentredWidth+:CentredWidth]),
          .product(squares[lane*SquareWidth+:SquareWidth])
      );
    end
  end

  fixed_row_reduce #(
      .DATA_IN_0_PRECISION_0(SquareWidth),
      .DATA_IN_0_PARALLELISM_DIM_0(Lanes),
      .BEATS(Beats),
      .MAXIMUM(1'b0)
  ) reduce (
      .clk,
      .rst,
      .data_in_0(squares),
      .data_in_0_valid(squares_valid),
      .data_in_0_ready(squares_ready),
      .data_out_0(sum_of_squares),
      .data_out_0_valid(sum_valid),
      .data_out_0_ready(sum_ready)
  );

  fixed_root #(
      .SUM_WIDTH(SumWidth),
      .COUNT(Size),
      .FRACTION(ROOT_FRACTION),
      .EPSILON(EPSILON),
      .ROOT_WIDTH(RootWidth),
      .AT_ONCE(ROOTS)
  ) roots (
      .clk,
      .rst,
      .sum(sum_of_squares),
      .sum_valid,
      .sum_ready,
      .root(found),
      .root_valid(found_valid),
      .root_ready(found_ready)
  );

  skid_buffer #(
      .DATA_WIDTH(RootWidth)
  ) root_buffer (
      .clk,
      .rst,
      .data_in_0(found),
      .data_in_0_valid(found_valid),
      .data_in_0_ready(found_ready),
      .data_out_0(root),
      .data_out_0_valid(root_valid),
      .data_out_0_ready(root_ready)
  );

  stream_hold #(
      .COUNT(Beats)
  ) hold (
      .clk,
      .rst,
      .data_in_0_valid(held_valid),
      .data_in_0_ready(held_ready),
      .value_valid(root_valid),
      .value_ready(root_ready),
      .data_out_0_valid(pair_valid),
      .data_out_0_ready(moves)
  );

  // The quotient, the product and its rounding: all stages move together, but for a serial product between them.
  logic [Divided-1:0] valid_at;
  logic [2:0] last_valid_at;
  logic last_moves, product_valid, product_ready;
  assign last_moves = !data_out_0_valid || data_out_0_ready;
  assign data_out_0_valid = last_valid_at[2];
  assign moves = SerialWeight ? !valid_at[Divided-1] || product_ready : last_moves;
  always_ff @(posedge clk) begin
    if (rst) {valid_at, last_valid_at} <= '0;
    else begin
      if (moves) valid_at <= {valid_at[Divided-2:0], pair_valid};
      if (last_moves) last_valid_at <= {last_valid_at[1:0], product_valid};
    end
  end

  // Weight and bias of a beat are there in the same cycle as its quotient, in a register behind their memory.
  localparam int AddressWidth = (Beats > 1) ? $clog2(Beats) : 1;
  logic [AddressWidth-1:0] beat;
  logic [Lanes*WEIGHT_PRECISION_0-1:0] weight, weight_word;
  logic [Lanes*BIAS_PRECISION_0-1:0] bias, bias_word;
  always_ff @(posedge clk) if (moves) {weight, bias} <= {weight_word, bias_word};
  always_ff @(posedge clk) begin
    if (rst) beat <= '0;
    else if (moves && valid_at[Divided-3]) beat <= (beat == AddressWidth'(Beats - 1)) ? '0 : beat + 1'b1;
  end
  if (HAS_WEIGHT) begin : g_weight
    rom #(
        .DATA_WIDTH(Lanes * WEIGHT_PRECISION_0),
        .DEPTH(Beats),
        .FILE(WEIGHT_FILE)
    ) weights (
        .clk,
        .enable(moves),
        .address(beat),
        .data(weight_word)
    );
  end else begin : g_no_weight
    assign weight_word = {Lanes{WEIGHT_PRECISION_0'(1)}};
  end
  if (HAS_BIAS) begin : g_bias
    rom #(
        .DATA_WIDTH(Lanes * BIAS_PRECISION_0),
        .DEPTH(Beats),
        .FILE(BIAS_FILE)
    ) biases (
        .clk,
        .enable(moves),
        .address(beat),
        .data(bias_word)
    );
  end else begin : g_no_bias
    assign bias_word = '0;
  end

  localparam int FactoredWidth = NormWidth + WEIGHT_PRECISION_0;
  localparam int ProductFraction = NORM_FRACTION + (HAS_WEIGHT ? WEIGHT_PRECISION_1 : 0);
  localparam int BiasFraction = HAS_BIAS ? BIAS_PRECISION_1 : ProductFraction;
  localparam int Fraction = (BiasFraction > ProductFraction) ? BiasFraction : ProductFraction;
  localparam int ProductShift = Fraction - ProductFraction;
  localparam int BiasShift = Fraction - BiasFraction;
  localparam int ProductWidth = FactoredWidth + ProductShift;
  localparam int BiasWidth = BIAS_PRECISION_0 + BiasShift;
  localparam int Width = ((ProductWidth > BiasWidth) ? ProductWidth : BiasWidth) + 1;
  localparam int Shifted = Width - Fraction + DATA_OUT_0_PRECISION_1;
  localparam int RoundedWidth = ((Shifted > 1) ? Shifted : 1) + 1;

  // Norms times weights, beside their biases.
  logic [Lanes*NormWidth-1:0] norms;
  logic [Lanes*FactoredWidth-1:0] products;
  logic [Lanes*BIAS_PRECISION_0-1:0] offsets;

  if (SerialWeight) begin : g_serial_product
    serial_multiply #(
        .DATA_IN_0_PRECISION_0(NormWidth),
        .DATA_IN_1_PRECISION_0(WEIGHT_PRECISION_0),
        .LANES(Lanes),
        .BESIDE_WIDTH(Lanes * BIAS_PRECISION_0)
    ) weigh (
        .clk,
        .rst,
        .data_in_0(norms),
        .data_in_1(weight),
        .beside(bias),
        .data_in_0_valid(valid_at[Divided-1]),
        .data_in_0_ready(product_ready),
        .data_out_0(products),
        .beside_out(offsets),
        .data_out_0_valid(product_valid),
        .data_out_0_ready(last_moves)
    );
  end else begin : g_product_at_once
    for (genvar lane = 0; lane < Lanes; lane++) begin : g_factor
      logic signed [NormWidth-1:0] norm;
      assign norm = norms[lane*NormWidth+:NormWidth];
      if (HAS_WEIGHT) begin : g_multiply
        fixed_product #(
            .DATA_IN_0_PRECISION_0(NormWidth),
            .DATA_IN_1_PRECISION_0(WEIGHT_PRECISION_0)
        ) multiply (
            .clk,
            .moves(last_moves),
            .data_in_0(norm),
            .data_in_1(weight[lane*WEIGHT_PRECISION_0+:WEIGHT_PRECISION_0]),
            .product(products[lane*FactoredWidth+:FactoredWidth])
        );
      end else begin : g_one
        logic signed [NormWidth-1:0] norm_1;
        always_ff @(posedge clk) begin
          if (last_moves) norm_1 <= norm;
          if (last_moves) products[lane*FactoredWidth+:FactoredWidth] <= FactoredWidth'(norm_1);
        end
      end
    end
    logic valid_1;
    logic [Lanes*BIAS_PRECISION_0-1:0] bias_1;
    always_ff @(posedge clk) begin
      if (rst) {product_valid, valid_1} <= '0;
      else if (last_moves) {product_valid, valid_1} <= {valid_1, valid_at[Divided-1]};
    end
    always_ff @(posedge clk) if (last_moves) {offsets, bias_1} <= {bias_1, bias};
    if (!HAS_WEIGHT) begin : g_no_weight
      logic unused_weight;
      assign unused_weight = &{1'b0, weight};
    end
    assign product_ready = last_moves;
  end

  for (genvar lane = 0; lane < Lanes; lane++) begin : g_result
    logic signed [CentredWidth-1:0] element;
    logic [CentredWidth-1:0] magnitude;
    logic [RootWidth-1:0] divisor;
    logic negative;
    logic signed [FactoredWidth-1:0] product;
    logic signed [BIAS_PRECISION_0-1:0] offset;
    logic signed [Width-1:0] exact;
    logic signed [RoundedWidth-1:0] rounded, rounded_1;
    logic signed [DATA_OUT_0_PRECISION_0-1:0] saturated;

    assign element = held[lane*CentredWidth+:CentredWidth];
    assign product = products[lane*FactoredWidth+:FactoredWidth];
    assign offset = offsets[lane*BIAS_PRECISION_0+:BIAS_PRECISION_0];

    fixed_divide #(
        .NUMERATOR_WIDTH(NumeratorWidth),
        .DENOMINATOR_WIDTH(RootWidth),
        .FRACTION(NORM_FRACTION),
        .QUOTIENT_WIDTH(QuotientWidth),
        .RESULT_WIDTH(NormWidth)
    ) divide (
        .clk,
        .moves,
        .numerator({magnitude, {ROOT_FRACTION{1'b0}}}),
        .denominator(divisor),
        .negative,
        .result(norms[lane*NormWidth+:NormWidth])
    );

    fixed_round #(
        .DATA_IN_0_PRECISION_0(Width),
        .DATA_IN_0_PRECISION_1(Fraction),
        .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
        .ROUNDED_WIDTH(RoundedWidth)
    ) rounds (
        .data_in_0(exact),
        .rounded
    );
    fixed_saturate #(
        .DATA_IN_0_PRECISION_0(RoundedWidth),
        .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0)
    ) saturate (
        .data_in_0 (rounded_1),
        .data_out_0(saturated)
    );

    always_ff @(posedge clk) begin
      if (moves) begin
        negative  <= element[CentredWidth-1];
        magnitude <= element[CentredWidth-1] ? -element : element;
        divisor   <= root;
      end
      if (last_moves) begin
        exact <= (Width'(product) <<< ProductShift) + (Width'(offset) <<< BiasShift);
        rounded_1 <= rounded;
        data_out_0[lane*DATA_OUT_0_PRECISION_0+:DATA_OUT_0_PRECISION_0] <= saturated;
      end
    end
  end
endmodule
