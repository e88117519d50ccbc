/// The exact product of two signed numbers, with a register for it, and one for the factors unless BARE.
/// Two cycles of latency, or one, and one product a cycle; all registers stand still while `moves` is low.
/// A factor of more than 18 bits needs several multipliers: their products have the first register, and the sum of these has
/// the second, so that factors should come from registers; with BARE, all of it is one cycle.
module fixed_product #(
    parameter int DATA_IN_0_PRECISION_0 = 8,
    parameter int DATA_IN_1_PRECISION_0 = 8,
    parameter bit BARE                  = 1'b0,
    localparam int Width                = DATA_IN_0_PRECISION_0 + DATA_IN_1_PRECISION_0
) (
    input  logic                                    clk,
    input  logic                                    moves,
    input  logic signed [DATA_IN_0_PRECISION_0-1:0] data_in_0,
    input  logic signed [DATA_IN_1_PRECISION_0-1:0] data_in_1,
    output logic signed [                Width-1:0] product
);
  // Bits of a number in parts of 17, of which the highest keeps the sign, and may have 18.
  localparam int Parts0 = (DATA_IN_0_PRECISION_0 > 18) ? (DATA_IN_0_PRECISION_0 + 15) / 17 : 1;
  localparam int Parts1 = (DATA_IN_1_PRECISION_0 > 18) ? (DATA_IN_1_PRECISION_0 + 15) / 17 : 1;

  if (!BARE && Parts0 * Parts1 > 1) begin : g_parts
    logic [Parts0*Parts1*Width-1:0] placed;
    for (genvar i = 0; i < Parts0; i++) begin : g_of_0
      for (genvar j = 0; j < Parts1; j++) begin : g_of_1
        localparam int Bits0 = (i < Parts0 - 1) ? 18 : DATA_IN_0_PRECISION_0 - 17 * i;
        localparam int Bits1 = (j < Parts1 - 1) ? 18 : DATA_IN_1_PRECISION_0 - 17 * j;
        logic signed [Bits0-1:0] left;
        logic signed [Bits1-1:0] right;
        logic signed [Bits0+Bits1-1:0] part;
        if (i < Parts0 - 1) begin : g_low_0
          assign left = {1'b0, data_in_0[17*i+:17]};
        end else begin : g_high_0
          assign left = data_in_0[17*i+:Bits0];
        end
        if (j < Parts1 - 1) begin : g_low_1
          assign right = {1'b0, data_in_1[17*j+:17]};
        end else begin : g_high_1
          assign right = data_in_1[17*j+:Bits1];
        end
        multiplier #(
            .DATA_IN_0_PRECISION_0(Bits0),
            .DATA_IN_1_PRECISION_0(Bits1),
            .BARE(1'b1)
        ) multiplies (
            .clk,
            .moves,
            .data_in_0(left),
            .data_in_1(right),
            .product(part)
        );
        assign placed[(i*Parts1+j)*Width+:Width] = Width'(part) <<< (17 * (i + j));
      end
    end
    logic signed [Width-1:0] sum;
    always_comb begin
      sum = '0;
      for (int at = 0; at < Parts0 * Parts1; at++) sum += placed[at*Width+:Width];
    end
    always_ff @(posedge clk) if (moves) product <= sum;
  end else begin : g_whole
    multiplier #(
        .DATA_IN_0_PRECISION_0(DATA_IN_0_PRECISION_0),
        .DATA_IN_1_PRECISION_0(DATA_IN_1_PRECISION_0),
        .BARE(BARE)
    ) multiplies (
        .clk,
        .moves,
        .data_in_0,
        .data_in_1,
        .product
    );
  end
endmodule
