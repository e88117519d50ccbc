/// These properties hold at both ends of the component in every cycle.
bind stream_fork stream_checker #(.DATA_WIDTH(1)) check_in (
    .clk, .rst, .data(1'b0), .valid(data_in_0_valid), .ready(data_in_0_ready));
bind stream_fork stream_fork_checker #(.COUNT(COUNT)) check_out (.*);

/// A consumer's valid stays until it is taken, and none has the same beat twice.
module stream_fork_checker #(
    parameter int COUNT = 2
) (
    input logic             clk,
    input logic             rst,
    input logic             data_in_0_valid,
    input logic             data_in_0_ready,
    input logic [COUNT-1:0] data_out_0_valid,
    input logic [COUNT-1:0] data_out_0_ready
);
  logic [COUNT-1:0] waited, taken;

  always_ff @(posedge clk) begin
    waited <= rst ? '0 : data_out_0_valid & ~data_out_0_ready;
    if (rst || (data_in_0_valid && data_in_0_ready)) taken <= '0;
    else taken <= taken | (data_out_0_valid & data_out_0_ready);
  end

  always_ff @(posedge clk) begin
    offered_stays :
    assert (rst || (waited & ~data_out_0_valid) == '0)
    else $error("%m: valid fell before ready");

    taken_once :
    assert (rst || (taken & data_out_0_valid) == '0)
    else $error("%m: a beat was offered to a consumer that has it");
  end
endmodule
