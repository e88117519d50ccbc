/// A constant tensor as a stream, again and again: DEPTH beats from FILE ($readmemh: one beat a line, hexadecimal).
/// The first beat comes one cycle of latency after reset, then one per cycle, whenever they are taken.
/// Does not know samples: whoever joins it with data takes as many beats of each.
module constant_stream #(
    parameter int DATA_WIDTH = 8,
    parameter int DEPTH = 4,
    parameter FILE = "constant.mem"
) (
    input  logic                  clk,
    input  logic                  rst,
    output logic [DATA_WIDTH-1:0] data_out_0,
    output logic                  data_out_0_valid,
    input  logic                  data_out_0_ready
);
  localparam int AddressWidth = (DEPTH > 1) ? $clog2(DEPTH) : 1;

  logic [AddressWidth-1:0] address;
  logic reads;
  assign reads = !data_out_0_valid || data_out_0_ready;

  always_ff @(posedge clk) begin
    if (rst) begin
      address          <= '0;
      data_out_0_valid <= 1'b0;
    end else if (reads) begin
      address          <= (address == AddressWidth'(DEPTH - 1)) ? '0 : address + 1'b1;
      data_out_0_valid <= 1'b1;
    end
  end

  rom #(
      .DATA_WIDTH(DATA_WIDTH),
      .DEPTH(DEPTH),
      .FILE(FILE)
  ) beats (
      .clk,
      .enable(reads),
      .address,
      .data(data_out_0)
  );
endmodule
