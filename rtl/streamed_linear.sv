/// fixed_linear with its weights from outside: `data_in_1` brings them, all of them for every ROWS vectors, in beats of BUS_WIDTH
/// bits. A vector waits until its weights are there. Those of a beat of results, for all inputs, are read for ROWS vectors in a
/// row while the next ones already come (two such tiles of memory); with ROWS 1 there are none, and weights pass through.
/// PAR_IN * PAR_OUT multipliers (the two PARALLELISM parameters); ROWS vectors take ROWS * (IN / PAR_IN) * (OUT / PAR_OUT) cycles
/// if the weights keep up, and the next ones follow without a gap. From the first beat to the first result those of all but the
/// last beats of results, and 14 + $clog2(PAR_IN) cycles of latency at most. Stores 2 * ROWS vectors and their results. Cuts both
/// paths of the stream, not that of the weights.
/// A word is the weights of a cycle, in the order of fixed_linear_core. Whole words stand in a beat, the first one lowest; wider
/// ones take beats of their own, the first one lowest. The last beat of the weights is filled up. Biases are in a memory.
/// Is arithmetic.linear in Python. Does not take sizes that PAR_IN and PAR_OUT do not divide, nor a last row of fewer vectors.
module streamed_linear #(
    parameter int DATA_IN_0_PRECISION_0        = 8,
    parameter int DATA_IN_0_PRECISION_1        = 4,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0  = 16,
    parameter int DATA_IN_0_PARALLELISM_DIM_0  = 4,
    parameter int WEIGHT_PRECISION_0           = 8,
    parameter int WEIGHT_PRECISION_1           = 6,
    parameter bit HAS_BIAS                     = 1'b1,
    parameter int BIAS_PRECISION_0             = 16,
    parameter int BIAS_PRECISION_1             = 10,
    parameter int DATA_OUT_0_PRECISION_0       = 8,
    parameter int DATA_OUT_0_PRECISION_1       = 4,
    parameter int DATA_OUT_0_TENSOR_SIZE_DIM_0 = 8,
    parameter int DATA_OUT_0_PARALLELISM_DIM_0 = 2,
    parameter int ROWS                         = 1,
    parameter int BUS_WIDTH                    = 64,
    parameter bit FLOOR                        = 1'b0,
    parameter bit RELU                         = 1'b0,
    parameter     BIAS_FILE                    = "bias.mem",
    localparam int InWidth                     = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int OutWidth                    = DATA_OUT_0_PARALLELISM_DIM_0 * DATA_OUT_0_PRECISION_0
) (
    input  logic                 clk,
    input  logic                 rst,
    input  logic [  InWidth-1:0] data_in_0,
    input  logic                 data_in_0_valid,
    output logic                 data_in_0_ready,
    input  logic [BUS_WIDTH-1:0] data_in_1,
    input  logic                 data_in_1_valid,
    output logic                 data_in_1_ready,
    output logic [ OutWidth-1:0] data_out_0,
    output logic                 data_out_0_valid,
    input  logic                 data_out_0_ready
);
  localparam int BeatsIn = DATA_IN_0_TENSOR_SIZE_DIM_0 / DATA_IN_0_PARALLELISM_DIM_0;
  localparam int BeatsOut = DATA_OUT_0_TENSOR_SIZE_DIM_0 / DATA_OUT_0_PARALLELISM_DIM_0;
  localparam int AddressWidth = (BeatsIn * BeatsOut > 1) ? $clog2(BeatsIn * BeatsOut) : 1;
  localparam int OutIndexWidth = (BeatsOut > 1) ? $clog2(BeatsOut) : 1;
  localparam int WordWidth = DATA_IN_0_PARALLELISM_DIM_0 * DATA_OUT_0_PARALLELISM_DIM_0 * WEIGHT_PRECISION_0;
  localparam int BiasWidth = DATA_OUT_0_PARALLELISM_DIM_0 * BIAS_PRECISION_0;

  // Beats of the bus as words.
  logic [WordWidth-1:0] word, weight, weight_1, weight_2;
  logic word_valid, word_ready, weight_valid, weight_ready;

  if (WordWidth <= BUS_WIDTH) begin : g_narrow
    localparam int Packed = BUS_WIDTH / WordWidth;
    width_downsizer #(
        .DATA_WIDTH(WordWidth),
        .RATIO(Packed),
        .LENGTH(BeatsIn * BeatsOut)
    ) words (
        .clk,
        .rst,
        .data_in_0(data_in_1[Packed*WordWidth-1:0]),
        .data_in_0_valid(data_in_1_valid),
        .data_in_0_ready(data_in_1_ready),
        .data_out_0(word),
        .data_out_0_valid(word_valid),
        .data_out_0_ready(word_ready)
    );
    logic unused_bits;
    assign unused_bits = &{1'b0, data_in_1};
  end else begin : g_wide
    localparam int Parts = (WordWidth + BUS_WIDTH - 1) / BUS_WIDTH;
    logic [Parts*BUS_WIDTH-1:0] whole;
    width_upsizer #(
        .DATA_WIDTH(BUS_WIDTH),
        .RATIO(Parts)
    ) words (
        .clk,
        .rst,
        .data_in_0(data_in_1),
        .data_in_0_valid(data_in_1_valid),
        .data_in_0_ready(data_in_1_ready),
        .data_out_0(whole),
        .data_out_0_valid(word_valid),
        .data_out_0_ready(word_ready)
    );
    assign word = whole[WordWidth-1:0];
    logic unused_bits;
    assign unused_bits = &{1'b0, whole};
  end

  // The words of a beat of results, once for every row.
  if (ROWS > 1) begin : g_tile
    repeat_buffer #(
        .DATA_WIDTH(WordWidth),
        .LENGTH(BeatsIn),
        .COUNT(ROWS)
    ) tile (
        .clk,
        .rst,
        .data_in_0(word),
        .data_in_0_valid(word_valid),
        .data_in_0_ready(word_ready),
        .data_out_0(weight),
        .data_out_0_valid(weight_valid),
        .data_out_0_ready(weight_ready)
    );
  end else begin : g_pass
    assign weight = word;
    assign weight_valid = word_valid;
    assign word_ready = weight_ready;
  end

  // The rows, once for every beat of results.
  logic [InWidth-1:0] vector;
  logic vector_valid, vector_ready;

  if (BeatsOut > 1) begin : g_repeat
    repeat_buffer #(
        .DATA_WIDTH(InWidth),
        .LENGTH(ROWS * BeatsIn),
        .COUNT(BeatsOut)
    ) repeats (
        .clk,
        .rst,
        .data_in_0,
        .data_in_0_valid,
        .data_in_0_ready,
        .data_out_0(vector),
        .data_out_0_valid(vector_valid),
        .data_out_0_ready(vector_ready)
    );
  end else begin : g_once
    skid_buffer #(
        .DATA_WIDTH(InWidth)
    ) skid (
        .clk,
        .rst,
        .data_in_0,
        .data_in_0_valid,
        .data_in_0_ready,
        .data_out_0(vector),
        .data_out_0_valid(vector_valid),
        .data_out_0_ready(vector_ready)
    );
  end

  // Both move together; the core wants the weight two cycles later.
  logic ready;
  logic [AddressWidth-1:0] unused_place;
  logic [OutIndexWidth-1:0] bias_address;
  logic [BiasWidth-1:0] bias;
  logic [OutWidth-1:0] result;
  logic result_valid, result_ready;

  assign vector_ready = ready && weight_valid;
  assign weight_ready = ready && vector_valid;
  always_ff @(posedge clk) {weight_2, weight_1} <= {weight_1, weight};

  bias_memory #(
      .HAS_BIAS(HAS_BIAS),
      .DATA_WIDTH(BiasWidth),
      .DEPTH(BeatsOut),
      .REGISTERED(1'b1),
      .FILE(BIAS_FILE)
  ) biases (
      .clk,
      .address(bias_address),
      .data(bias)
  );

  fixed_dot_core #(
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_PRECISION_1(DATA_IN_0_PRECISION_1),
      .DATA_IN_0_TENSOR_SIZE_DIM_0(DATA_IN_0_TENSOR_SIZE_DIM_0),
      .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
      .WEIGHT_PRECISION_0(WEIGHT_PRECISION_0),
      .WEIGHT_PRECISION_1(WEIGHT_PRECISION_1),
      .HAS_BIAS(HAS_BIAS),
      .BIAS_PRECISION_0(BIAS_PRECISION_0),
      .BIAS_PRECISION_1(BIAS_PRECISION_1),
      .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
      .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
      .DATA_OUT_0_TENSOR_SIZE_DIM_0(DATA_OUT_0_TENSOR_SIZE_DIM_0),
      .DATA_OUT_0_PARALLELISM_DIM_0(DATA_OUT_0_PARALLELISM_DIM_0),
      .ROWS(ROWS),
      .FLOOR(FLOOR),
      .RELU(RELU)
  ) core (
      .clk,
      .rst,
      .data_in_0(vector),
      .data_in_0_valid(vector_valid && weight_valid),
      .data_in_0_ready(ready),
      .weight_address(unused_place),  // the weights come by themselves
      .weight(weight_2),
      .bias_address,
      .bias,
      .data_out_0(result),
      .data_out_0_valid(result_valid),
      .data_out_0_ready(result_ready)
  );

  // A beat of results of all rows comes before the next one; they leave row by row.
  if (ROWS > 1 && BeatsOut > 1) begin : g_order
    swap_buffer #(
        .DATA_IN_0_PRECISION_0(OutWidth),
        .DATA_IN_0_PARALLELISM_DIM_0(1),
        .DATA_OUT_0_PARALLELISM_DIM_0(1),
        .ROWS(BeatsOut),
        .COLUMNS(ROWS),
        .TRANSPOSE(1'b0)
    ) order (
        .clk,
        .rst,
        .data_in_0(result),
        .data_in_0_valid(result_valid),
        .data_in_0_ready(result_ready),
        .data_out_0,
        .data_out_0_valid,
        .data_out_0_ready
    );
  end else begin : g_in_order
    assign data_out_0 = result;
    assign data_out_0_valid = result_valid;
    assign result_ready = data_out_0_ready;
  end
endmodule
