/// Multiply, sum, accumulate and requantise: DATA_OUT_0_PARALLELISM_DIM_0 dot products at once, one beat of
/// DATA_IN_0_PARALLELISM_DIM_0 products of each per cycle. `first` begins a sum with the bias, `last` ends it.
/// 5 + $clog2(DATA_IN_0_PARALLELISM_DIM_0) cycles from the last beat to `result_valid`; factors, products, sums and
/// rounding have registers of their own. The bias is wanted 2 + $clog2(DATA_IN_0_PARALLELISM_DIM_0) cycles after the first beat.
/// With EXPONENTS, the products of a beat are multiplied by a power of two before they are added, a cycle later: its exponent, up
/// to DATA_IN_0_EXPONENTS, stands above the elements of `data`, and one up to WEIGHT_EXPONENTS above each lane's of `weight`.
/// With SLICES, a beat of `data` has so many times DATA_IN_0_PARALLELISM_DIM_0 elements, and each part of the lanes has its own.
/// Does not stand still: whoever sends beats has kept room for the results.
module fixed_mac #(
    parameter int DATA_IN_0_PRECISION_0        = 8,
    parameter int DATA_IN_0_PRECISION_1        = 4,
    parameter int DATA_IN_0_EXPONENTS          = 0,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0  = 16,
    parameter int DATA_IN_0_PARALLELISM_DIM_0  = 4,
    parameter int SLICES                       = 1,
    parameter int WEIGHT_PRECISION_0           = 8,
    parameter int WEIGHT_PRECISION_1           = 6,
    parameter int WEIGHT_EXPONENTS             = 0,
    parameter bit HAS_BIAS                     = 1'b1,
    parameter int BIAS_PRECISION_0             = 16,
    parameter int BIAS_PRECISION_1             = 10,
    parameter int DATA_OUT_0_PRECISION_0       = 8,
    parameter int DATA_OUT_0_PRECISION_1       = 4,
    parameter int DATA_OUT_0_PARALLELISM_DIM_0 = 2,
    parameter bit FLOOR                        = 1'b0,
    parameter bit RELU                         = 1'b0,
    localparam int DataExponent                = $clog2(DATA_IN_0_EXPONENTS + 1),
    localparam int WeightExponent              = $clog2(WEIGHT_EXPONENTS + 1),
    localparam int Factors                     = SLICES * DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int Coefficients                = DATA_IN_0_PARALLELISM_DIM_0 * WEIGHT_PRECISION_0,
    localparam int Beat                        = Factors + DataExponent,
    localparam int Row                         = Coefficients + WeightExponent
) (
    input  logic                                                           clk,
    input  logic                                                           rst,
    input  logic [                                               Beat-1:0] data,
    input  logic [               DATA_OUT_0_PARALLELISM_DIM_0*Row-1:0]     weight,
    input  logic                                                           valid,
    input  logic                                                           first,
    input  logic                                                           last,
    input  logic [  DATA_OUT_0_PARALLELISM_DIM_0*BIAS_PRECISION_0-1:0]     bias,
    output logic [DATA_OUT_0_PARALLELISM_DIM_0*DATA_OUT_0_PRECISION_0-1:0] result,
    output logic                                                           result_valid
);
  localparam int Levels = $clog2(DATA_IN_0_PARALLELISM_DIM_0);
  localparam int ProductWidth = DATA_IN_0_PRECISION_0 + WEIGHT_PRECISION_0;
  localparam int ProductFraction = DATA_IN_0_PRECISION_1 + WEIGHT_PRECISION_1;
  // Nothing of products or bias is lost: the sum has the longer fraction, and bits for the largest sum.
  localparam int SumFraction = (HAS_BIAS && BIAS_PRECISION_1 > ProductFraction) ? BIAS_PRECISION_1 : ProductFraction;
  localparam int ProductShift = SumFraction - ProductFraction;
  localparam int BiasShift = HAS_BIAS ? SumFraction - BIAS_PRECISION_1 : 0;
  localparam int Exponents = DATA_IN_0_EXPONENTS + WEIGHT_EXPONENTS;
  localparam int SumsWidth = ProductWidth + $clog2(DATA_IN_0_TENSOR_SIZE_DIM_0) + ProductShift + Exponents;
  localparam int BiasWidth = HAS_BIAS ? BIAS_PRECISION_0 + BiasShift + 1 : 0;
  localparam int Width = (SumsWidth > BiasWidth) ? SumsWidth : BiasWidth;

  localparam int Shifted = Width - SumFraction + DATA_OUT_0_PRECISION_1;
  localparam int RoundedWidth = ((Shifted > 1) ? Shifted : 1) + 1;

  // Flags travel beside the data: a register for the factors, one for the product, one for each level of the tree, and one
  // for the exponents.
  localparam int Summed = Levels + 1 + ((Exponents > 0) ? 1 : 0);
  logic [Summed:0] valid_at, first_at, last_at;
  logic [1:0] finished;

  always_ff @(posedge clk) begin
    if (rst) {result_valid, finished, valid_at} <= '0;
    else begin
      valid_at <= {valid_at[Summed-1:0], valid};
      {result_valid, finished} <= {finished, valid_at[Summed] && last_at[Summed]};
    end
  end
  always_ff @(posedge clk) begin
    first_at <= {first_at[Summed-1:0], first};
    last_at  <= {last_at[Summed-1:0], last};
  end

  for (genvar lane = 0; lane < DATA_OUT_0_PARALLELISM_DIM_0; lane++) begin : g_lane
    logic [DATA_IN_0_PARALLELISM_DIM_0*ProductWidth-1:0] products;
    logic signed [ProductWidth+Levels-1:0] sum;
    logic signed [Width-1:0] start, total, term;

    localparam int First = lane * SLICES / DATA_OUT_0_PARALLELISM_DIM_0 * DATA_IN_0_PARALLELISM_DIM_0;
    for (genvar at = 0; at < DATA_IN_0_PARALLELISM_DIM_0; at++) begin : g_product
      fixed_product #(
          .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
          .DATA_IN_1_PRECISION_0(WEIGHT_PRECISION_0)
      ) multiply (
          .clk,
          .moves(1'b1),
          .data_in_0(data[(First+at)*DATA_IN_0_PRECISION_0+:DATA_IN_0_PRECISION_0]),
          .data_in_1(weight[lane*Row+at*WEIGHT_PRECISION_0+:WEIGHT_PRECISION_0]),
          .product(products[at*ProductWidth+:ProductWidth])
      );
    end

    adder_tree #(
        .DATA_WIDTH(ProductWidth),
        .COUNT(DATA_IN_0_PARALLELISM_DIM_0)
    ) tree (
        .clk,
        .data(products),
        .sum
    );

    if (Exponents > 0) begin : g_exponent
      localparam int ExponentWidth = $clog2(Exponents + 1);
      logic [ExponentWidth-1:0] exponent, of_data, of_weight;
      logic [(Levels+2)*ExponentWidth-1:0] exponents;
      if (DATA_IN_0_EXPONENTS > 0) begin : g_data
        assign of_data = ExponentWidth'(data[Beat-1-:DataExponent]);
      end else begin : g_no_data
        assign of_data = '0;
      end
      if (WEIGHT_EXPONENTS > 0) begin : g_weight
        assign of_weight = ExponentWidth'(weight[lane*Row+Coefficients+:WeightExponent]);
      end else begin : g_no_weight
        assign of_weight = '0;
      end
      assign exponent = exponents[(Levels+1)*ExponentWidth+:ExponentWidth];
      always_ff @(posedge clk) begin
        exponents <= {exponents[0+:(Levels+1)*ExponentWidth], of_data + of_weight};
        term <= (Width'(sum) <<< ProductShift) <<< exponent;
      end
    end else begin : g_no_exponent
      assign term = Width'(sum) <<< ProductShift;
    end

    if (HAS_BIAS) begin : g_bias
      logic signed [BIAS_PRECISION_0-1:0] offset;
      assign offset = bias[lane*BIAS_PRECISION_0+:BIAS_PRECISION_0];
      assign start = Width'(offset) <<< BiasShift;
    end else begin : g_no_bias
      assign start = '0;
    end

    always_ff @(posedge clk) begin
      if (valid_at[Summed]) total <= (first_at[Summed] ? start : total) + term;
    end

    logic signed [RoundedWidth-1:0] rounded, rounded_1;
    logic signed [DATA_OUT_0_PRECISION_0-1:0] saturated;
    fixed_round #(
        .DATA_IN_0_PRECISION_0(Width),
        .DATA_IN_0_PRECISION_1(SumFraction),
        .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
        .FLOOR(FLOOR),
        .ROUNDED_WIDTH(RoundedWidth)
    ) rounds (
        .data_in_0(total),
        .rounded
    );
    always_ff @(posedge clk) rounded_1 <= rounded;
    fixed_saturate #(
        .DATA_IN_0_PRECISION_0(RoundedWidth),
        .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
        .RELU(RELU)
    ) saturate (
        .data_in_0 (rounded_1),
        .data_out_0(saturated)
    );
    always_ff @(posedge clk) result[lane*DATA_OUT_0_PRECISION_0+:DATA_OUT_0_PRECISION_0] <= saturated;
  end

  if (!HAS_BIAS) begin : g_wires
    logic unused_bias;
    assign unused_bias = &{1'b0, bias};
  end
endmodule
