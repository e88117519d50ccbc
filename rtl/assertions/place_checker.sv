/// A result that nothing can hold up comes only where there is a place for it.
module place_checker (
    input logic clk,
    input logic rst,
    input logic valid,
    input logic ready
);
  always_ff @(posedge clk) begin
    place_is_kept :
    assert (rst || !valid || ready)
    else $error("%m: a result has no place");
  end
endmodule
