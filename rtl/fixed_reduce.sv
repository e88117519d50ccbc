/// The largest, or the sum, of COUNT positions: position after position, each BEATS beats of PAR elements; the result is
/// BEATS beats. A sum has $clog2(COUNT) bits more than its elements and is exact.
/// One cycle of latency after the last position, one beat per cycle. Stores BEATS beats. Does not cut the ready path.
module fixed_reduce #(
    parameter int DATA_IN_0_PRECISION_0 = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 2,
    parameter int BEATS = 2,
    parameter int COUNT = 4,
    parameter bit MAXIMUM = 1'b1,
    localparam int OutPrecision = MAXIMUM ? DATA_IN_0_PRECISION_0 : DATA_IN_0_PRECISION_0 + $clog2(COUNT)
) (
    input  logic                                                         clk,
    input  logic                                                         rst,
    input  logic [DATA_IN_0_PARALLELISM_DIM_0*DATA_IN_0_PRECISION_0-1:0] data_in_0,
    input  logic                                                         data_in_0_valid,
    output logic                                                         data_in_0_ready,
    output logic [         DATA_IN_0_PARALLELISM_DIM_0*OutPrecision-1:0] data_out_0,
    output logic                                                         data_out_0_valid,
    input  logic                                                         data_out_0_ready
);
  localparam int Width = DATA_IN_0_PARALLELISM_DIM_0 * OutPrecision;

  logic [Width-1:0] stored, updated;
  logic push, first, last_beat, last;

  loop_counter #(
      .COUNT(BEATS)
  ) beats (
      .clk,
      .rst,
      .step(push),
      .last(last_beat)
  );
  loop_counter #(
      .COUNT(COUNT)
  ) positions (
      .clk,
      .rst,
      .step(push && last_beat),
      .last
  );

  assign data_in_0_ready = !data_out_0_valid || data_out_0_ready;
  assign push = data_in_0_valid && data_in_0_ready;

  for (genvar lane = 0; lane < DATA_IN_0_PARALLELISM_DIM_0; lane++) begin : g_lane
    logic signed [OutPrecision-1:0] so_far, element;
    assign so_far = stored[lane*OutPrecision+:OutPrecision];
    assign element = OutPrecision'($signed(data_in_0[lane*DATA_IN_0_PRECISION_0+:DATA_IN_0_PRECISION_0]));
    always_comb begin
      if (first) updated[lane*OutPrecision+:OutPrecision] = element;
      else if (!MAXIMUM) updated[lane*OutPrecision+:OutPrecision] = so_far + element;
      else updated[lane*OutPrecision+:OutPrecision] = (element > so_far) ? element : so_far;
    end
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      first            <= 1'b1;
      data_out_0_valid <= 1'b0;
    end else if (data_in_0_ready) begin
      if (push && last_beat) first <= last;
      data_out_0_valid <= push && last;
    end
  end

  always_ff @(posedge clk) if (push) data_out_0 <= updated;

  // What was made of a beat comes back BEATS beats later. On its way it stands at the output, in a memory, in a register.
  if (BEATS == 1) begin : g_at_once
    assign stored = data_out_0;
  end else if (BEATS == 2) begin : g_register
    always_ff @(posedge clk) if (push) stored <= data_out_0;
  end else begin : g_memory
    localparam int Depth = BEATS - 2;
    localparam int IndexWidth = (Depth > 1) ? $clog2(Depth) : 1;
    logic [Width-1:0] memory[Depth];
    logic [IndexWidth-1:0] index;
    always_ff @(posedge clk) begin
      if (rst) index <= '0;
      else if (push) index <= (index == IndexWidth'(Depth - 1)) ? '0 : index + 1'b1;
    end
    always_ff @(posedge clk) begin
      if (push) memory[index] <= data_out_0;
      if (push) stored <= memory[index];
    end
  end
endmodule
