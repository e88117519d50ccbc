/// Dot products of a stream with weights from outside, by the multipliers of a fixed_engine, which other layers use, too: the
/// sequence, the places for results and the rounding of shared_linear, shared_conv2d and shared_matmul.
/// The engine's lanes (ENGINE_PARALLELISM_DIM_0 of input, _1 of output) need not divide the sizes: the last beat of a
/// vector, and of its results, is padded. Beats of the streams (the two PARALLELISM parameters) divide both.
/// A vector takes BeatsIn * Passes cycles of the engine, the sizes over its lanes, rounded up. It waits until it is whole,
/// and for `weight_valid`; the next one arrives meanwhile. From then on 12 + $clog2(ENGINE_PARALLELISM_DIM_0) cycles and
/// those of a burst to the first result.
/// With GROUPS vectors come in turns of GROUPS, each for OUT / GROUPS of the results: windows of a grouped convolution.
/// `weight_address` counts beats of input, passes, then groups, and `weight` is wanted a cycle after `step`; where lanes are
/// padded, the weights of elements are zeros. `bias_address` counts passes, then groups; the bias is wanted a cycle later.
/// Cuts both paths of the stream.
module shared_core #(
    parameter int DATA_IN_0_PRECISION_0        = 8,
    parameter int DATA_IN_0_PRECISION_1        = 4,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0  = 17,
    parameter int DATA_IN_0_PARALLELISM_DIM_0  = 1,
    parameter int GROUPS                       = 1,
    parameter int WEIGHT_PRECISION_0           = 8,
    parameter int WEIGHT_PRECISION_1           = 6,
    parameter bit HAS_BIAS                     = 1'b1,
    parameter int BIAS_PRECISION_0             = 16,
    parameter int BIAS_PRECISION_1             = 10,
    parameter int DATA_OUT_0_PRECISION_0       = 8,
    parameter int DATA_OUT_0_PRECISION_1       = 4,
    parameter int DATA_OUT_0_TENSOR_SIZE_DIM_0 = 5,
    parameter int DATA_OUT_0_PARALLELISM_DIM_0 = 1,
    parameter bit FLOOR                        = 1'b0,
    parameter bit RELU                         = 1'b0,
    parameter int ENGINE_PARALLELISM_DIM_0     = 4,
    parameter int ENGINE_PARALLELISM_DIM_1     = 2,
    parameter int ENGINE_DATA_WIDTH            = 8,
    parameter int ENGINE_WEIGHT_WIDTH          = 8,
    parameter int ENGINE_SUM_WIDTH             = 24,
    localparam int InWidth                     = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int OutWidth                    = DATA_OUT_0_PARALLELISM_DIM_0 * DATA_OUT_0_PRECISION_0,
    localparam int Lanes                       = ENGINE_PARALLELISM_DIM_0,
    localparam int Outs                        = ENGINE_PARALLELISM_DIM_1,
    localparam int BeatsIn                     = (DATA_IN_0_TENSOR_SIZE_DIM_0 + Lanes - 1) / Lanes,
    localparam int Results                     = DATA_OUT_0_TENSOR_SIZE_DIM_0 / GROUPS,
    localparam int Passes                      = (Results + Outs - 1) / Outs,
    localparam int Words                       = GROUPS * Passes * BeatsIn,
    localparam int AddressWidth                = (Words > 1) ? $clog2(Words) : 1,
    localparam int BiasDepth                   = GROUPS * Passes,
    localparam int IndexWidth                  = (BiasDepth > 1) ? $clog2(BiasDepth) : 1
) (
    input  logic                                      clk,
    input  logic                                      rst,
    input  logic [                       InWidth-1:0] data_in_0,
    input  logic                                      data_in_0_valid,
    output logic                                      data_in_0_ready,
    output logic [                      OutWidth-1:0] data_out_0,
    output logic                                      data_out_0_valid,
    input  logic                                      data_out_0_ready,
    input  logic                                      weight_valid,
    output logic                                      step,
    output logic [                  AddressWidth-1:0] weight_address,
    input  logic [ Outs*Lanes*WEIGHT_PRECISION_0-1:0] weight,
    output logic [                    IndexWidth-1:0] bias_address,
    input  logic [         Outs*BIAS_PRECISION_0-1:0] bias,
    output logic                                      engine_request,
    output logic                                      engine_last,
    input  logic                                      engine_grant,
    output logic [       Lanes*ENGINE_DATA_WIDTH-1:0] engine_data,
    output logic [Outs*Lanes*ENGINE_WEIGHT_WIDTH-1:0] engine_weight,
    input  logic [         Outs*ENGINE_SUM_WIDTH-1:0] engine_total
);
  localparam int BeatWidth = Lanes * DATA_IN_0_PRECISION_0;

  if (DATA_IN_0_TENSOR_SIZE_DIM_0 % DATA_IN_0_PARALLELISM_DIM_0 != 0 || Lanes % DATA_IN_0_PARALLELISM_DIM_0 != 0) begin : g_check_in
    $error("shared_core: %0d elements a beat do not divide %0d inputs and %0d lanes", DATA_IN_0_PARALLELISM_DIM_0,
           DATA_IN_0_TENSOR_SIZE_DIM_0, Lanes);
  end
  if (Results * GROUPS != DATA_OUT_0_TENSOR_SIZE_DIM_0 || Results % DATA_OUT_0_PARALLELISM_DIM_0 != 0
      || Outs % DATA_OUT_0_PARALLELISM_DIM_0 != 0) begin : g_check_out
    $error("shared_core: %0d elements a beat do not divide %0d outputs of %0d groups and %0d lanes",
           DATA_OUT_0_PARALLELISM_DIM_0, DATA_OUT_0_TENSOR_SIZE_DIM_0, GROUPS, Outs);
  end

  // Beats as wide as the engine, each vector once for every beat of results.
  logic [BeatWidth-1:0] wide, vector;
  logic wide_valid, wide_ready, vector_valid, vector_ready;

  width_upsizer #(
      .DATA_WIDTH(InWidth),
      .RATIO(Lanes / DATA_IN_0_PARALLELISM_DIM_0),
      .LENGTH(DATA_IN_0_TENSOR_SIZE_DIM_0 / DATA_IN_0_PARALLELISM_DIM_0)
  ) widens (
      .clk,
      .rst,
      .data_in_0,
      .data_in_0_valid,
      .data_in_0_ready,
      .data_out_0(wide),
      .data_out_0_valid(wide_valid),
      .data_out_0_ready(wide_ready)
  );

  repeat_buffer #(
      .DATA_WIDTH(BeatWidth),
      .LENGTH(BeatsIn),
      .COUNT(Passes),
      .WHOLE(1'b1)
  ) repeats (
      .clk,
      .rst,
      .data_in_0(wide),
      .data_in_0_valid(wide_valid),
      .data_in_0_ready(wide_ready),
      .data_out_0(vector),
      .data_out_0_valid(vector_valid),
      .data_out_0_ready(vector_ready)
  );

  // A burst begins when there is a place for its result, which is kept from then on until the result leaves.
  localparam int Levels = $clog2(Lanes);
  localparam int Delay = 11 + Levels;
  localparam int Places = (Delay + BeatsIn - 2) / BeatsIn + 2;
  localparam int PlacesWidth = $clog2(Places + 1);

  logic [PlacesWidth-1:0] places;
  logic first, last, full, leaves, result_ready, result_valid;

  loop_counter #(.COUNT(BeatsIn)) beats (.clk, .rst, .step, .last);

  assign engine_request = vector_valid && weight_valid && !(first && full);
  assign engine_last = last;
  assign step = engine_request && engine_grant;
  assign vector_ready = engine_grant && weight_valid && !(first && full);

  always_ff @(posedge clk) begin
    if (rst) begin
      first  <= 1'b1;
      places <= PlacesWidth'(Places);
      full   <= 1'b0;
    end else begin
      if (step) first <= last;
      if ((step && first) != leaves) begin
        places <= leaves ? places + 1'b1 : places - 1'b1;
        full   <= !leaves && places == PlacesWidth'(1);
      end
    end
  end

  // The weights come a cycle after their address, and have a second register, that of their memory; data waits for them.
  logic [BeatWidth-1:0] vector_1, vector_2;
  logic [Outs*Lanes*WEIGHT_PRECISION_0-1:0] weight_1;

  always_ff @(posedge clk) begin
    if (rst) weight_address <= '0;
    else if (step) weight_address <= (weight_address == AddressWidth'(Words - 1)) ? '0 : weight_address + 1'b1;
  end
  always_ff @(posedge clk) {vector_2, vector_1, weight_1} <= {vector_1, vector, weight};

  for (genvar at = 0; at < Lanes; at++) begin : g_data
    logic signed [DATA_IN_0_PRECISION_0-1:0] element;
    assign element = vector_2[at*DATA_IN_0_PRECISION_0+:DATA_IN_0_PRECISION_0];
    assign engine_data[at*ENGINE_DATA_WIDTH+:ENGINE_DATA_WIDTH] = ENGINE_DATA_WIDTH'(element);
  end
  for (genvar at = 0; at < Outs * Lanes; at++) begin : g_weight
    logic signed [WEIGHT_PRECISION_0-1:0] element;
    assign element = weight_1[at*WEIGHT_PRECISION_0+:WEIGHT_PRECISION_0];
    assign engine_weight[at*ENGINE_WEIGHT_WIDTH+:ENGINE_WEIGHT_WIDTH] = ENGINE_WEIGHT_WIDTH'(element);
  end

  // ends[k]: the last beat of a burst moved k + 1 cycles ago. Then come its total, bias, rounding and saturation.
  logic [Levels+8:0] ends;
  always_ff @(posedge clk) begin
    if (rst) ends <= '0;
    else ends <= {ends[Levels+7:0], step && last};
  end

  // Nothing of products or bias is lost, as in fixed_mac.
  localparam int ProductWidth = DATA_IN_0_PRECISION_0 + WEIGHT_PRECISION_0;
  localparam int ProductFraction = DATA_IN_0_PRECISION_1 + WEIGHT_PRECISION_1;
  localparam int SumFraction = (HAS_BIAS && BIAS_PRECISION_1 > ProductFraction) ? BIAS_PRECISION_1 : ProductFraction;
  localparam int ProductShift = SumFraction - ProductFraction;
  localparam int BiasShift = HAS_BIAS ? SumFraction - BIAS_PRECISION_1 : 0;
  localparam int TotalWidth = ProductWidth + $clog2(BeatsIn * Lanes);
  localparam int SumsWidth = TotalWidth + ProductShift;
  localparam int BiasWidth = HAS_BIAS ? BIAS_PRECISION_0 + BiasShift : 0;
  localparam int Width = ((SumsWidth > BiasWidth) ? SumsWidth : BiasWidth) + (HAS_BIAS ? 1 : 0);
  localparam int Shifted = Width - SumFraction + DATA_OUT_0_PRECISION_1;
  localparam int RoundedWidth = ((Shifted > 1) ? Shifted : 1) + 1;
  localparam int ResultWidth = Outs * DATA_OUT_0_PRECISION_0;

  if (TotalWidth > ENGINE_SUM_WIDTH) begin : g_check_sum
    $error("shared_core: its sums have %0d bits, those of the engine %0d", TotalWidth, ENGINE_SUM_WIDTH);
  end

  always_ff @(posedge clk) begin
    if (rst) bias_address <= '0;
    else if (ends[Levels+4]) bias_address <= (bias_address == IndexWidth'(BiasDepth - 1)) ? '0 : bias_address + 1'b1;
  end

  logic [ResultWidth-1:0] result, given;

  for (genvar lane = 0; lane < Outs; lane++) begin : g_lane
    logic signed [TotalWidth-1:0] total;
    logic signed [BIAS_PRECISION_0-1:0] offset;
    logic signed [Width-1:0] biased;
    logic signed [RoundedWidth-1:0] rounded, rounded_1;
    logic signed [DATA_OUT_0_PRECISION_0-1:0] saturated;

    assign total = engine_total[lane*ENGINE_SUM_WIDTH+:TotalWidth];
    assign offset = bias[lane*BIAS_PRECISION_0+:BIAS_PRECISION_0];
    always_ff @(posedge clk) biased <= (Width'(total) <<< ProductShift) + (Width'(offset) <<< BiasShift);

    fixed_round #(
        .DATA_IN_0_PRECISION_0(Width),
        .DATA_IN_0_PRECISION_1(SumFraction),
        .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
        .FLOOR(FLOOR),
        .ROUNDED_WIDTH(RoundedWidth)
    ) rounds (
        .data_in_0(biased),
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

  logic unused_total;  // the engine's sums may be wider
  assign unused_total = &{1'b0, engine_total};

  logic unused_ready;  // `places` has seen to it
  assign leaves = result_valid && result_ready;

  fifo #(
      .DATA_WIDTH(ResultWidth),
      .DEPTH(Places)
  ) results (
      .clk,
      .rst,
      .data_in_0(result),
      .data_in_0_valid(ends[Levels+8]),
      .data_in_0_ready(unused_ready),
      .data_out_0(given),
      .data_out_0_valid(result_valid),
      .data_out_0_ready(result_ready)
  );

  width_downsizer #(
      .DATA_WIDTH(OutWidth),
      .RATIO(Outs / DATA_OUT_0_PARALLELISM_DIM_0),
      .LENGTH(Results / DATA_OUT_0_PARALLELISM_DIM_0)
  ) narrows (
      .clk,
      .rst,
      .data_in_0(given),
      .data_in_0_valid(result_valid),
      .data_in_0_ready(result_ready),
      .data_out_0,
      .data_out_0_valid,
      .data_out_0_ready
  );
endmodule
