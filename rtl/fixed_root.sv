/// The root of a mean: floor(sqrt((sum + EPSILON) * 4**FRACTION / COUNT)), so FRACTION bits after the point, bit by bit
/// with additions alone. AT_ONCE numbers at a time, in turn; ROOT_WIDTH + 1 cycles of latency.
/// Does not take a sum that is negative, and no root of more than ROOT_WIDTH bits.
module fixed_root #(
    parameter int SUM_WIDTH = 20,
    parameter int COUNT = 8,
    parameter int FRACTION = 4,
    parameter logic [63:0] EPSILON = 64'd1,
    parameter int ROOT_WIDTH = 14,
    parameter int AT_ONCE = 1
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic [ SUM_WIDTH-1:0] sum,
    input  logic                  sum_valid,
    output logic                  sum_ready,
    output logic [ROOT_WIDTH-1:0] root,
    output logic                  root_valid,
    input  logic                  root_ready
);
  // All of this is COUNT times what the bitwise root of (sum + EPSILON) * 4**FRACTION / COUNT would hold.
  localparam int Width = 2 * ROOT_WIDTH + $clog2(COUNT + 1) + 1;
  localparam int StepWidth = $clog2(ROOT_WIDTH + 1);
  localparam logic [Width-1:0] Highest = Width'(COUNT) << (2 * (ROOT_WIDTH - 1));

  // In every step, what was found so far, doubled, and the next bit are tried: `trial` is (2 found + one) one. Both that
  // may follow it are computed beside the comparison: a quarter of `one` less than half of it, or three quarters more.
  localparam logic [Width-1:0] First = Highest >> 2;
  logic [AT_ONCE-1:0] accepts, has_root, turn_in, turn_out;
  logic [AT_ONCE*ROOT_WIDTH-1:0] found;

  assign sum_ready  = |(accepts & turn_in);
  assign root_valid = |(has_root & turn_out);
  always_ff @(posedge clk) begin
    if (rst) {turn_in, turn_out} <= {AT_ONCE'(1), AT_ONCE'(1)};
    else begin
      if (sum_valid && sum_ready) turn_in <= AT_ONCE'({turn_in, turn_in[AT_ONCE-1]});
      if (root_valid && root_ready) turn_out <= AT_ONCE'({turn_out, turn_out[AT_ONCE-1]});
    end
  end
  always_comb begin
    root = '0;
    for (int each = 0; each < AT_ONCE; each++) begin
      if (turn_out[each]) root |= found[each*ROOT_WIDTH+:ROOT_WIDTH];
    end
  end

  for (genvar each = 0; each < AT_ONCE; each++) begin : g_root
    logic [Width-1:0] rest, trial, quarter, three_quarters, left_over;
    logic [StepWidth-1:0] left;
    logic [ROOT_WIDTH-1:0] bits;
    logic busy, fits, ended;

    assign {fits, left_over} = {1'b1, rest} - {1'b0, trial};
    assign accepts[each] = !busy && !ended;
    assign has_root[each] = ended;
    assign found[each*ROOT_WIDTH+:ROOT_WIDTH] = bits;

    always_ff @(posedge clk) begin
      if (rst) begin
        busy  <= 1'b0;
        ended <= 1'b0;
      end else if (accepts[each]) begin
        busy <= sum_valid && turn_in[each];
      end else if (busy) begin
        busy  <= left != '0;
        ended <= left == '0;
      end else if (root_ready && turn_out[each]) begin
        ended <= 1'b0;
      end
    end

    always_ff @(posedge clk) begin
      if (accepts[each]) begin
        rest           <= (Width'(sum) + Width'(EPSILON)) << (2 * FRACTION);
        trial          <= Highest;
        quarter        <= First;
        three_quarters <= First + (First << 1);
        left           <= StepWidth'(ROOT_WIDTH - 1);
      end else begin
        // While it is not busy these have no meaning, and may move: fewer gates stand behind the comparison.
        if (fits) rest <= left_over;
        trial          <= fits ? (trial >> 1) + three_quarters : (trial >> 1) - quarter;
        quarter        <= quarter >> 2;
        three_quarters <= three_quarters >> 2;
        left           <= left - 1'b1;
      end
      if (busy) bits <= ROOT_WIDTH'({bits, fits});
    end
  end
endmodule
