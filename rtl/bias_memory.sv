/// The biases of dot products, a word for each beat of results, in a rom with the contents of FILE; zeros without HAS_BIAS.
/// One cycle of latency, two if REGISTERED, one word per cycle. No handshake. Does not check addresses, as rom.
module bias_memory #(
    parameter bit HAS_BIAS = 1'b1,
    parameter int DATA_WIDTH = 16,
    parameter int DEPTH = 16,
    parameter bit REGISTERED = 1'b0,
    parameter FILE = "bias.mem",
    localparam int AddressWidth = (DEPTH > 1) ? $clog2(DEPTH) : 1
) (
    input  logic                    clk,
    input  logic [AddressWidth-1:0] address,
    output logic [  DATA_WIDTH-1:0] data
);
  if (HAS_BIAS) begin : g_bias
    rom #(
        .DATA_WIDTH(DATA_WIDTH),
        .DEPTH(DEPTH),
        .REGISTERED(REGISTERED),
        .FILE(FILE)
    ) biases (
        .clk,
        .enable(1'b1),
        .address,
        .data
    );
  end else begin : g_no_bias
    logic unused;
    assign unused = &{1'b0, clk, address};
    assign data = '0;
  end
endmodule
