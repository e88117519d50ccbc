/// Every beat of a row again, beside the largest element, or the sum, of that row.
/// BEATS + 2 cycles of latency for a row's first beat, one beat per cycle, the next row arrives meanwhile.
/// Stores two rows. Cuts the path of valid and data; of ready but for the fork before it.
module row_statistic #(
    parameter int DATA_IN_0_PRECISION_0 = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 2,
    parameter int BEATS = 4,
    parameter bit MAXIMUM = 1'b1,
    // Elements may be reduced in another form: `reduced` is a function of data_in_0, as wide as REDUCED_PRECISION says.
    parameter int REDUCED_PRECISION = 8,
    localparam int InWidth = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int OutPrecision = MAXIMUM ? REDUCED_PRECISION
        : REDUCED_PRECISION + $clog2(BEATS) + $clog2(DATA_IN_0_PARALLELISM_DIM_0)
) (
    input  logic                                                     clk,
    input  logic                                                     rst,
    input  logic [                                      InWidth-1:0] data_in_0,
    input  logic [DATA_IN_0_PARALLELISM_DIM_0*REDUCED_PRECISION-1:0] reduced,
    input  logic                                                     data_in_0_valid,
    output logic                                                     data_in_0_ready,
    output logic [                                      InWidth-1:0] data_out_0,
    output logic [                                 OutPrecision-1:0] statistic,
    output logic                                                     data_out_0_valid,
    input  logic                                                     data_out_0_ready
);
  logic [1:0] branch_valid, branch_ready;
  logic row_valid, row_ready, found_valid, found_ready, held_valid, held_ready;
  logic [OutPrecision-1:0] found;

  stream_fork #(
      .COUNT(2)
  ) forks (
      .clk,
      .rst,
      .data_in_0_valid,
      .data_in_0_ready,
      .data_out_0_valid(branch_valid),
      .data_out_0_ready(branch_ready)
  );

  fifo #(
      .DATA_WIDTH(InWidth),
      .DEPTH(2 * BEATS + 4)
  ) rows (
      .clk,
      .rst,
      .data_in_0,
      .data_in_0_valid(branch_valid[0]),
      .data_in_0_ready(branch_ready[0]),
      .data_out_0,
      .data_out_0_valid(row_valid),
      .data_out_0_ready(row_ready)
  );

  fixed_row_reduce #(
      .DATA_IN_0_PRECISION_0(REDUCED_PRECISION),
      .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
      .BEATS(BEATS),
      .MAXIMUM(MAXIMUM)
  ) reduce (
      .clk,
      .rst,
      .data_in_0(reduced),
      .data_in_0_valid(branch_valid[1]),
      .data_in_0_ready(branch_ready[1]),
      .data_out_0(found),
      .data_out_0_valid(found_valid),
      .data_out_0_ready(found_ready)
  );

  skid_buffer #(
      .DATA_WIDTH(OutPrecision)
  ) found_buffer (
      .clk,
      .rst,
      .data_in_0(found),
      .data_in_0_valid(found_valid),
      .data_in_0_ready(found_ready),
      .data_out_0(statistic),
      .data_out_0_valid(held_valid),
      .data_out_0_ready(held_ready)
  );

  stream_hold #(
      .COUNT(BEATS)
  ) hold (
      .clk,
      .rst,
      .data_in_0_valid(row_valid),
      .data_in_0_ready(row_ready),
      .value_valid(held_valid),
      .value_ready(held_ready),
      .data_out_0_valid,
      .data_out_0_ready
  );
endmodule
