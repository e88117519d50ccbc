/// The sum, or with SUBTRACT the difference, of two streams of different fixed-point formats: exact, then requantised.
/// Two cycles of latency, one beat per cycle, both operands taken in the same cycle. ReLU or none.
/// Does not cut the ready path, and an operand's ready depends on the valid of the other one: where both come from one
/// fork, put a fifo into the shorter way. Is arithmetic.add in Python.
module fixed_add #(
    parameter int DATA_IN_0_PRECISION_0       = 8,
    parameter int DATA_IN_0_PRECISION_1       = 4,
    parameter int DATA_IN_1_PRECISION_0       = 8,
    parameter int DATA_IN_1_PRECISION_1       = 4,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 1,
    parameter int DATA_OUT_0_PRECISION_0      = 8,
    parameter int DATA_OUT_0_PRECISION_1      = 4,
    parameter bit SUBTRACT                    = 1'b0,
    parameter bit FLOOR                       = 1'b0,
    parameter bit RELU                        = 1'b0,
    localparam int InWidth                    = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int In1Width                   = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_1_PRECISION_0,
    localparam int OutWidth                   = DATA_IN_0_PARALLELISM_DIM_0 * DATA_OUT_0_PRECISION_0
) (
    input  logic                clk,
    input  logic                rst,
    input  logic [ InWidth-1:0] data_in_0,
    input  logic                data_in_0_valid,
    output logic                data_in_0_ready,
    input  logic [In1Width-1:0] data_in_1,
    input  logic                data_in_1_valid,
    output logic                data_in_1_ready,
    output logic [OutWidth-1:0] data_out_0,
    output logic                data_out_0_valid,
    input  logic                data_out_0_ready
);
  localparam int Fraction = (DATA_IN_0_PRECISION_1 > DATA_IN_1_PRECISION_1) ? DATA_IN_0_PRECISION_1 : DATA_IN_1_PRECISION_1;
  localparam int LeftShift = Fraction - DATA_IN_0_PRECISION_1;
  localparam int RightShift = Fraction - DATA_IN_1_PRECISION_1;
  localparam int LeftWidth = DATA_IN_0_PRECISION_0 + LeftShift;
  localparam int RightWidth = DATA_IN_1_PRECISION_0 + RightShift;
  localparam int Width = ((LeftWidth > RightWidth) ? LeftWidth : RightWidth) + 1;

  logic moves, valid, valid_1;
  assign moves = !data_out_0_valid || data_out_0_ready;

  stream_join #(
      .COUNT(2)
  ) join_0 (
      .data_in_0_valid({data_in_1_valid, data_in_0_valid}),
      .data_in_0_ready({data_in_1_ready, data_in_0_ready}),
      .data_out_0_valid(valid),
      .data_out_0_ready(moves)
  );

  always_ff @(posedge clk) begin
    if (rst) {data_out_0_valid, valid_1} <= '0;
    else if (moves) {data_out_0_valid, valid_1} <= {valid_1, valid};
  end

  for (genvar lane = 0; lane < DATA_IN_0_PARALLELISM_DIM_0; lane++) begin : g_lane
    logic signed [DATA_IN_0_PRECISION_0-1:0] left;
    logic signed [DATA_IN_1_PRECISION_0-1:0] right;
    logic signed [Width-1:0] exact;
    logic signed [DATA_OUT_0_PRECISION_0-1:0] requantised;
    assign left  = data_in_0[lane*DATA_IN_0_PRECISION_0+:DATA_IN_0_PRECISION_0];
    assign right = data_in_1[lane*DATA_IN_1_PRECISION_0+:DATA_IN_1_PRECISION_0];

    fixed_requantise #(
        .DATA_IN_0_PRECISION_0(Width),
        .DATA_IN_0_PRECISION_1(Fraction),
        .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
        .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
        .FLOOR(FLOOR),
        .RELU(RELU)
    ) requantise (
        .data_in_0 (exact),
        .data_out_0(requantised)
    );

    always_ff @(posedge clk) begin
      if (moves) begin
        if (SUBTRACT) exact <= (Width'(left) <<< LeftShift) - (Width'(right) <<< RightShift);
        else exact <= (Width'(left) <<< LeftShift) + (Width'(right) <<< RightShift);
        data_out_0[lane*DATA_OUT_0_PRECISION_0+:DATA_OUT_0_PRECISION_0] <= requantised;
      end
    end
  end
endmodule
