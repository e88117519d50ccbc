/// Two streams one after the other: DATA_IN_0_BEATS beats of the first, then DATA_IN_1_BEATS of the second, and so on.
/// No latency, one beat per cycle. More than two: put one behind another. Does not store: while one is given, the other
/// waits. Does not cut the ready path.
module stream_concat #(
    parameter int DATA_WIDTH      = 8,
    parameter int DATA_IN_0_BEATS = 1,
    parameter int DATA_IN_1_BEATS = 4
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic [DATA_WIDTH-1:0] data_in_0,
    input  logic                  data_in_0_valid,
    output logic                  data_in_0_ready,
    input  logic [DATA_WIDTH-1:0] data_in_1,
    input  logic                  data_in_1_valid,
    output logic                  data_in_1_ready,
    output logic [DATA_WIDTH-1:0] data_out_0,
    output logic                  data_out_0_valid,
    input  logic                  data_out_0_ready
);
  logic second, step, last_0, last_1;

  assign step = data_out_0_valid && data_out_0_ready;
  loop_counter #(
      .COUNT(DATA_IN_0_BEATS)
  ) beats_0 (
      .clk,
      .rst,
      .step(step && !second),
      .last(last_0)
  );
  loop_counter #(
      .COUNT(DATA_IN_1_BEATS)
  ) beats_1 (
      .clk,
      .rst,
      .step(step && second),
      .last(last_1)
  );

  always_ff @(posedge clk) begin
    if (rst) second <= 1'b0;
    else if (step) second <= second ? !last_1 : last_0;
  end

  assign data_out_0 = second ? data_in_1 : data_in_0;
  assign data_out_0_valid = second ? data_in_1_valid : data_in_0_valid;
  assign data_in_0_ready = data_out_0_ready && !second;
  assign data_in_1_ready = data_out_0_ready && second;
endmodule
