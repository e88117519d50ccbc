/// Take samples of COUNT streams in turn, BEATS beats of each: the order in which `round_robin_split` gave them out.
/// No latency, one beat per cycle. Does not store: while one is taken, the others wait; put a fifo for a sample before
/// each. Does not cut the ready path.
module round_robin_merge #(
    parameter int DATA_WIDTH = 8,
    parameter int COUNT      = 2,
    parameter int BEATS      = 4
) (
    input  logic                        clk,
    input  logic                        rst,
    input  logic [COUNT*DATA_WIDTH-1:0] data_in_0,
    input  logic [           COUNT-1:0] data_in_0_valid,
    output logic [           COUNT-1:0] data_in_0_ready,
    output logic [      DATA_WIDTH-1:0] data_out_0,
    output logic                        data_out_0_valid,
    input  logic                        data_out_0_ready
);
  logic [COUNT-1:0] turn;  // the stream of the present sample, as one bit
  logic step, last;

  always_comb begin
    data_out_0 = '0;
    for (int index = 0; index < COUNT; index = index + 1) begin
      data_out_0 |= data_in_0[index*DATA_WIDTH+:DATA_WIDTH] & {DATA_WIDTH{turn[index]}};
    end
  end
  assign data_out_0_valid = |(data_in_0_valid & turn);
  assign data_in_0_ready = {COUNT{data_out_0_ready}} & turn;
  assign step = data_out_0_valid && data_out_0_ready;

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
