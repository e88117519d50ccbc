/// The OUT largest elements of every row of IN elements, PAR in a beat: the largest first, of equal ones the first of the
/// row. SMALLEST: the smallest ones, in the same way. INDEX: their numbers in the row, in $clog2(IN) + 1 bits.
/// The result of a row is one beat. Two cycles of latency after the row's last beat, one beat per cycle. Stores a beat and
/// OUT elements, and compares each of a beat with all of both. Does not cut the ready path.
module fixed_top_k #(
    parameter int DATA_IN_0_PRECISION_0 = 8,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0 = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 2,
    parameter int DATA_OUT_0_TENSOR_SIZE_DIM_0 = 3,
    parameter bit SMALLEST = 1'b0,
    parameter bit INDEX = 1'b0,
    localparam int IndexWidth = $clog2(DATA_IN_0_TENSOR_SIZE_DIM_0) + 1,
    localparam int OutPrecision = INDEX ? IndexWidth : DATA_IN_0_PRECISION_0
) (
    input  logic                                                         clk,
    input  logic                                                         rst,
    input  logic [DATA_IN_0_PARALLELISM_DIM_0*DATA_IN_0_PRECISION_0-1:0] data_in_0,
    input  logic                                                         data_in_0_valid,
    output logic                                                         data_in_0_ready,
    output logic [        DATA_OUT_0_TENSOR_SIZE_DIM_0*OutPrecision-1:0] data_out_0,
    output logic                                                         data_out_0_valid,
    input  logic                                                         data_out_0_ready
);
  localparam int Width = DATA_IN_0_PRECISION_0;
  localparam int Lanes = DATA_IN_0_PARALLELISM_DIM_0;
  localparam int Places = DATA_OUT_0_TENSOR_SIZE_DIM_0;
  // An element is kept with the number of its row above it, if that is asked for.
  localparam int Kept = INDEX ? Width + IndexWidth : Width;
  localparam int RankWidth = $clog2(Lanes + 1);

  logic step, last, staged_valid, staged_first, staged_last;
  logic [Lanes*Kept-1:0] came, staged;
  logic [Lanes*RankWidth-1:0] came_ranks, ranks;
  logic [Places*Kept-1:0] kept, updated;
  logic [Places-1:0] taken, taken_next;

  assign data_in_0_ready = !data_out_0_valid || data_out_0_ready;
  assign step = data_in_0_valid && data_in_0_ready;

  loop_counter #(
      .COUNT(DATA_IN_0_TENSOR_SIZE_DIM_0 / Lanes)
  ) beats (
      .clk,
      .rst,
      .step,
      .last
  );

  for (genvar lane = 0; lane < Lanes; lane++) begin : g_came
    logic [RankWidth-1:0] rank;
    assign came[lane*Kept+:Width] = {Width{SMALLEST}} ^ data_in_0[lane*Width+:Width];
    if (INDEX) begin : g_index
      logic [IndexWidth-1:0] number;
      always_ff @(posedge clk) begin
        if (rst) number <= IndexWidth'(lane);
        else if (step) number <= last ? IndexWidth'(lane) : number + IndexWidth'(Lanes);
      end
      assign came[lane*Kept+Width+:IndexWidth] = number;
    end
    // How many of its beat come before it.
    always_comb begin
      rank = '0;
      for (int other = 0; other < Lanes; other++) begin
        if (other < lane && $signed(came[other*Kept+:Width]) >= $signed(came[lane*Kept+:Width])) rank = rank + 1'b1;
        if (other > lane && $signed(came[other*Kept+:Width]) > $signed(came[lane*Kept+:Width])) rank = rank + 1'b1;
      end
    end
    assign came_ranks[lane*RankWidth+:RankWidth] = rank;
  end

  for (genvar place = 0; place < Places; place++) begin : g_place
    // Which of the beat are above the element that stands here, if there is one, and how many.
    logic [Lanes-1:0] above, lands;
    logic [RankWidth-1:0] count;
    for (genvar lane = 0; lane < Lanes; lane++) begin : g_lane
      assign above[lane] = staged_first || !taken[place] ||
          $signed(staged[lane*Kept+:Width]) > $signed(kept[place*Kept+:Width]);
      if (place == 0) begin : g_first
        assign lands[lane] = above[lane];
      end else begin : g_other
        assign lands[lane] = above[lane] && !g_place[place-1].above[lane];
      end
    end
    always_comb begin
      count = '0;
      for (int lane = 0; lane < Lanes; lane++) count = count + RankWidth'(above[lane]);
    end
  end

  // A place takes the element of one before it, if as many of the beat are above that, or one of the beat, which stands
  // behind where it lands by its rank.
  for (genvar place = 0; place < Places; place++) begin : g_next
    localparam int Furthest = place < Lanes ? place : Lanes;
    logic [(Furthest+1)*(Kept+1)-1:0] moved;
    logic [Lanes*Kept-1:0] entered;
    logic [Lanes-1:0] enters;
    logic [Kept:0] next;
    for (genvar down = 0; down <= Furthest; down++) begin : g_from
      localparam int From = place - down;
      assign moved[down*(Kept+1)+:Kept+1] = g_place[From].count == RankWidth'(down) ?
          {taken[From] && !staged_first, kept[From*Kept+:Kept]} : '0;
    end
    for (genvar lane = 0; lane < Lanes; lane++) begin : g_lane
      logic [Furthest:0] at;
      for (genvar down = 0; down <= Furthest; down++) begin : g_from
        assign at[down] = g_place[place-down].lands[lane] && ranks[lane*RankWidth+:RankWidth] == RankWidth'(down);
      end
      assign enters[lane] = |at;
      assign entered[lane*Kept+:Kept] = enters[lane] ? staged[lane*Kept+:Kept] : '0;
    end
    always_comb begin
      next = {|enters, {Kept{1'b0}}};
      for (int from = 0; from <= Furthest; from++) next = next | moved[from*(Kept+1)+:Kept+1];
      for (int lane = 0; lane < Lanes; lane++) next = next | {1'b0, entered[lane*Kept+:Kept]};
    end
    assign {taken_next[place], updated[place*Kept+:Kept]} = next;
    if (INDEX) begin : g_index
      assign data_out_0[place*OutPrecision+:OutPrecision] = kept[place*Kept+Width+:OutPrecision];
    end else begin : g_element
      assign data_out_0[place*OutPrecision+:OutPrecision] = {OutPrecision{SMALLEST}} ^ kept[place*Kept+:OutPrecision];
    end
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      staged_first     <= 1'b1;
      staged_valid     <= 1'b0;
      data_out_0_valid <= 1'b0;
    end else if (data_in_0_ready) begin
      if (staged_valid) staged_first <= staged_last;
      staged_valid     <= data_in_0_valid;
      data_out_0_valid <= staged_valid && staged_last;
    end
  end

  always_ff @(posedge clk) begin
    if (data_in_0_ready) begin
      staged      <= came;
      ranks       <= came_ranks;
      staged_last <= last;
      if (staged_valid) {taken, kept} <= {taken_next, updated};
    end
  end
endmodule
