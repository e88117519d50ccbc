/// Change how many elements a beat carries, by any ratio: the order of the elements stays.
/// Goes through their greatest common divisor: GCD elements per cycle at most, so 6 to 4 lanes runs at 2 a cycle.
/// One cycle of latency for each of the two steps that is needed. A tensor has to be a multiple of both numbers,
/// or of one with LENGTH, its elements: its last beat on the other side is then partly used, as in the two steps.
/// Does not cut the ready path; equal numbers are wires.
module width_converter #(
    parameter int DATA_IN_0_PRECISION_0        = 8,
    parameter int DATA_IN_0_PARALLELISM_DIM_0  = 4,
    parameter int DATA_OUT_0_PARALLELISM_DIM_0 = 6,
    parameter int LENGTH                       = 0
) (
    input  logic                                                          clk,
    input  logic                                                          rst,
    input  logic [ DATA_IN_0_PARALLELISM_DIM_0*DATA_IN_0_PRECISION_0-1:0] data_in_0,
    input  logic                                                          data_in_0_valid,
    output logic                                                          data_in_0_ready,
    output logic [DATA_OUT_0_PARALLELISM_DIM_0*DATA_IN_0_PRECISION_0-1:0] data_out_0,
    output logic                                                          data_out_0_valid,
    input  logic                                                          data_out_0_ready
);
  // A layer of a model may have one of these names: that is no fault.
  /* verilator lint_off VARHIDDEN */
  function automatic integer common_divisor(input integer first, input integer second);
    integer a, b, rest;
    a = first;
    b = second;
    for (integer step = 0; step < 64; step = step + 1) begin
      if (b != 0) begin
        rest = a % b;
        a = b;
        b = rest;
      end
    end
    common_divisor = a;
  endfunction
  /* verilator lint_on VARHIDDEN */

  localparam int Common = common_divisor(DATA_IN_0_PARALLELISM_DIM_0, DATA_OUT_0_PARALLELISM_DIM_0);
  localparam int Split = DATA_IN_0_PARALLELISM_DIM_0 / Common;
  localparam int Gather = DATA_OUT_0_PARALLELISM_DIM_0 / Common;
  localparam int Width = Common * DATA_IN_0_PRECISION_0;

  logic [Width-1:0] between;
  logic between_valid, between_ready;

  if (Split == 1) begin : g_whole
    assign between = data_in_0;
    assign between_valid = data_in_0_valid;
    assign data_in_0_ready = between_ready;
  end else begin : g_split
    width_downsizer #(
        .DATA_WIDTH(Width),
        .RATIO(Split),
        .LENGTH(LENGTH / Common)
    ) downsizer (
        .clk,
        .rst,
        .data_in_0,
        .data_in_0_valid,
        .data_in_0_ready,
        .data_out_0(between),
        .data_out_0_valid(between_valid),
        .data_out_0_ready(between_ready)
    );
  end

  if (Gather == 1) begin : g_single
    assign data_out_0 = between;
    assign data_out_0_valid = between_valid;
    assign between_ready = data_out_0_ready;
  end else begin : g_gather
    width_upsizer #(
        .DATA_WIDTH(Width),
        .RATIO(Gather),
        .LENGTH(LENGTH / Common)
    ) upsizer (
        .clk,
        .rst,
        .data_in_0(between),
        .data_in_0_valid(between_valid),
        .data_in_0_ready(between_ready),
        .data_out_0,
        .data_out_0_valid,
        .data_out_0_ready
    );
  end

  if (Split == 1 && Gather == 1) begin : g_wires
    logic unused_clock;
    assign unused_clock = &{1'b0, clk, rst};
  end
endmodule
