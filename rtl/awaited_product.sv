/// A product in a pipeline whose stages move together: fixed_product with BARE, or with SERIAL a serial_multiply.
/// `wanted` is high while both factors are there. One cycle of latency, and `done` is always high; with SERIAL it is low
/// for the first DATA_IN_1_PRECISION_0 + 1 cycles in which a product is wanted, and `moves` has to be low until then.
/// After SERIAL's move the product stays until the next one is wanted.
module awaited_product #(
    parameter int DATA_IN_0_PRECISION_0 = 8,
    parameter int DATA_IN_1_PRECISION_0 = 8,
    parameter bit SERIAL                = 1'b0,
    localparam int Width                = DATA_IN_0_PRECISION_0 + DATA_IN_1_PRECISION_0
) (
    input  logic                                    clk,
    input  logic                                    rst,
    input  logic                                    moves,
    input  logic                                    wanted,
    input  logic signed [DATA_IN_0_PRECISION_0-1:0] data_in_0,
    input  logic signed [DATA_IN_1_PRECISION_0-1:0] data_in_1,
    output logic                                    done,
    output logic signed [                Width-1:0] product
);
  if (SERIAL) begin : g_serial
    logic made, unused_ready, unused_beside;
    serial_multiply #(
        .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
        .DATA_IN_1_PRECISION_0(DATA_IN_1_PRECISION_0),
        .LANES(1)
    ) multiply (
        .clk,
        .rst,
        .data_in_0(data_in_0),
        .data_in_1(data_in_1),
        .beside(1'b0),
        .data_in_0_valid(wanted && !made),
        .data_in_0_ready(unused_ready),
        .data_out_0(product),
        .beside_out(unused_beside),
        .data_out_0_valid(made),
        .data_out_0_ready(moves)
    );
    assign done = !wanted || made;
  end else begin : g_at_once
    logic unused;
    fixed_product #(
        .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
        .DATA_IN_1_PRECISION_0(DATA_IN_1_PRECISION_0),
        .BARE(1'b1)
    ) multiply (
        .clk,
        .moves,
        .data_in_0,
        .data_in_1,
        .product
    );
    assign done   = 1'b1;
    assign unused = &{1'b0, rst, wanted};
  end
endmodule
