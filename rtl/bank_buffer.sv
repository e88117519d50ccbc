/// A matrix that streams in by rows, to be read BANKS rows at a time in any order, while the next one arrives.
/// ROWS rows of BEATS beats; row r stands in bank r % BANKS. Reading has one cycle of latency: at `address`
/// block * BEATS + beat are that beat of rows block * BANKS to block * BANKS + BANKS - 1, side by side, where `reads` is high.
/// `full` says that a whole matrix may be read; `done` gives its place away, in the cycle of the last read.
/// Stores two matrices. `data_in_0_ready` depends on registers alone.
/// BANKS need not divide the rows: what is read beside the last ones has no meaning.
module bank_buffer #(
    parameter int DATA_WIDTH = 8,
    parameter int ROWS = 4,
    parameter int BEATS = 2,
    parameter int BANKS = 2,
    localparam int Depth = (ROWS + BANKS - 1) / BANKS * BEATS,
    localparam int AddressWidth = (Depth > 1) ? $clog2(Depth) : 1
) (
    input  logic                        clk,
    input  logic                        rst,
    input  logic [      DATA_WIDTH-1:0] data_in_0,
    input  logic                        data_in_0_valid,
    output logic                        data_in_0_ready,
    output logic                        full,
    input  logic                        done,
    input  logic [    AddressWidth-1:0] address,
    input  logic                        reads,
    output logic [BANKS*DATA_WIDTH-1:0] data
);
  localparam int PlaceWidth = $clog2(2 * Depth);
  localparam int BankWidth = (BANKS > 1) ? $clog2(BANKS) : 1;

  logic [1:0] held;  // whole matrices
  logic write_half, read_half, push, last_beat, last_bank, last_row, ends;
  logic [BankWidth-1:0] bank;
  logic [PlaceWidth-1:0] write_at, row_at, read_at, half_at;

  loop_counter #(
      .COUNT(BEATS)
  ) beats (
      .clk,
      .rst,
      .step(push),
      .last(last_beat)
  );
  loop_counter #(
      .COUNT(ROWS)
  ) rows (
      .clk,
      .rst,
      .step(push && last_beat),
      .last(last_row)
  );

  assign data_in_0_ready = !held[1];
  assign push = data_in_0_valid && data_in_0_ready;
  assign full = held != '0;
  assign last_bank = bank == BankWidth'(BANKS - 1);
  assign ends = push && last_beat && last_row;
  assign half_at = write_half ? '0 : PlaceWidth'(Depth);
  assign read_at = PlaceWidth'(address) + (read_half ? PlaceWidth'(Depth) : '0);

  always_ff @(posedge clk) begin
    if (rst) begin
      held       <= '0;
      write_half <= 1'b0;
      read_half  <= 1'b0;
      bank       <= '0;
      write_at   <= '0;
      row_at     <= '0;
    end else begin
      if (ends != done) held <= done ? held - 1'b1 : held + 1'b1;
      if (done) read_half <= !read_half;
      if (ends) write_half <= !write_half;
      if (push && last_beat) bank <= (last_bank || last_row) ? '0 : bank + 1'b1;
      // The rows of a block stand at the same places of different banks.
      if (ends) {row_at, write_at} <= {half_at, half_at};
      else if (push && last_beat && last_bank) {row_at, write_at} <= {2{write_at + 1'b1}};
      else if (push && last_beat) write_at <= row_at;
      else if (push) write_at <= write_at + 1'b1;
    end
  end

  for (genvar at = 0; at < BANKS; at++) begin : g_bank
    ram #(
        .DATA_WIDTH(DATA_WIDTH),
        .DEPTH(2 * Depth)
    ) memory (
        .clk,
        .write(push && bank == BankWidth'(at)),
        .write_address(write_at),
        .write_data(data_in_0),
        .read(reads),
        .read_address(read_at),
        .read_data(data[at*DATA_WIDTH+:DATA_WIDTH])
    );
  end
endmodule
