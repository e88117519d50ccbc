/// A memory with one port to write and one to read, as SRAM macros have them (1R1W, one clock). Every memory of more than
/// a few words that is written stands in here, so that a macro takes the place of this file alone.
/// One cycle of latency, one word per cycle on each port; without `read` the last word stays in `read_data`.
/// A word that is read in the cycle in which it is written has no meaning, nor has one that was never written: no component
/// uses such a word, and synthesis need not build a way round. There is no reset.
/// Does not check addresses: nothing may be written from DEPTH on, and what is read there has no meaning.
module ram #(
    parameter int DATA_WIDTH = 8,
    parameter int DEPTH = 16,
    localparam int AddressWidth = (DEPTH > 1) ? $clog2(DEPTH) : 1
) (
    input  logic                    clk,
    input  logic                    write,
    input  logic [AddressWidth-1:0] write_address,
    input  logic [  DATA_WIDTH-1:0] write_data,
    input  logic                    read,
    input  logic [AddressWidth-1:0] read_address,
    output logic [  DATA_WIDTH-1:0] read_data
);
  (* no_rw_check *)
  logic [DATA_WIDTH-1:0] words[DEPTH];

  always_ff @(posedge clk) begin
    if (write) words[write_address] <= write_data;
    if (read) read_data <= words[read_address];
  end
endmodule
