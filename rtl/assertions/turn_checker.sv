/// The rule of streams that take turns: one of them at a time is offered a beat, or may give one.
module turn_checker #(
    parameter int COUNT = 2
) (
    input logic             clk,
    input logic             rst,
    input logic [COUNT-1:0] offered
);
  always_ff @(posedge clk) begin
    one_at_a_time :
    assert (rst || $onehot0(offered))
    else $error("%m: it is the turn of several");
  end
endmodule
