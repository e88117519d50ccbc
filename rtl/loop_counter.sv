/// Counts steps from 0 to COUNT - 1 and begins again: one loop of a nest. `last` is high in the last one.
/// No latency: `last` belongs to the present step. With COUNT 1 it is a constant.
module loop_counter #(
    parameter int COUNT = 4
) (
    input  logic clk,
    input  logic rst,
    input  logic step,
    output logic last
);
  if (COUNT < 1) begin : g_check
    $error("loop_counter: COUNT is %0d; it has to be at least 1", COUNT);
  end else if (COUNT == 1) begin : g_once
    logic unused_inputs;
    assign unused_inputs = &{1'b0, clk, rst, step};
    assign last = 1'b1;
  end else begin : g_counts
    localparam int Width = $clog2(COUNT);
    logic [Width-1:0] index;
    // A register of its own: in nests `last` is at the head of long paths.
    always_ff @(posedge clk) begin
      if (rst) {index, last} <= '0;
      else if (step) begin
        index <= last ? '0 : index + 1'b1;
        last  <= index == Width'(COUNT - 2);
      end
    end
  end
endmodule
