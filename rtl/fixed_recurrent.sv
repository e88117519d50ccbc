/// A GRU, or with LSTM an LSTM, of one layer and direction over sequences of SIZE_DIM_1 steps, from a state of zeros.
/// data_in_0 is what the input adds to the gates (a fixed_linear of its own), the gates of a unit side by side; the rows
/// of the weights for the last result, and the biases, are in the same order. The state stays here.
/// A recurrent_cell works on RESULT units at once (DATA_OUT_0_PARALLELISM_DIM_0), and PAR_IN * PAR_OUT multipliers
/// (HIDDEN_ and GATES_PARALLELISM_DIM_0) of a fixed_linear on the last result. A step begins when the one before is
/// whole: it takes that layer's cycles for a vector, no less than 3 a unit of a lane (4 with LSTM), and the latency of
/// both. With SERIAL the cell has no multipliers, and takes its latency for each unit of a lane. Does not cut the ready
/// path. Is arithmetic.recurrent in Python.
/// Does not take sizes that their lanes do not divide, nor lanes of gates that are neither whole units nor a part of one.
module fixed_recurrent #(
    parameter bit LSTM                         = 1'b0,
    parameter bit SERIAL                       = 1'b0,
    parameter int DATA_IN_0_PRECISION_0        = 16,
    parameter int DATA_IN_0_PRECISION_1        = 11,
    parameter int HIDDEN_PRECISION_0           = 8,
    parameter int HIDDEN_PRECISION_1           = 7,
    parameter int HIDDEN_PARALLELISM_DIM_0     = 2,
    parameter int GATES_PARALLELISM_DIM_0      = 3,
    parameter int WEIGHT_PRECISION_0           = 8,
    parameter int WEIGHT_PRECISION_1           = 6,
    parameter bit HAS_BIAS                     = 1'b1,
    parameter int BIAS_PRECISION_0             = 16,
    parameter int BIAS_PRECISION_1             = 10,
    parameter int ARGUMENT_WIDTH               = 11,
    parameter int CELL_PRECISION_0             = 16,
    parameter int CELL_PRECISION_1             = 11,
    parameter int DATA_OUT_0_PRECISION_0       = 16,
    parameter int DATA_OUT_0_PRECISION_1       = 14,
    parameter int DATA_OUT_0_TENSOR_SIZE_DIM_0 = 4,
    parameter int DATA_OUT_0_TENSOR_SIZE_DIM_1 = 3,
    parameter int DATA_OUT_0_PARALLELISM_DIM_0 = 1,
    parameter     WEIGHT_FILE                  = "weight.mem",
    parameter     BIAS_FILE                    = "bias.mem",
    parameter     SIGMOID_FILE                 = "sigmoid.mem",
    parameter     TANH_FILE                    = "tanh.mem",
    localparam int Gates                       = LSTM ? 4 : 3,
    localparam int InWidth                     = Gates * DATA_OUT_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
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
  logic [HIDDEN_PARALLELISM_DIM_0*HIDDEN_PRECISION_0-1:0] vector;
  logic [GATES_PARALLELISM_DIM_0*DATA_IN_0_PRECISION_0-1:0] some;
  logic vector_valid, vector_ready, some_valid, some_ready;

  recurrent_loop #(
      .LSTM(LSTM),
      .SERIAL(SERIAL),
      .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_IN_0_PRECISION_1(DATA_IN_0_PRECISION_1),
      .HIDDEN_PRECISION_0(HIDDEN_PRECISION_0),
      .HIDDEN_PRECISION_1(HIDDEN_PRECISION_1),
      .HIDDEN_PARALLELISM_DIM_0(HIDDEN_PARALLELISM_DIM_0),
      .GATES_PARALLELISM_DIM_0(GATES_PARALLELISM_DIM_0),
      .ARGUMENT_WIDTH(ARGUMENT_WIDTH),
      .CELL_PRECISION_0(CELL_PRECISION_0),
      .CELL_PRECISION_1(CELL_PRECISION_1),
      .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
      .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
      .DATA_OUT_0_TENSOR_SIZE_DIM_0(DATA_OUT_0_TENSOR_SIZE_DIM_0),
      .DATA_OUT_0_TENSOR_SIZE_DIM_1(DATA_OUT_0_TENSOR_SIZE_DIM_1),
      .DATA_OUT_0_PARALLELISM_DIM_0(DATA_OUT_0_PARALLELISM_DIM_0),
      .SIGMOID_FILE(SIGMOID_FILE),
      .TANH_FILE(TANH_FILE)
  ) loop (
      .clk,
      .rst,
      .data_in_0,
      .data_in_0_valid,
      .data_in_0_ready,
      .data_in_1(some),
      .data_in_1_valid(some_valid),
      .data_in_1_ready(some_ready),
      .data_out_0,
      .data_out_0_valid,
      .data_out_0_ready,
      .data_out_1(vector),
      .data_out_1_valid(vector_valid),
      .data_out_1_ready(vector_ready)
  );

  fixed_linear #(
      .DATA_IN_0_PRECISION_0(HIDDEN_PRECISION_0),
      .DATA_IN_0_PRECISION_1(HIDDEN_PRECISION_1),
      .DATA_IN_0_TENSOR_SIZE_DIM_0(DATA_OUT_0_TENSOR_SIZE_DIM_0),
      .DATA_IN_0_PARALLELISM_DIM_0(HIDDEN_PARALLELISM_DIM_0),
      .WEIGHT_PRECISION_0(WEIGHT_PRECISION_0),
      .WEIGHT_PRECISION_1(WEIGHT_PRECISION_1),
      .HAS_BIAS(HAS_BIAS),
      .BIAS_PRECISION_0(BIAS_PRECISION_0),
      .BIAS_PRECISION_1(BIAS_PRECISION_1),
      .DATA_OUT_0_PRECISION_0(DATA_IN_0_PRECISION_0),
      .DATA_OUT_0_PRECISION_1(DATA_IN_0_PRECISION_1),
      .DATA_OUT_0_TENSOR_SIZE_DIM_0(Gates * DATA_OUT_0_TENSOR_SIZE_DIM_0),
      .DATA_OUT_0_PARALLELISM_DIM_0(GATES_PARALLELISM_DIM_0),
      .WEIGHT_FILE(WEIGHT_FILE),
      .BIAS_FILE(BIAS_FILE)
  ) products (
      .clk,
      .rst,
      .data_in_0(vector),
      .data_in_0_valid(vector_valid),
      .data_in_0_ready(vector_ready),
      .data_out_0(some),
      .data_out_0_valid(some_valid),
      .data_out_0_ready(some_ready)
  );
endmodule
