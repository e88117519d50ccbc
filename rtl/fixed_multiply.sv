/// The product of two streams, element by element: exact, then requantised.
/// Three cycles of latency, one beat per cycle, both operands taken in the same cycle. A multiplier a lane. ReLU or none.
/// With SERIAL it has no multipliers: a beat takes a cycle for each bit of the second operand, and one; two more of latency.
/// Does not cut the ready path, and an operand's ready depends on the valid of the other one: where both come from one
/// fork, put a fifo into the shorter way. Is arithmetic.multiply in Python.
module fixed_multiply #(
    parameter int DATA_IN_0_PRECISION_0       = 8,
    parameter int DATA_IN_0_PRECISION_1       = 4,
    parameter int DATA_IN_1_PRECISION_0       = 8,
    parameter int DATA_IN_1_PRECISION_1       = 4,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 1,
    parameter int DATA_OUT_0_PRECISION_0      = 8,
    parameter int DATA_OUT_0_PRECISION_1      = 4,
    parameter bit FLOOR                       = 1'b0,
    parameter bit RELU                        = 1'b0,
    parameter bit SERIAL                      = 1'b0,
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
  localparam int Fraction = DATA_IN_0_PRECISION_1 + DATA_IN_1_PRECISION_1;
  localparam int Width = DATA_IN_0_PRECISION_0 + DATA_IN_1_PRECISION_0;
  localparam int Shifted = Width - Fraction + DATA_OUT_0_PRECISION_1;
  localparam int RoundedWidth = ((Shifted > 1) ? Shifted : 1) + 1;

  logic moves, taken, valid, valid_1, valid_2;
  logic [DATA_IN_0_PARALLELISM_DIM_0*Width-1:0] exact;
  assign moves = !data_out_0_valid || data_out_0_ready;

  stream_join #(
      .COUNT(2)
  ) join_0 (
      .data_in_0_valid({data_in_1_valid, data_in_0_valid}),
      .data_in_0_ready({data_in_1_ready, data_in_0_ready}),
      .data_out_0_valid(valid),
      .data_out_0_ready(taken)
  );

  if (SERIAL) begin : g_serial
    logic unused_beside;
    serial_multiply #(
        .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
        .DATA_IN_1_PRECISION_0(DATA_IN_1_PRECISION_0),
        .LANES(DATA_IN_0_PARALLELISM_DIM_0)
    ) multiply (
        .clk,
        .rst,
        .data_in_0,
        .data_in_1,
        .beside(1'b0),
        .data_in_0_valid(valid),
        .data_in_0_ready(taken),
        .data_out_0(exact),
        .beside_out(unused_beside),
        .data_out_0_valid(valid_1),
        .data_out_0_ready(moves)
    );
  end else begin : g_at_once
    for (genvar lane = 0; lane < DATA_IN_0_PARALLELISM_DIM_0; lane++) begin : g_lane
      fixed_product #(
          .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
          .DATA_IN_1_PRECISION_0(DATA_IN_1_PRECISION_0),
          .BARE(1'b1)
      ) multiply (
          .clk,
          .moves,
          .data_in_0(data_in_0[lane*DATA_IN_0_PRECISION_0+:DATA_IN_0_PRECISION_0]),
          .data_in_1(data_in_1[lane*DATA_IN_1_PRECISION_0+:DATA_IN_1_PRECISION_0]),
          .product(exact[lane*Width+:Width])
      );
    end
    assign taken = moves;
    always_ff @(posedge clk) begin
      if (rst) valid_1 <= 1'b0;
      else if (moves) valid_1 <= valid;
    end
  end

  always_ff @(posedge clk) begin
    if (rst) {data_out_0_valid, valid_2} <= '0;
    else if (moves) {data_out_0_valid, valid_2} <= {valid_2, valid_1};
  end

  for (genvar lane = 0; lane < DATA_IN_0_PARALLELISM_DIM_0; lane++) begin : g_lane
    logic signed [RoundedWidth-1:0] rounded, rounded_1;
    logic signed [DATA_OUT_0_PRECISION_0-1:0] saturated;

    fixed_round #(
        .DATA_IN_0_PRECISION_0(Width),
        .DATA_IN_0_PRECISION_1(Fraction),
        .DATA_OUT_0_PRECISION_1(DATA_OUT_0_PRECISION_1),
        .FLOOR(FLOOR),
        .ROUNDED_WIDTH(RoundedWidth)
    ) rounds (
        .data_in_0(exact[lane*Width+:Width]),
        .rounded
    );
    fixed_saturate #(
        .DATA_IN_0_PRECISION_0(RoundedWidth),
        .DATA_OUT_0_PRECISION_0(DATA_OUT_0_PRECISION_0),
        .RELU(RELU)
    ) saturate (
        .data_in_0 (rounded_1),
        .data_out_0(saturated)
    );

    always_ff @(posedge clk) begin
      if (moves) begin
        rounded_1 <= rounded;
        data_out_0[lane*DATA_OUT_0_PRECISION_0+:DATA_OUT_0_PRECISION_0] <= saturated;
      end
    end
  end
endmodule
