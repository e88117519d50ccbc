/// Split each beat into RATIO, the low bits first.
/// With LENGTH a vector has so many narrow beats, and the last wide one gives the rest of them: its low bits.
/// One cycle of latency, one narrow beat per cycle without a gap between wide ones.
/// Does not cut the ready path.
module width_downsizer #(
    parameter int DATA_WIDTH = 8,
    parameter int RATIO      = 4,
    parameter int LENGTH     = 0
) (
    input  logic                        clk,
    input  logic                        rst,
    input  logic [RATIO*DATA_WIDTH-1:0] data_in_0,
    input  logic                        data_in_0_valid,
    output logic                        data_in_0_ready,
    output logic [      DATA_WIDTH-1:0] data_out_0,
    output logic                        data_out_0_valid,
    input  logic                        data_out_0_ready
);
  localparam int CountWidth = $clog2(RATIO + 1);
  localparam int Rest = (LENGTH == 0 || LENGTH % RATIO == 0) ? RATIO : LENGTH % RATIO;

  logic [CountWidth-1:0] left;  // narrow beats that are still to be given, the present one included
  logic [RATIO*DATA_WIDTH-1:0] held, shifted;

  if (RATIO < 1) begin : g_check
    $error("width_downsizer: RATIO is %0d; it has to be at least 1", RATIO);
  end else if (RATIO == 1) begin : g_same
    assign shifted = held;
  end else begin : g_shift
    assign shifted = {held[DATA_WIDTH-1:0], held[RATIO*DATA_WIDTH-1:DATA_WIDTH]};
  end

  logic [CountWidth-1:0] number;  // narrow beats of the wide one that comes
  if (Rest == RATIO) begin : g_endless
    assign number = CountWidth'(RATIO);
  end else begin : g_vectors
    logic last;
    loop_counter #(.COUNT((LENGTH + RATIO - 1) / RATIO)) beats (
        .clk, .rst, .step(data_in_0_valid && data_in_0_ready), .last);
    assign number = last ? CountWidth'(Rest) : CountWidth'(RATIO);
  end

  assign data_out_0_valid = left != '0;
  assign data_out_0 = held[DATA_WIDTH-1:0];
  assign data_in_0_ready = left == '0 || (left == CountWidth'(1) && data_out_0_ready);

  always_ff @(posedge clk) begin
    if (rst) left <= '0;
    else if (data_in_0_ready) left <= data_in_0_valid ? number : '0;
    else if (data_out_0_ready) left <= left - 1'b1;
  end

  always_ff @(posedge clk) begin
    if (data_in_0_ready) held <= data_in_0;
    else if (data_out_0_ready) held <= shifted;
  end
endmodule
