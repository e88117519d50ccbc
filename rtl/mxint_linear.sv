/// fixed_linear for data that mxint_cast has rounded: multipliers of mantissas. The numbers of a beat, which are of one block, become
/// integers of MANTISSA_WIDTH bits and one exponent; the weights of a beat do so in WEIGHT_FILE, each lane of results with an
/// exponent of its own. Products are added as integers, shifted by both exponents, and accumulated exactly.
/// Sums, bias and rounding, rate and memory files are those of fixed_linear, with WEIGHT_EXPONENTS; 3 cycles more of latency. Cuts
/// both paths of the stream. Is arithmetic.linear in Python, on the same integers.
/// Does not take a beat with numbers of several blocks, nor other numbers than multiples of a power of two with mantissas of
/// MANTISSA_WIDTH bits.
module mxint_linear #(
    parameter int DATA_IN_0_PRECISION_0        = 17,
    parameter int DATA_IN_0_PRECISION_1        = 8,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0  = 16,
    parameter int DATA_IN_0_PARALLELISM_DIM_0  = 4,
    parameter int MANTISSA_WIDTH               = 8,
    parameter int WEIGHT_PRECISION_0           = 8,
    parameter int WEIGHT_PRECISION_1           = 6,
    parameter int WEIGHT_EXPONENTS             = 3,
    parameter bit HAS_BIAS                     = 1'b1,
    parameter int BIAS_PRECISION_0             = 16,
    parameter int BIAS_PRECISION_1             = 10,
    parameter int DATA_OUT_0_PRECISION_0       = 8,
    parameter int DATA_OUT_0_PRECISION_1       = 4,
    parameter int DATA_OUT_0_TENSOR_SIZE_DIM_0 = 8,
    parameter int DATA_OUT_0_PARALLELISM_DIM_0 = 2,
    parameter bit FLOOR                        = 1'b0,
    parameter bit RELU                         = 1'b0,
    parameter     WEIGHT_FILE                  = "weight.mem",
    parameter     BIAS_FILE                    = "bias.mem",
    localparam int InWidth                     = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int OutWidth                    = DATA_OUT_0_PARALLELISM_DIM_0 * DATA_OUT_0_PRECISION_0
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
  localparam int Most = Width - MANTISSA_WIDTH;
  localparam int ExponentWidth = $clog2(Most + 1);

  if (MANTISSA_WIDTH < 2 || MANTISSA_WIDTH >= Width) begin : g_check
    $error("mxint_linear: mantissas of %0d bits have 2 to %0d bits, not %0d", Width, Width - 1, MANTISSA_WIDTH);
  end

  // The bits in which any number differs from its sign; the exponent is that of the highest one that a mantissa lacks.
  logic [Width-1:0] differs;
  logic [ExponentWidth-1:0] exponent, exponent_1, exponent_2;
  always_comb begin
    differs = '0;
    for (int lane = 0; lane < Lanes; lane++) begin
      differs = differs | (data_in_0[lane*Width+:Width] ^ {Width{data_in_0[lane*Width+Width-1]}});
    end
    exponent = '0;
    for (int at = 1; at <= Most; at++) if (differs[MANTISSA_WIDTH-2+at]) exponent = ExponentWidth'(at);
  end

  // Two registers that move together: the exponent, and the mantissas.
  logic [InWidth-1:0] beat_1;
  logic [Lanes*MANTISSA_WIDTH-1:0] mantissas;
  logic valid_1, valid_2, advance, ready;

  assign advance = !valid_2 || ready;
  assign data_in_0_ready = advance;
  always_ff @(posedge clk) begin
    if (rst) {valid_2, valid_1} <= '0;
    else if (advance) {valid_2, valid_1} <= {valid_1, data_in_0_valid};
  end
  always_ff @(posedge clk) begin
    if (advance) begin
      beat_1     <= data_in_0;
      exponent_1 <= exponent;
      exponent_2 <= exponent_1;
    end
  end
  for (genvar lane = 0; lane < Lanes; lane++) begin : g_lane
    logic signed [Width-1:0] number;
    assign number = beat_1[lane*Width+:Width];
    always_ff @(posedge clk) begin
      if (advance) mantissas[lane*MANTISSA_WIDTH+:MANTISSA_WIDTH] <= MANTISSA_WIDTH'(number >>> exponent_1);
    end
  end

  fixed_linear #(
      .DATA_IN_0_PRECISION_0(MANTISSA_WIDTH),
      .DATA_IN_0_PRECISION_1(DATA_IN_0_PRECISION_1),
      .DATA_IN_0_EXPONENTS(Most),
      .DATA_IN_0_TENSOR_SIZE_DIM_0(DATA_IN_0_TENSOR_SIZE_DIM_0),
      .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
      .WEIGHT_PRECISION_0(WEIGHT_PRECISION_0),
      .WEIGHT_PRECISION_1(WEIGHT_PRECISION_1),
      .WEIGHT_EXPONENTS(WEIGHT_EXPONENTS),
      .HAS_BIAS(HAS_BIAS),
      .BIAS_PRECISION_0(BIAS_PRECISION_0),
      .BIAS_PRECISION_1(BIAS_PRECISION_1),
      .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
      .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
      .DATA_OUT_0_TENSOR_SIZE_DIM_0(DATA_OUT_0_TENSOR_SIZE_DIM_0),
      .DATA_OUT_0_PARALLELISM_DIM_0(DATA_OUT_0_PARALLELISM_DIM_0),
      .FLOOR(FLOOR),
      .RELU(RELU),
      .WEIGHT_FILE(WEIGHT_FILE),
      .BIAS_FILE(BIAS_FILE)
  ) linear (
      .clk,
      .rst,
      .data_in_0({exponent_2, mantissas}),
      .data_in_0_valid(valid_2),
      .data_in_0_ready(ready),
      .data_out_0,
      .data_out_0_valid,
      .data_out_0_ready
  );

  // Mantissas hold the lowest bits.
  logic unused_bits;
  assign unused_bits = &{1'b0, differs};
endmodule
