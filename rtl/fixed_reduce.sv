/// The largest, or the sum, of COUNT positions: position after position, each BEATS beats of PAR elements; the result is
/// BEATS beats. A sum has $clog2(COUNT) bits more than its elements and is exact.
/// INDEX, with MAXIMUM: the number of the first of the largest positions, in $clog2(COUNT) + 1 bits, in its place.
/// One cycle of latency after the last position, one beat per cycle. Stores BEATS beats. Does not cut the ready path.
module fixed_reduce #(
    parameter int DATA_IN_0_PRECISION_0 = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 2,
    parameter int BEATS = 2,
    parameter int COUNT = 4,
    parameter bit MAXIMUM = 1'b1,
    parameter bit INDEX = 1'b0,
    localparam int Element = MAXIMUM ? DATA_IN_0_PRECISION_0 : DATA_IN_0_PRECISION_0 + $clog2(COUNT),
    localparam int OutPrecision = INDEX ? $clog2(COUNT) + 1 : Element
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
  // A lane keeps its element, and above it the number of its position.
  localparam int Kept = INDEX ? Element + OutPrecision : Element;
  localparam int KeptWidth = DATA_IN_0_PARALLELISM_DIM_0 * Kept;

  logic [KeptWidth-1:0] stored, updated, kept;
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
    localparam int At = lane * Kept;
    logic signed [Element-1:0] so_far, element;
    logic signed [Element:0] less;  // a sum, whose sign is ready before that of a comparison
    logic takes;
    assign so_far = stored[At+:Element];
    assign element = Element'($signed(data_in_0[lane*DATA_IN_0_PRECISION_0+:DATA_IN_0_PRECISION_0]));
    assign less = (Element + 1)'(so_far) - (Element + 1)'(element);
    assign takes = first || (MAXIMUM && less[Element]);
    assign updated[At+:Element] = takes ? element : MAXIMUM ? so_far : so_far + element;
    if (INDEX) begin : g_index
      logic [OutPrecision-1:0] position;
      always_ff @(posedge clk) begin
        if (rst) position <= '0;
        else if (push && last_beat) position <= last ? '0 : position + 1'b1;
      end
      assign updated[At+Element+:OutPrecision] = takes ? position : stored[At+Element+:OutPrecision];
      assign data_out_0[lane*OutPrecision+:OutPrecision] = kept[At+Element+:OutPrecision];
    end else begin : g_element
      assign data_out_0[lane*OutPrecision+:OutPrecision] = kept[At+:Element];
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

  always_ff @(posedge clk) if (push) kept <= updated;

  // What was made of a beat comes back BEATS beats later. On its way it stands at the output, in a memory, in a register.
  if (BEATS == 1) begin : g_at_once
    assign stored = kept;
  end else if (BEATS == 2) begin : g_register
    always_ff @(posedge clk) if (push) stored <= kept;
  end else begin : g_memory
    // A place is read a beat before it is written.
    localparam int Depth = BEATS - 1;
    localparam int AddressWidth = $clog2(Depth);
    logic [AddressWidth-1:0] read_at, write_at;
    always_ff @(posedge clk) begin
      if (rst) read_at <= '0;
      else if (push) read_at <= (read_at == AddressWidth'(Depth - 1)) ? '0 : read_at + 1'b1;
    end
    always_ff @(posedge clk) if (push) write_at <= read_at;
    ram #(
        .DATA_WIDTH(KeptWidth),
        .DEPTH(Depth)
    ) memory (
        .clk,
        .write(push),
        .write_address(write_at),
        .write_data(kept),
        .read(push),
        .read_address(read_at),
        .read_data(stored)
    );
  end
endmodule
