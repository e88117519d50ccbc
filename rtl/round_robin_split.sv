/// Give samples to COUNT consumers in turn, BEATS beats to each: the handshake alone, the data wires simply branch.
/// No latency, one beat per cycle. Does not store: a consumer that does not take its sample holds up the others; put a
/// fifo for a sample behind it. Does not cut the ready path.
module round_robin_split #(
    parameter int COUNT = 2,
    parameter int BEATS = 4
) (
    input  logic             clk,
    input  logic             rst,
    input  logic             data_in_0_valid,
    output logic             data_in_0_ready,
    output logic [COUNT-1:0] data_out_0_valid,
    input  logic [COUNT-1:0] data_out_0_ready
);
  logic [COUNT-1:0] turn;  // the consumer of the present sample, as one bit
  logic step, last;

  assign data_out_0_valid = {COUNT{data_in_0_valid}} & turn;
  assign data_in_0_ready = |(data_out_0_ready & turn);
  assign step = data_in_0_valid && data_in_0_ready;

  loop_counter #(
      .COUNT(BEATS)
  ) beats (
      .clk,
      .rst,
      .step,
      .last
  );

  always_ff @(posedge clk) begin
    if (rst) turn <= COUNT'(1);
    else if (step && last) turn <= COUNT'({turn, turn[COUNT-1]});
  end
endmodule
