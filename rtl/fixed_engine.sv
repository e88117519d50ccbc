/// Multipliers that several layers use in turn: COUNT clients (shared_linear) send bursts of beats, each a dot product.
/// A client with a burst requests; while no burst is under way the highest one that requests is granted, and keeps the
/// multipliers until its beat with `last` has moved. One beat a cycle, without a gap between bursts of any clients.
/// `data` and `weight` come two cycles after the beat moved. PAR_IN * PAR_OUT multipliers (the two PARALLELISM parameters).
/// `total` holds PAR_OUT sums 6 + $clog2(PAR_IN) cycles after the last beat moved; the clients count these cycles.
/// Never stands still: a client that requests has all beats of its burst, and room for the result.
module fixed_engine #(
    parameter int COUNT                        = 2,
    parameter int DATA_IN_0_PRECISION_0        = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0  = 4,
    parameter int WEIGHT_PRECISION_0           = 8,
    parameter int DATA_OUT_0_PARALLELISM_DIM_0 = 2,
    parameter int SUM_WIDTH                    = 24,
    localparam int Beat                        = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int Row                         = DATA_IN_0_PARALLELISM_DIM_0 * WEIGHT_PRECISION_0,
    localparam int Rows                        = DATA_OUT_0_PARALLELISM_DIM_0 * Row
) (
    input  logic                                              clk,
    input  logic                                              rst,
    input  logic [                                 COUNT-1:0] request,
    input  logic [                                 COUNT-1:0] last,
    output logic [                                 COUNT-1:0] grant,
    input  logic [                            COUNT*Beat-1:0] data,
    input  logic [                            COUNT*Rows-1:0] weight,
    output logic [DATA_OUT_0_PARALLELISM_DIM_0*SUM_WIDTH-1:0] total
);
  localparam int Levels = $clog2(DATA_IN_0_PARALLELISM_DIM_0);
  localparam int ProductWidth = DATA_IN_0_PRECISION_0 + WEIGHT_PRECISION_0;
  localparam int Summed = Levels + 2;

  if (SUM_WIDTH < ProductWidth + Levels) begin : g_check
    $error("fixed_engine: SUM_WIDTH is %0d; sums have at least %0d bits", SUM_WIDTH, ProductWidth + Levels);
  end

  logic busy;
  logic [COUNT-1:0] owner, picked, moves, moves_1, moves_2;

  always_comb begin
    picked = '0;
    for (int client = 0; client < COUNT; client++) if (request[client]) picked = COUNT'(1) << client;
  end

  assign grant = busy ? owner : picked;
  assign moves = grant & request;

  always_ff @(posedge clk) begin
    if (rst) busy <= 1'b0;
    else if (moves != '0) busy <= (moves & last) == '0;
  end
  always_ff @(posedge clk) if (!busy) owner <= picked;

  // Flags travel beside the data: with it, what was selected, the factors, the products, and each level of the tree.
  logic valid_1, first_1, valid_2, first_2;
  logic [Summed:0] valid_at, first_at;

  always_ff @(posedge clk) begin
    if (rst) {moves_2, moves_1, valid_2, valid_1, valid_at} <= '0;
    else begin
      {moves_2, moves_1} <= {moves_1, moves};
      {valid_2, valid_1} <= {valid_1, moves != '0};
      valid_at <= {valid_at[Summed-1:0], valid_2};
    end
  end
  always_ff @(posedge clk) begin
    {first_2, first_1} <= {first_1, !busy};
    first_at <= {first_at[Summed-1:0], first_2};
  end

  // The granted client's beat has registers of its own: it has a long way to all multipliers.
  logic [Beat-1:0] selected, beat;
  logic [Rows-1:0] selected_rows, rows;
  always_comb begin
    selected = '0;
    selected_rows = '0;
    for (int client = 0; client < COUNT; client++) begin
      selected |= data[client*Beat+:Beat] & {Beat{moves_2[client]}};
      selected_rows |= weight[client*Rows+:Rows] & {Rows{moves_2[client]}};
    end
  end
  always_ff @(posedge clk) {beat, rows} <= {selected, selected_rows};

  for (genvar lane = 0; lane < DATA_OUT_0_PARALLELISM_DIM_0; lane++) begin : g_lane
    logic [DATA_IN_0_PARALLELISM_DIM_0*ProductWidth-1:0] products;
    logic signed [ProductWidth+Levels-1:0] sum;
    logic signed [SUM_WIDTH-1:0] held;

    for (genvar at = 0; at < DATA_IN_0_PARALLELISM_DIM_0; at++) begin : g_product
      fixed_product #(
          .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
          .DATA_IN_1_PRECISION_0(WEIGHT_PRECISION_0)
      ) multiply (
          .clk,
          .moves(1'b1),
          .data_in_0(beat[at*DATA_IN_0_PRECISION_0+:DATA_IN_0_PRECISION_0]),
          .data_in_1(rows[lane*Row+at*WEIGHT_PRECISION_0+:WEIGHT_PRECISION_0]),
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

    always_ff @(posedge clk) begin
      if (valid_at[Summed]) held <= (first_at[Summed] ? '0 : held) + SUM_WIDTH'(sum);
    end
    assign total[lane*SUM_WIDTH+:SUM_WIDTH] = held;
  end
endmodule
