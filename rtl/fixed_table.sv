/// Any function of one number, from a table: GELU, SiLU, sigmoid, tanh, exp ... A lane has a table for itself.
/// Two cycles of latency, one beat per cycle. FILE has a word for each integer of the input, in the order of its bits
/// taken without a sign: 0, 1, ... and then the negative ones. So 2**DATA_IN_0_PRECISION_0 words: for narrow numbers.
/// Does not cut the ready path. Is arithmetic.look_up in Python.
module fixed_table #(
    parameter int DATA_IN_0_PRECISION_0       = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 1,
    parameter int DATA_OUT_0_PRECISION_0      = 8,
    parameter     FILE                        = "table.mem",
    localparam int InWidth                    = DATA_IN_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int OutWidth                   = DATA_IN_0_PARALLELISM_DIM_0 * DATA_OUT_0_PRECISION_0
) (
    input  logic                clk,
    input  logic                rst,
    input  logic [ InWidth-1:0] data_in_0,
    input  logic                data_in_0_valid,
    output logic                data_in_0_ready,
    output logic [OutWidth-1:0] data_out_0,
    output logic                data_out_0_valid,
    input  logic                data_out_0_ready
);
  logic valid_1;
  assign data_in_0_ready = !data_out_0_valid || data_out_0_ready;

  always_ff @(posedge clk) begin
    if (rst) {data_out_0_valid, valid_1} <= '0;
    else if (data_in_0_ready) {data_out_0_valid, valid_1} <= {valid_1, data_in_0_valid};
  end

  for (genvar lane = 0; lane < DATA_IN_0_PARALLELISM_DIM_0; lane++) begin : g_lane
    rom #(
        .DATA_WIDTH(DATA_OUT_0_PRECISION_0),
        .DEPTH(2 ** DATA_IN_0_PRECISION_0),
        .REGISTERED(1'b1),
        .FILE(FILE)
    ) words (
        .clk,
        .enable(data_in_0_ready),
        .address(data_in_0[lane*DATA_IN_0_PRECISION_0+:DATA_IN_0_PRECISION_0]),
        .data(data_out_0[lane*DATA_OUT_0_PRECISION_0+:DATA_OUT_0_PRECISION_0])
    );
  end
endmodule
