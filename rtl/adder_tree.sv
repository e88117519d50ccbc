/// Sum COUNT signed numbers, exactly, two by two with a register behind every level.
/// $clog2(COUNT) cycles of latency, one sum per cycle. No handshake: it never stands still.
module adder_tree #(
    parameter int DATA_WIDTH = 16,
    parameter int COUNT = 4,
    localparam int Levels = $clog2(COUNT)
) (
    input  logic                                clk,
    input  logic        [ COUNT*DATA_WIDTH-1:0] data,
    output logic signed [DATA_WIDTH+Levels-1:0] sum
);
  for (genvar level = 0; level <= Levels; level++) begin : g_level
    localparam int Width = DATA_WIDTH + level;
    localparam int Numbers = (COUNT + (1 << level) - 1) >> level;
    logic [Numbers*Width-1:0] values;

    if (level == 0) begin : g_leaves
      assign values = data;
    end else begin : g_sums
      localparam int Below = (COUNT + (1 << (level - 1)) - 1) >> (level - 1);
      for (genvar at = 0; at < Numbers; at++) begin : g_number
        logic signed [Width-2:0] left;
        assign left = g_level[level-1].values[2*at*(Width-1)+:Width-1];
        if (2 * at + 1 < Below) begin : g_pair
          logic signed [Width-2:0] right;
          assign right = g_level[level-1].values[(2*at+1)*(Width-1)+:Width-1];
          always_ff @(posedge clk) values[at*Width+:Width] <= Width'(left) + Width'(right);
        end else begin : g_single
          always_ff @(posedge clk) values[at*Width+:Width] <= Width'(left);
        end
      end
    end
  end

  assign sum = g_level[Levels].values;

  if (Levels == 0) begin : g_wires
    logic unused_clock;
    assign unused_clock = &{1'b0, clk};
  end
endmodule
