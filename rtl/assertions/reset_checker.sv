/// State that is 0 in the first cycle after reset.
module reset_checker #(
    parameter int WIDTH = 1
) (
    input logic             clk,
    input logic             rst,
    input logic [WIDTH-1:0] state
);
  logic was_reset;
  always_ff @(posedge clk) begin
    was_reset <= rst;
    is_cleared :
    assert (rst || !was_reset || state == '0)
    else $error("%m: reset has left %0h", state);
  end
endmodule
