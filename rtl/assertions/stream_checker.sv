/// The rule of a valid/ready stream, for any of its ends: a beat that is offered stays, unchanged, until it is taken.
module stream_checker #(
    parameter int DATA_WIDTH = 8
) (
    input logic                  clk,
    input logic                  rst,
    input logic [DATA_WIDTH-1:0] data,
    input logic                  valid,
    input logic                  ready
);
  logic waited;
  logic [DATA_WIDTH-1:0] offered;

  always_ff @(posedge clk) begin
    waited  <= !rst && valid && !ready;
    offered <= data;
  end

  always_ff @(posedge clk) begin
    offered_stays :
    assert (rst || !waited || valid)
    else $error("%m: valid fell before ready");

    offered_is_unchanged :
    assert (rst || !waited || data == offered)
    else $error("%m: data changed before ready");
  end
endmodule
