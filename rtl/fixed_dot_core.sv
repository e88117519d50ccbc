/// Dot products of a stream with weights from outside: the sequence, the places for results and the arithmetic of
/// fixed_linear, fixed_conv2d and fixed_matmul. A vector arrives again for every beat of results, OUT / PAR_OUT times.
/// PAR_IN * PAR_OUT multipliers (the two PARALLELISM parameters), one beat per cycle.
/// 8 + $clog2(PAR_IN) cycles of latency from the last beat of a repetition to its result; 1 more with EXPONENTS, which are those
/// of fixed_mac.
/// `weight_address` counts beats of input, then of output; `weight` is wanted two cycles later, and the bias likewise.
/// With ROWS so many vectors come one after the other for each beat of results: `bias_address` waits for all of them, and the
/// weights have to repeat themselves.
/// With SLICES, so many vectors come at once, each for a part of the lanes of results: those of fixed_mac.
/// Does not take sizes that PAR_IN and PAR_OUT do not divide. Does not cut the path of ready: one gate is in it.
module fixed_dot_core #(
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
    parameter int DATA_OUT_0_TENSOR_SIZE_DIM_0 = 8,
    parameter int DATA_OUT_0_PARALLELISM_DIM_0 = 2,
    parameter int ROWS                         = 1,
    parameter bit FLOOR                        = 1'b0,
    parameter bit RELU                         = 1'b0,
    localparam int InWidth                     = SLICES * DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0 + $clog2(DATA_IN_0_EXPONENTS + 1),
    localparam int OutWidth                    = DATA_OUT_0_PARALLELISM_DIM_0 * DATA_OUT_0_PRECISION_0,
    localparam int BeatsIn                     = DATA_IN_0_TENSOR_SIZE_DIM_0 / DATA_IN_0_PARALLELISM_DIM_0,
    localparam int BeatsOut                    = DATA_OUT_0_TENSOR_SIZE_DIM_0 / DATA_OUT_0_PARALLELISM_DIM_0,
    localparam int AddressWidth                = (BeatsIn * BeatsOut > 1) ? $clog2(BeatsIn * BeatsOut) : 1,
    localparam int OutIndexWidth               = (BeatsOut > 1) ? $clog2(BeatsOut) : 1,
    localparam int RowWidth                    = DATA_IN_0_PARALLELISM_DIM_0 * WEIGHT_PRECISION_0 + $clog2(WEIGHT_EXPONENTS + 1),
    localparam int WeightWidth                 = DATA_OUT_0_PARALLELISM_DIM_0 * RowWidth,
    localparam int BiasWidth                   = DATA_OUT_0_PARALLELISM_DIM_0 * BIAS_PRECISION_0
) (
    input  logic                clk,
    input  logic                rst,
    input  logic [ InWidth-1:0] data_in_0,
    input  logic                data_in_0_valid,
    output logic                data_in_0_ready,
    output logic [AddressWidth-1:0] weight_address,
    input  logic [WeightWidth-1:0] weight,
    output logic [OutIndexWidth-1:0] bias_address,
    input  logic [BiasWidth-1:0] bias,
    output logic [OutWidth-1:0] data_out_0,
    output logic                data_out_0_valid,
    input  logic                data_out_0_ready
);
  if (DATA_IN_0_TENSOR_SIZE_DIM_0 % DATA_IN_0_PARALLELISM_DIM_0 != 0) begin : g_check_in
    $error("fixed_dot_core: %0d inputs are no multiple of %0d a beat", DATA_IN_0_TENSOR_SIZE_DIM_0,
           DATA_IN_0_PARALLELISM_DIM_0);
  end
  if (DATA_OUT_0_TENSOR_SIZE_DIM_0 % DATA_OUT_0_PARALLELISM_DIM_0 != 0) begin : g_check_out
    $error("fixed_dot_core: %0d outputs are no multiple of %0d a beat", DATA_OUT_0_TENSOR_SIZE_DIM_0,
           DATA_OUT_0_PARALLELISM_DIM_0);
  end

  localparam int IndexWidth = (BeatsIn > 1) ? $clog2(BeatsIn) : 1;
  localparam int Levels = $clog2(DATA_IN_0_PARALLELISM_DIM_0);
  // A result's place in the output fifo is kept from its last step on, until it leaves Delay cycles later at the earliest.
  localparam int Aligned = (DATA_IN_0_EXPONENTS + WEIGHT_EXPONENTS > 0) ? 1 : 0;
  localparam int Delay = 9 + Levels + Aligned;
  localparam int Places = (Delay + BeatsIn - 1) / BeatsIn + 1;
  localparam int PlacesWidth = $clog2(Places + 1);
  localparam int LastAt = Levels + 1 + Aligned;

  // One step a cycle, as long as there is a place for what it completes.
  logic [  IndexWidth-1:0] index;
  logic [ PlacesWidth-1:0] places;
  // `last` and `full` are known a cycle before: ready is one gate, because long paths begin with it.
  logic last, full, leaves, step;

  assign data_in_0_ready = !last || !full;
  assign step = data_in_0_valid && data_in_0_ready;
  assign leaves = data_out_0_valid && data_out_0_ready;

  always_ff @(posedge clk) begin
    if (rst) begin
      index   <= '0;
      weight_address <= '0;
      places  <= PlacesWidth'(Places);
      last    <= BeatsIn == 1;
      full    <= 1'b0;
    end else begin
      if (step) begin
        index   <= last ? '0 : index + 1'b1;
        last    <= BeatsIn == 1 || (!last && index == IndexWidth'(BeatsIn - 2));
        weight_address <= (weight_address == AddressWidth'(BeatsIn * BeatsOut - 1)) ? '0 : weight_address + 1'b1;
      end
      if ((step && last) != leaves) begin
        places <= leaves ? places + 1'b1 : places - 1'b1;
        full   <= !leaves && places == PlacesWidth'(1);
      end
    end
  end

  // The weights come two cycles after their weight_address; data and flags wait for them.
  logic [InWidth-1:0] vector_1, vector_2;
  logic valid_1, valid_2, first_1, first_2;
  logic [LastAt:0] last_at;

  always_ff @(posedge clk) begin
    if (rst) {valid_2, valid_1, last_at} <= '0;
    else begin
      {valid_2, valid_1} <= {valid_1, step};
      last_at <= {last_at[LastAt-1:0], step && last};
    end
  end

  always_ff @(posedge clk) begin
    {first_2, first_1}   <= {first_1, index == '0};
    {vector_2, vector_1} <= {vector_1, data_in_0};
  end

  // The bias is wanted Levels + 4 cycles after the first step of its sum, one later with exponents.
  logic last_row;
  loop_counter #(.COUNT(ROWS)) rows (.clk, .rst, .step(last_at[LastAt]), .last(last_row));

  always_ff @(posedge clk) begin
    if (rst) bias_address <= '0;
    else if (last_at[LastAt] && last_row) begin
      bias_address <= (bias_address == OutIndexWidth'(BeatsOut - 1)) ? '0 : bias_address + 1'b1;
    end
  end

  logic [OutWidth-1:0] result;
  logic result_valid;

  fixed_mac #(
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_PRECISION_1(DATA_IN_0_PRECISION_1),
      .DATA_IN_0_EXPONENTS(DATA_IN_0_EXPONENTS),
      .DATA_IN_0_TENSOR_SIZE_DIM_0(DATA_IN_0_TENSOR_SIZE_DIM_0),
      .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
      .SLICES(SLICES),
      .WEIGHT_PRECISION_0(WEIGHT_PRECISION_0),
      .WEIGHT_PRECISION_1(WEIGHT_PRECISION_1),
      .WEIGHT_EXPONENTS(WEIGHT_EXPONENTS),
      .HAS_BIAS(HAS_BIAS),
      .BIAS_PRECISION_0(BIAS_PRECISION_0),
      .BIAS_PRECISION_1(BIAS_PRECISION_1),
      .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
      .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
      .DATA_OUT_0_PARALLELISM_DIM_0(DATA_OUT_0_PARALLELISM_DIM_0),
      .FLOOR(FLOOR),
      .RELU(RELU)
  ) mac (
      .clk,
      .rst,
      .data(vector_2),
      .weight,
      .valid(valid_2),
      .first(first_2),
      .last(last_at[1]),
      .bias,
      .result,
      .result_valid
  );

  logic unused_ready;  // `places` has seen to it
  fifo #(
      .DATA_WIDTH(OutWidth),
      .DEPTH(Places)
  ) results (
      .clk,
      .rst,
      .data_in_0(result),
      .data_in_0_valid(result_valid),
      .data_in_0_ready(unused_ready),
      .data_out_0,
      .data_out_0_valid,
      .data_out_0_ready
  );
endmodule
