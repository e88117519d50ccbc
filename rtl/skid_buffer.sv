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
  // Two registers take beats in turn, straight from the source, which may be the slow output of a memory.
  logic [DATA_WIDTH-1:0] beats[2];
  logic write_at, read_at, full, push, pop;

  assign data_in_0_ready = !full;
  assign push = data_in_0_valid && !full;
  assign pop = data_out_0_valid && data_out_0_ready;

  always_ff @(posedge clk) begin
    if (rst) begin
      write_at         <= 1'b0;
      read_at          <= 1'b0;
      data_out_0_valid <= 1'b0;
      full             <= 1'b0;
    end else begin
      write_at         <= write_at ^ push;
      read_at          <= read_at ^ pop;
      data_out_0_valid <= push || (data_out_0_valid && (full || !pop));
      full             <= !pop && (full || (push && data_out_0_valid));
    end
  end

  always_ff @(posedge clk) begin
    if (!full && !write_at) beats[0] <= data_in_0;
    if (!full && write_at) beats[1] <= data_in_0;
  end
  assign data_out_0 = beats[read_at];
endmodule
