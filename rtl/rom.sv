/// Read-only memory with the contents of FILE ($readmemh: one word a line, hexadecimal).
/// One cycle of latency, two if REGISTERED, one word per cycle; without `enable` all stays. No handshake.
/// The clock-to-output time of a block memory leaves none for logic: put a register behind it, or have it REGISTERED.
/// Does not check addresses: those from DEPTH on read anything.
module rom #(
    parameter int DATA_WIDTH = 8,
    parameter int DEPTH = 16,
    parameter bit REGISTERED = 1'b0,
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

  // More than 1,024 words stand in rows of several, of which one is chosen behind the second register.
  localparam int ChoiceWidth = (REGISTERED && DEPTH > 1024) ? $clog2((DEPTH + 1023) / 1024) : 0;
  logic [2**ChoiceWidth*DATA_WIDTH-1:0] line;

  if (ChoiceWidth > 0) begin : g_rows
    for (genvar at = 0; at < 2 ** ChoiceWidth; at++) begin : g_word
      localparam logic [ChoiceWidth-1:0] At = at;
      always_ff @(posedge clk) begin
        if (enable) line[at*DATA_WIDTH+:DATA_WIDTH] <= memory[{address[AddressWidth-1:ChoiceWidth], At}];
      end
    end
    logic [2**ChoiceWidth*DATA_WIDTH-1:0] line_1;
    logic [ChoiceWidth-1:0] choice, choice_1;
    always_ff @(posedge clk) if (enable) {line_1, choice_1, choice} <= {line, choice, address[ChoiceWidth-1:0]};
    assign data = line_1[choice_1*DATA_WIDTH+:DATA_WIDTH];
  end else begin : g_words
    always_ff @(posedge clk) if (enable) line <= memory[address];
    if (REGISTERED) begin : g_register
      always_ff @(posedge clk) if (enable) data <= line;
    end else begin : g_wire
      assign data = line;
    end
  end
endmodule
