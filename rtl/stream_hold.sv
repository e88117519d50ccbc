/// Keep a value for all COUNT beats of its row: the handshake alone, the data wires stand side by side.
/// No latency, no storage: the value stays on its stream until the row's last beat is taken with it.
/// Does not cut the ready path, and each ready depends on the valid of the other stream.
module stream_hold #(
    parameter int COUNT = 4
) (
    input  logic clk,
    input  logic rst,
    input  logic data_in_0_valid,
    output logic data_in_0_ready,
    input  logic value_valid,
    output logic value_ready,
    output logic data_out_0_valid,
    input  logic data_out_0_ready
);
  logic last;

  loop_counter #(
      .COUNT(COUNT)
  ) beats (
      .clk,
      .rst,
      .step(data_out_0_valid && data_out_0_ready),
      .last
  );

  assign data_out_0_valid = data_in_0_valid && value_valid;
  assign data_in_0_ready  = data_out_0_ready && value_valid;
  assign value_ready      = data_out_0_ready && data_in_0_valid && last;
endmodule
