/// These properties hold at both ends of the component in every cycle.
bind fifo stream_checker #(.DATA_WIDTH(DATA_WIDTH)) check_in (
    .clk, .rst, .data(data_in_0), .valid(data_in_0_valid), .ready(data_in_0_ready));
bind fifo stream_checker #(.DATA_WIDTH(DATA_WIDTH)) check_out (
    .clk, .rst, .data(data_out_0), .valid(data_out_0_valid), .ready(data_out_0_ready));
bind fifo fifo_checker #(.DEPTH(DEPTH), .CountWidth(CountWidth)) check_count (
    .clk, .rst, .push, .shows(data_out_0_valid), .count);

/// Nothing is written into a full storage, and no beat waits for long while none stands at the output.
module fifo_checker #(
    parameter int DEPTH = 4,
    parameter int CountWidth = 3
) (
    input logic                  clk,
    input logic                  rst,
    input logic                  push,
    input logic                  shows,
    input logic [CountWidth-1:0] count
);
  always_ff @(posedge clk) begin
    never_overflows :
    assert (rst || !push || count + CountWidth'(shows) != CountWidth'(DEPTH))
    else $error("%m: a beat was written although all %0d places are taken", DEPTH);

    // Two beats may be on their way through a block memory.
    never_waits :
    assert (rst || shows || count <= ((DEPTH <= 32) ? '0 : CountWidth'(2)))
    else $error("%m: beats wait in the memory while the output shows none");
  end
endmodule
