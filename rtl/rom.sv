/// Read-only memory with the contents of FILE ($readmemh: one word a line, hexadecimal).
/// One cycle of latency, one word per cycle; without `enable` the last word stays. No handshake.
/// Put a register behind it before any logic: the clock-to-output time of a block memory leaves none for that.
/// Does not check addresses: those from DEPTH on read anything.
module rom #(
    parameter int DATA_WIDTH = 8,
    parameter int DEPTH = 16,
    parameter FILE = "rom.mem",
    localparam int AddressWidth = (DEPTH > 1) ? $clog2(DEPTH) : 1
) (
    input  logic                    clk,
    input  logic                    enable,
    input  logic [AddressWidth-1:0] address,
    output logic [  DATA_WIDTH-1:0] data
);
  logic [DATA_WIDTH-1:0] memory[DEPTH];

  initial $readmemh(FILE, memory);

  always_ff @(posedge clk) if (enable) data <= memory[address];
endmodule
