/// Cut a valid/ready stream: both the valid and the ready path end in registers.
/// One cycle of latency, one beat per cycle, two beats of storage. Keeps order, changes no data.
/// Does not smooth bursts longer than one beat: use fifo for that.
module skid_buffer #(
    parameter int DATA_WIDTH = 8
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic [DATA_WIDTH-1:0] data_in_0,
    input  logic                  data_in_0_valid,
    output logic                  data_in_0_ready,
    output logic [DATA_WIDTH-1:0] data_out_0,
    output logic                  data_out_0_valid,
    input  logic                  data_out_0_ready
);
  logic [DATA_WIDTH-1:0] held;
  logic                  full, moves;

  assign data_in_0_ready = !full;
  assign moves = !data_out_0_valid || data_out_0_ready;

  always_ff @(posedge clk) begin
    if (rst) begin
      data_out_0_valid <= 1'b0;
      full             <= 1'b0;
    end else if (moves) begin
      data_out_0_valid <= full || data_in_0_valid;
      full             <= 1'b0;
    end else begin
      full <= full || data_in_0_valid;
    end
  end

  always_ff @(posedge clk) begin
    if (moves) data_out_0 <= full ? held : data_in_0;
    if (!full) held <= data_in_0;
  end
endmodule
