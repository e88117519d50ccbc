/// Wait for one beat of each of COUNT streams: the handshake alone, the data wires stand side by side.
/// No latency, no storage. All inputs are taken in the same cycle.
/// Does not cut the ready path, and an input's ready depends on the valid of the others.
module stream_join #(
    parameter int COUNT = 2
) (
    input  logic [COUNT-1:0] data_in_0_valid,
    output logic [COUNT-1:0] data_in_0_ready,
    output logic             data_out_0_valid,
    input  logic             data_out_0_ready
);
  assign data_out_0_valid = &data_in_0_valid;
  assign data_in_0_ready  = {COUNT{data_out_0_valid && data_out_0_ready}};
endmodule
