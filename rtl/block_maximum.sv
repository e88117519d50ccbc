/// The largest magnitude of each block of BLOCK_SIZE numbers, beside the beats of the block. `largest_doubled` is twice the
/// magnitude, one less for a negative number: that keeps their order, and no sum is needed before the comparison.
/// Its latency, storage and path of ready are those of `row_statistic`. Does not take blocks that PAR does not divide.
module block_maximum #(
    parameter int DATA_IN_0_PRECISION_0       = 16,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 2,
    parameter int BLOCK_SIZE                  = 8,
    localparam int InWidth                    = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0
) (
    input  logic                           clk,
    input  logic                           rst,
    input  logic [            InWidth-1:0] data_in_0,
    input  logic                           data_in_0_valid,
    output logic                           data_in_0_ready,
    output logic [            InWidth-1:0] data_out_0,
    output logic [DATA_IN_0_PRECISION_0:0] largest_doubled,
    output logic                           data_out_0_valid,
    input  logic                           data_out_0_ready
);
  localparam int Lanes = DATA_IN_0_PARALLELISM_DIM_0;
  localparam int Width = DATA_IN_0_PRECISION_0;

  logic [Lanes*(Width+1)-1:0] doubled;
  for (genvar lane = 0; lane < Lanes; lane++) begin : g_doubled
    logic [Width-1:0] number;
    assign number = data_in_0[lane*Width+:Width];
    assign doubled[lane*(Width+1)+:Width+1] = {1'b0, number[Width-2:0] ^ {(Width - 1) {number[Width-1]}}, number[Width-1]};
  end

  row_statistic #(
      .DATA_IN_0_PRECISION_0(Width),
      .DATA_IN_0_PARALLELISM_DIM_0(Lanes),
      .BEATS(BLOCK_SIZE / Lanes),
      .MAXIMUM(1'b1),
      .REDUCED_PRECISION(Width + 1)
  ) largest_of_block (
      .clk,
      .rst,
      .data_in_0,
      .reduced(doubled),
      .data_in_0_valid,
      .data_in_0_ready,
      .data_out_0,
      .statistic(largest_doubled),
      .data_out_0_valid,
      .data_out_0_ready
  );
endmodule
