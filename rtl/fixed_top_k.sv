/// The OUT largest elements of every row of IN elements, PAR in a beat: the largest first, of equal ones the first of the
/// row. SMALLEST: the smallest ones, in the same way. INDEX: their numbers in the row, in $clog2(IN) + 1 bits.
/// The result of a row is one beat. Three cycles of latency after the row's last beat, one beat per cycle. Stores two beats
/// and OUT elements, and compares each of a beat with all of both. Does not cut the ready path.
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

  // A beat comes, waits, and is staged: then it enters the places. While it waits it is compared with all that may stand in
  // a place once the staged beat is in: what it is above stands in registers when it is staged.
  logic step, first, last, waiting_valid, waiting_first, waiting_last, staged_valid, staged_first, staged_last;
  logic [Lanes*Kept-1:0] came, waiting, staged;
  logic [Lanes*RankWidth-1:0] came_ranks, waiting_ranks, ranks;
  logic [Places*Kept-1:0] kept, updated;
  logic [Places-1:0] taken, taken_next;
  logic [Places*Lanes-1:0] above, above_next, above_kept;
  logic [Lanes*Lanes-1:0] above_staged;

  // The sign of a difference: Yosys makes two carry chains in a row of a signed comparison.
  // A layer of a model may have one of these names: that is no fault.
  /* verilator lint_off VARHIDDEN */
  function automatic is_more(input signed [Width-1:0] left, right);
    logic signed [Width:0] less;
    less = (Width + 1)'(right) - (Width + 1)'(left);
    is_more = less[Width];
  endfunction
  /* verilator lint_on VARHIDDEN */

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
        if (other < lane && !is_more(came[lane*Kept+:Width], came[other*Kept+:Width])) rank = rank + 1'b1;
        if (other > lane && is_more(came[other*Kept+:Width], came[lane*Kept+:Width])) rank = rank + 1'b1;
      end
    end
    assign came_ranks[lane*RankWidth+:RankWidth] = rank;
  end

  for (genvar place = 0; place < Places; place++) begin : g_place
    // Which of the beat are above the element that stands here, if there is one, and how many.
    logic [Lanes-1:0] lands;
    logic [RankWidth-1:0] count;
    for (genvar lane = 0; lane < Lanes; lane++) begin : g_lane
      if (place == 0) begin : g_first
        assign lands[lane] = above[lane];
      end else begin : g_other
        assign lands[lane] = above[place*Lanes+lane] && !above[(place-1)*Lanes+lane];
      end
    end
    always_comb begin
      count = '0;
      for (int lane = 0; lane < Lanes; lane++) count = count + RankWidth'(above[place*Lanes+lane]);
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
    logic [Furthest:0] moves;
    for (genvar down = 0; down <= Furthest; down++) begin : g_from
      localparam int From = place - down;
      assign moves[down] = g_place[From].count == RankWidth'(down);
      assign moved[down*(Kept+1)+:Kept+1] = moves[down] ? {taken[From] && !staged_first, kept[From*Kept+:Kept]} : '0;
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
    assign {taken_next[place], updated[place*Kept+:Kept]} = staged_valid ? next : {taken[place], kept[place*Kept+:Kept]};

    // The comparison with what will stand here goes the same way as that.
    for (genvar lane = 0; lane < Lanes; lane++) begin : g_above
      logic [Furthest:0] of_kept;
      logic [Lanes-1:0] of_staged;
      for (genvar down = 0; down <= Furthest; down++) begin : g_from
        assign of_kept[down] = above_kept[(place-down)*Lanes+lane];
      end
      assign above_kept[place*Lanes+lane] = is_more(waiting[lane*Kept+:Width], kept[place*Kept+:Width]);
      assign of_staged = above_staged[lane*Lanes+:Lanes];
      assign above_next[place*Lanes+lane] = waiting_first || !taken_next[place] ||
          (staged_valid ? (moves & of_kept) != '0 || (enters & of_staged) != '0 : of_kept[0]);
    end
    if (INDEX) begin : g_index
      assign data_out_0[place*OutPrecision+:OutPrecision] = kept[place*Kept+Width+:OutPrecision];
    end else begin : g_element
      assign data_out_0[place*OutPrecision+:OutPrecision] = {OutPrecision{SMALLEST}} ^ kept[place*Kept+:OutPrecision];
    end
  end

  for (genvar lane = 0; lane < Lanes; lane++) begin : g_waiting
    for (genvar other = 0; other < Lanes; other++) begin : g_staged
      assign above_staged[lane*Lanes+other] = is_more(waiting[lane*Kept+:Width], staged[other*Kept+:Width]);
    end
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      first            <= 1'b1;
      waiting_valid    <= 1'b0;
      staged_valid     <= 1'b0;
      data_out_0_valid <= 1'b0;
    end else if (data_in_0_ready) begin
      if (data_in_0_valid) first <= last;
      waiting_valid    <= data_in_0_valid;
      staged_valid     <= waiting_valid;
      data_out_0_valid <= staged_valid && staged_last;
    end
  end

  always_ff @(posedge clk) begin
    if (data_in_0_ready) begin
      {waiting, waiting_ranks, waiting_first, waiting_last} <= {came, came_ranks, first, last};
      {staged, ranks, staged_first, staged_last} <= {waiting, waiting_ranks, waiting_first, waiting_last};
      above <= above_next;
      {taken, kept} <= {taken_next, updated};
    end
  end
endmodule
