/// A few words that are read in the cycle of their address: distributed memory in an FPGA, flip-flops in a chip, where a
/// macro would be larger. One cycle from a write until the word is there, no latency of reading, no reset.
/// A word that is read in the cycle in which it is written has no meaning, nor has one that was never written.
/// Does not check addresses, as `ram`, which more words belong into.
module register_file #(
    parameter int DATA_WIDTH = 8,
    parameter int DEPTH = 16,
    localparam int AddressWidth = (DEPTH > 1) ? $clog2(DEPTH) : 1
) (
    input  logic                    clk,
    input  logic                    write,
    input  logic [AddressWidth-1:0] write_address,
    input  logic [  DATA_WIDTH-1:0] write_data,
    input  logic [AddressWidth-1:0] read_address,
    output logic [  DATA_WIDTH-1:0] read_data
);
  (* no_rw_check *)
  logic [DATA_WIDTH-1:0] words[DEPTH];

  always_ff @(posedge clk) if (write) words[write_address] <= write_data;
  assign read_data = words[read_address];
endmodule
