/// The state of a GRU or an LSTM and its gates, around a layer of the last result that is elsewhere: what fixed_recurrent
/// and shared_recurrent have in common. data_out_1 is the last result, HIDDEN_PARALLELISM_DIM_0 elements a beat, zeros
/// before a sequence; data_in_1 is that layer's result for it, GATES_PARALLELISM_DIM_0 of the gates a beat, those of a
/// unit side by side as in data_in_0, which is what the input adds.
/// A recurrent_cell works on RESULT units at once (DATA_OUT_0_PARALLELISM_DIM_0), and gives its latency. Does not cut the
/// ready path.
module recurrent_loop #(
    parameter bit LSTM                         = 1'b0,
    parameter bit SERIAL                       = 1'b0,
    parameter int DATA_IN_0_PRECISION_0        = 16,
    parameter int DATA_IN_0_PRECISION_1        = 11,
    parameter int HIDDEN_PRECISION_0           = 8,
    parameter int HIDDEN_PRECISION_1           = 7,
    parameter int HIDDEN_PARALLELISM_DIM_0     = 2,
    parameter int GATES_PARALLELISM_DIM_0      = 3,
    parameter int ARGUMENT_WIDTH               = 11,
    parameter int CELL_PRECISION_0             = 16,
    parameter int CELL_PRECISION_1             = 11,
    parameter int DATA_OUT_0_PRECISION_0       = 16,
    parameter int DATA_OUT_0_PRECISION_1       = 14,
    parameter int DATA_OUT_0_TENSOR_SIZE_DIM_0 = 4,
    parameter int DATA_OUT_0_TENSOR_SIZE_DIM_1 = 3,
    parameter int DATA_OUT_0_PARALLELISM_DIM_0 = 1,
    parameter     SIGMOID_FILE                 = "sigmoid.mem",
    parameter     TANH_FILE                    = "tanh.mem",
    localparam int Gates                       = LSTM ? 4 : 3,
    localparam int InWidth                     = Gates * DATA_OUT_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int Products                    = GATES_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int Vector                      = HIDDEN_PARALLELISM_DIM_0 * HIDDEN_PRECISION_0,
    localparam int OutWidth                    = DATA_OUT_0_PARALLELISM_DIM_0 * DATA_OUT_0_PRECISION_0
) (
    input  logic                clk,
    input  logic                rst,
    input  logic [ InWidth-1:0] data_in_0,
    input  logic                data_in_0_valid,
    output logic                data_in_0_ready,
    input  logic [Products-1:0] data_in_1,
    input  logic                data_in_1_valid,
    output logic                data_in_1_ready,
    output logic [OutWidth-1:0] data_out_0,
    output logic                data_out_0_valid,
    input  logic                data_out_0_ready,
    output logic [  Vector-1:0] data_out_1,
    output logic                data_out_1_valid,
    input  logic                data_out_1_ready
);
  localparam int Beats = DATA_OUT_0_TENSOR_SIZE_DIM_0 / HIDDEN_PARALLELISM_DIM_0;
  localparam int Lanes = DATA_OUT_0_PARALLELISM_DIM_0;

  // The last result, in the format in which it is multiplied.
  logic [Lanes*HIDDEN_PRECISION_0-1:0] hidden;
  logic hidden_valid, hidden_ready;
  logic [Vector-1:0] back;
  logic back_valid, back_ready;

  for (genvar lane = 0; lane < Lanes; lane++) begin : g_lane
    fixed_requantise #(
        .DATA_IN_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
        .DATA_IN_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
        .DATA_OUT_0_PRECISION_0(HIDDEN_PRECISION_0),
        .DATA_OUT_0_PRECISION_1(HIDDEN_PRECISION_1)
    ) requantise (
        .data_in_0 (data_out_0[lane*DATA_OUT_0_PRECISION_0+:DATA_OUT_0_PRECISION_0]),
        .data_out_0(hidden[lane*HIDDEN_PRECISION_0+:HIDDEN_PRECISION_0])
    );
  end

  width_converter #(
      .DATA_IN_0_PRECISION_0(HIDDEN_PRECISION_0),
      .DATA_IN_0_PARALLELISM_DIM_0(Lanes),
      .DATA_OUT_0_PARALLELISM_DIM_0(HIDDEN_PARALLELISM_DIM_0)
  ) to_vectors (
      .clk,
      .rst,
      .data_in_0(hidden),
      .data_in_0_valid(hidden_valid),
      .data_in_0_ready(hidden_ready),
      .data_out_0(back),
      .data_out_0_valid(back_valid),
      .data_out_0_ready(back_ready)
  );

  // A vector of zeros after reset; the results of a sequence's last step are the zeros of the next one.
  logic zeros, last_beat, last_step;

  loop_counter #(
      .COUNT(Beats)
  ) beats (
      .clk,
      .rst,
      .step(data_out_1_valid && data_out_1_ready),
      .last(last_beat)
  );
  loop_counter #(
      .COUNT(DATA_OUT_0_TENSOR_SIZE_DIM_1)
  ) steps (
      .clk,
      .rst,
      .step(data_out_1_valid && data_out_1_ready && last_beat && !zeros),
      .last(last_step)
  );

  always_ff @(posedge clk) begin
    if (rst) zeros <= 1'b1;
    else if (data_out_1_ready && last_beat) zeros <= 1'b0;
  end

  assign data_out_1 = (zeros || last_step) ? '0 : back;
  assign data_out_1_valid = zeros || back_valid;
  assign back_ready = !zeros && data_out_1_ready;

  logic [InWidth-1:0] gates;
  logic gates_valid, gates_ready;

  width_converter #(
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_PARALLELISM_DIM_0(GATES_PARALLELISM_DIM_0),
      .DATA_OUT_0_PARALLELISM_DIM_0(Gates * Lanes)
  ) to_units (
      .clk,
      .rst,
      .data_in_0(data_in_1),
      .data_in_0_valid(data_in_1_valid),
      .data_in_0_ready(data_in_1_ready),
      .data_out_0(gates),
      .data_out_0_valid(gates_valid),
      .data_out_0_ready(gates_ready)
  );

  logic result_valid, result_ready;

  recurrent_cell #(
      .LSTM(LSTM),
      .SERIAL(SERIAL),
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_PRECISION_1(DATA_IN_0_PRECISION_1),
      .ARGUMENT_WIDTH(ARGUMENT_WIDTH),
      .CELL_PRECISION_0(CELL_PRECISION_0),
      .CELL_PRECISION_1(CELL_PRECISION_1),
      .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
      .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
      .DATA_OUT_0_TENSOR_SIZE_DIM_0(DATA_OUT_0_TENSOR_SIZE_DIM_0),
      .DATA_OUT_0_TENSOR_SIZE_DIM_1(DATA_OUT_0_TENSOR_SIZE_DIM_1),
      .DATA_OUT_0_PARALLELISM_DIM_0(Lanes),
      .SIGMOID_FILE(SIGMOID_FILE),
      .TANH_FILE(TANH_FILE)
  ) units (
      .clk,
      .rst,
      .data_in_0,
      .data_in_0_valid,
      .data_in_0_ready,
      .data_in_1(gates),
      .data_in_1_valid(gates_valid),
      .data_in_1_ready(gates_ready),
      .data_out_0,
      .data_out_0_valid(result_valid),
      .data_out_0_ready(result_ready)
  );

  stream_fork #(
      .COUNT(2)
  ) fork_0 (
      .clk,
      .rst,
      .data_in_0_valid (result_valid),
      .data_in_0_ready (result_ready),
      .data_out_0_valid({hidden_valid, data_out_0_valid}),
      .data_out_0_ready({hidden_ready, data_out_0_ready})
  );
endmodule
