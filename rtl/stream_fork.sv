/// Give one stream to COUNT consumers, each at its own pace: the handshake alone, the data wires simply branch.
/// No latency. A consumer that has taken the beat does not see it again while the others are waited for.
/// Does not store data: a consumer that falls behind by more than one beat holds up the others; put a fifo behind it.
/// Does not cut the ready path.
module stream_fork #(
    parameter int COUNT = 2
) (
    input  logic             clk,
    input  logic             rst,
    input  logic             data_in_0_valid,
    output logic             data_in_0_ready,
    output logic [COUNT-1:0] data_out_0_valid,
    input  logic [COUNT-1:0] data_out_0_ready
);
  logic [COUNT-1:0] served;  // consumers that have the present beat

  assign data_out_0_valid = {COUNT{data_in_0_valid}} & ~served;
  assign data_in_0_ready  = &(served | data_out_0_ready);

  always_ff @(posedge clk) begin
    if (rst) served <= '0;
    else if (data_in_0_valid) served <= data_in_0_ready ? '0 : served | data_out_0_ready;
  end
endmodule
