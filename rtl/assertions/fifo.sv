/// What holds at both ends of the component in every cycle.
bind fifo stream_checker #(.DATA_WIDTH(DATA_WIDTH)) check_in (
    .clk, .rst, .data(data_in_0), .valid(data_in_0_valid), .ready(data_in_0_ready));
bind fifo stream_checker #(.DATA_WIDTH(DATA_WIDTH)) check_out (
    .clk, .rst, .data(data_out_0), .valid(data_out_0_valid), .ready(data_out_0_ready));
bind fifo fifo_checker #(.DEPTH(DEPTH), .CountWidth(CountWidth)) check_count (.clk, .rst, .count);

/// The count of beats stays within the storage.
module fifo_checker #(
    parameter int DEPTH = 4,
    parameter int CountWidth = 3
) (
    input logic                  clk,
    input logic                  rst,
    input logic [CountWidth-1:0] count
);
  count_fits :
  assert property (@(posedge clk) disable iff (rst) 32'(count) <= DEPTH)
  else $error("%m: %0d beats in %0d places", count, DEPTH);
endmodule
