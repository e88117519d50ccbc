/// Give every vector of LENGTH beats COUNT times in a row, while the next vector already arrives.
/// Two cycles of latency, one beat per cycle. A beat's place is free again once it was given for the last time, and
/// DEPTH places (LENGTH or more) decide how far the input may run ahead: with 2 * LENGTH it never waits for the output
/// to come round, and the input is as good as never held up if vectors arrive in less time than they are repeated in.
/// With WHOLE a vector is given only once all of it is there, so that its beats follow without a gap.
/// Does not look at the data. `data_in_0_ready` is that of a register.
module repeat_buffer #(
    parameter int DATA_WIDTH = 8,
    parameter int LENGTH     = 4,
    parameter int COUNT      = 2,
    parameter int DEPTH      = 2 * LENGTH,
    parameter bit WHOLE      = 1'b0
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
  if (LENGTH < 1 || COUNT < 1) begin : g_check
    $error("repeat_buffer: LENGTH is %0d and COUNT is %0d; both have to be at least 1", LENGTH, COUNT);
  end
  if (DEPTH < LENGTH) begin : g_check_depth
    $error("repeat_buffer: DEPTH is %0d; it has to hold one vector, LENGTH is %0d", DEPTH, LENGTH);
  end

  localparam int AddressWidth = (DEPTH > 1) ? $clog2(DEPTH) : 1;
  localparam int CountWidth = $clog2(DEPTH + 1);
  localparam int IndexWidth = (LENGTH > 1) ? $clog2(LENGTH) : 1;
  localparam int PassWidth = (COUNT > 1) ? $clog2(COUNT) : 1;
  localparam logic [AddressWidth-1:0] LastAddress = AddressWidth'(DEPTH - 1);
  localparam int NewWidth = $clog2((WHOLE ? DEPTH / LENGTH : DEPTH) + 1);

  logic [AddressWidth-1:0] write_at, read_at, vector_at;
  logic [CountWidth-1:0] held;  // beats that stand in memory from the present vector's first on, less the freed ones
  logic [IndexWidth-1:0] index;
  logic [PassWidth-1:0] pass;
  logic [AddressWidth-1:0] read_next;
  // Beats, or with WHOLE vectors, that have come and that no first pass has reached; `some` tells whether there are any.
  logic [NewWidth-1:0] fresh;
  logic first_pass, last_pass, last_index, push, read, free, full, arrived, some, comes, goes;

  assign first_pass = pass == '0;
  assign last_pass = pass == PassWidth'(COUNT - 1);
  assign last_index = index == IndexWidth'(LENGTH - 1);
  assign data_in_0_ready = !full;
  assign push = data_in_0_valid && data_in_0_ready;
  // In the first pass the present beat may not be there yet; the last pass frees as it goes.
  if (WHOLE) begin : g_whole
    logic last_pushed;
    loop_counter #(
        .COUNT(LENGTH)
    ) beats (
        .clk,
        .rst,
        .step(push),
        .last(last_pushed)
    );
    assign comes = push && last_pushed;
    assign goes = read && first_pass && index == '0;
    assign arrived = !first_pass || index != '0 || some;
  end else begin : g_as_they_come
    assign comes = push;
    assign goes = read && first_pass;
    assign arrived = !first_pass || some;
  end
  assign read = arrived && (!data_out_0_valid || data_out_0_ready);
  assign free = read && last_pass;
  assign read_next = (read_at == LastAddress) ? '0 : read_at + 1'b1;

  always_ff @(posedge clk) begin
    if (rst) begin
      write_at         <= '0;
      read_at          <= '0;
      vector_at        <= '0;
      held             <= '0;
      full             <= 1'b0;
      fresh            <= '0;
      some             <= 1'b0;
      index            <= '0;
      pass             <= '0;
      data_out_0_valid <= 1'b0;
    end else begin
      if (push) write_at <= (write_at == LastAddress) ? '0 : write_at + 1'b1;
      if (comes != goes) fresh <= comes ? fresh + 1'b1 : fresh - 1'b1;
      some <= comes || (fresh >> 1) != '0 || (fresh[0] && !goes);
      if (push != free) held <= push ? held + 1'b1 : held - 1'b1;
      full <= !free && (full || (push && held == CountWidth'(DEPTH - 1)));
      if (read) begin
        index   <= last_index ? '0 : index + 1'b1;
        read_at <= (last_index && !last_pass) ? vector_at : read_next;
        if (last_index) pass <= last_pass ? '0 : pass + 1'b1;
        if (last_index && last_pass) vector_at <= read_next;
        data_out_0_valid <= 1'b1;
      end else if (data_out_0_ready) begin
        data_out_0_valid <= 1'b0;
      end
    end
  end

  ram #(
      .DATA_WIDTH(DATA_WIDTH),
      .DEPTH(DEPTH)
  ) memory (
      .clk,
      .write(push),
      .write_address(write_at),
      .write_data(data_in_0),
      .read,
      .read_address(read_at),
      .read_data(data_out_0)
  );
endmodule
