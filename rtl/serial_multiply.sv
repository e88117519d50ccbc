/// Products of LANES pairs of signed integers without multipliers: an addition for each bit of the second factor.
/// DATA_IN_1_PRECISION_0 + 1 cycles of latency, and a beat in as many. Nothing is rounded.
/// `beside` comes beside a beat and leaves beside its products. Does not cut the ready path.
module serial_multiply #(
    parameter int DATA_IN_0_PRECISION_0 = 8,
    parameter int DATA_IN_1_PRECISION_0 = 6,
    parameter int LANES                 = 2,
    parameter int BESIDE_WIDTH          = 1,
    localparam int A                    = DATA_IN_0_PRECISION_0,
    localparam int B                    = DATA_IN_1_PRECISION_0
) (
    input  logic                     clk,
    input  logic                     rst,
    input  logic [      LANES*A-1:0] data_in_0,
    input  logic [      LANES*B-1:0] data_in_1,
    input  logic [ BESIDE_WIDTH-1:0] beside,
    input  logic                     data_in_0_valid,
    output logic                     data_in_0_ready,
    output logic [LANES*(A+B)-1:0]   data_out_0,
    output logic [ BESIDE_WIDTH-1:0] beside_out,
    output logic                     data_out_0_valid,
    input  logic                     data_out_0_ready
);
  logic busy, last, push;

  loop_counter #(
      .COUNT(B)
  ) bits (
      .clk,
      .rst,
      .step(busy),
      .last
  );

  assign data_in_0_ready = !busy && (!data_out_0_valid || data_out_0_ready);
  assign push = data_in_0_valid && data_in_0_ready;

  always_ff @(posedge clk) begin
    if (rst) {busy, data_out_0_valid} <= '0;
    else begin
      busy <= push || (busy && !last);
      if (busy && last) data_out_0_valid <= 1'b1;
      else if (data_out_0_ready) data_out_0_valid <= 1'b0;
    end
  end
  always_ff @(posedge clk) if (push) beside_out <= beside;

  for (genvar lane = 0; lane < LANES; lane++) begin : g_lane
    // The second factor leaves at the low end, bit by bit, as the product comes in at the high end.
    logic signed [A-1:0] factor, high;
    logic [B-1:0] low;
    logic signed [A:0] part, sum;

    assign part = low[0] ? (A + 1)'(factor) : '0;
    // The last bit is that of the sign.
    assign sum = last ? (A + 1)'(high) - part : (A + 1)'(high) + part;
    assign data_out_0[lane*(A+B)+:A+B] = {high, low};

    always_ff @(posedge clk) begin
      if (push) begin
        factor <= data_in_0[lane*A+:A];
        high   <= '0;
        low    <= data_in_1[lane*B+:B];
      end else if (busy) begin
        {high, low} <= (A + B)'({sum, low} >> 1);
      end
    end
  end
endmodule
