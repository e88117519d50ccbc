/// Every beat together with those that stood at its place in the lines before it: TAPS beats at once, the oldest lowest.
/// A frame is LINES lines of LENGTH beats. Line `last` of every STRIDE-th window of TAPS lines, DILATION apart, comes out;
/// lines that end no window are taken and kept. One beat per cycle, one cycle of latency after the window's last line.
/// Lines of an image give columns of windows, pixels of such a line whole windows.
/// Stores (TAPS - 1) * DILATION lines, LENGTH 1 in registers. Does not cut the ready path.
module line_taps #(
    parameter int DATA_WIDTH = 8,
    parameter int LENGTH     = 8,
    parameter int LINES      = 8,
    parameter int TAPS       = 3,
    parameter int STRIDE     = 1,
    parameter int DILATION   = 1
) (
    input  logic                       clk,
    input  logic                       rst,
    input  logic [     DATA_WIDTH-1:0] data_in_0,
    input  logic                       data_in_0_valid,
    output logic                       data_in_0_ready,
    output logic [TAPS*DATA_WIDTH-1:0] data_out_0,
    output logic                       data_out_0_valid,
    input  logic                       data_out_0_ready
);
  localparam int Before = (TAPS - 1) * DILATION;  // lines that are kept
  localparam int LineWidth = $clog2(LINES + 1);
  localparam int PhaseWidth = (STRIDE > 1) ? $clog2(STRIDE) : 1;

  if (Before >= LINES) begin : g_check
    $error("line_taps: %0d lines have no window of %0d taps, %0d apart", LINES, TAPS, DILATION);
  end

  logic [(Before+1)*DATA_WIDTH-1:0] lines;
  logic [DATA_WIDTH-1:0] now;
  logic filled, complete, ends_window, push, last_beat, last_line;
  logic [LineWidth-1:0] line;
  logic [PhaseWidth-1:0] phase;  // lines since the end of a window, from the first window on

  assign data_out_0_valid = filled && complete;
  assign data_in_0_ready = !data_out_0_valid || data_out_0_ready;
  assign push = data_in_0_valid && data_in_0_ready;
  assign last_line = line == LineWidth'(LINES - 1);
  // One more on both sides, so that no line before needs no comparison with a number below 0.
  assign ends_window = line + LineWidth'(1) > LineWidth'(Before) && phase == '0;

  loop_counter #(
      .COUNT(LENGTH)
  ) beats (
      .clk,
      .rst,
      .step(push),
      .last(last_beat)
  );

  always_ff @(posedge clk) begin
    if (rst) begin
      line   <= '0;
      phase  <= '0;
      filled <= 1'b0;
    end else begin
      if (data_in_0_ready) filled <= data_in_0_valid;
      if (push && last_beat) begin
        line <= last_line ? '0 : line + 1'b1;
        if (last_line || phase == PhaseWidth'(STRIDE - 1)) phase <= '0;
        else if (line + LineWidth'(1) > LineWidth'(Before)) phase <= phase + 1'b1;
      end
    end
  end
  always_ff @(posedge clk) if (push) {now, complete} <= {data_in_0, ends_window};

  if (Before == 0) begin : g_none
    assign lines = now;
  end else if (LENGTH == 1) begin : g_registers
    logic [Before*DATA_WIDTH-1:0] kept;
    always_ff @(posedge clk) if (push) kept <= lines[(Before+1)*DATA_WIDTH-1:DATA_WIDTH];
    assign lines = {now, kept};
  end else begin : g_memory
    // A place is read a beat before it is written: what stood there and what came now go back together.
    localparam int AddressWidth = $clog2(LENGTH);
    logic [Before*DATA_WIDTH-1:0] kept;
    logic [AddressWidth-1:0] read_at, write_at;
    always_ff @(posedge clk) begin
      if (rst) read_at <= '0;
      else if (push) read_at <= last_beat ? '0 : read_at + 1'b1;
    end
    always_ff @(posedge clk) if (push) write_at <= read_at;
    ram #(
        .DATA_WIDTH(Before * DATA_WIDTH),
        .DEPTH(LENGTH)
    ) memory (
        .clk,
        .write(push),
        .write_address(write_at),
        .write_data(lines[(Before+1)*DATA_WIDTH-1:DATA_WIDTH]),
        .read(push),
        .read_address(read_at),
        .read_data(kept)
    );
    assign lines = {now, kept};
  end

  for (genvar tap = 0; tap < TAPS; tap++) begin : g_tap
    assign data_out_0[tap*DATA_WIDTH+:DATA_WIDTH] = lines[tap*DILATION*DATA_WIDTH+:DATA_WIDTH];
  end
  if (DILATION > 1 && TAPS > 1) begin : g_gaps
    logic unused_lines;
    assign unused_lines = &{1'b0, lines};
  end
endmodule
