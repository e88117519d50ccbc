/// An AXI4 read master: reads COUNT regions of a memory outside again and again, each into a stream of beats.
/// Bursts are of type INCR, of at most BURST beats, and cross no border of 4 KiB: each region begins at one, and so does `base`,
/// whose 12 low bits do not count. A burst is asked for when DEPTH has room for all of it, so `m_axi_rready` never waits for a
/// stream; of the regions with room the highest one is served. Up to OUTSTANDING bursts are under way, answered in order: all
/// have the ID 0. One beat a cycle, a burst every two; 4 cycles from `enable` to the first address, `fifo`'s latency, 3 with a
/// DEPTH of more than 32, from an answer to its stream.
/// Reading begins with `enable`, which is when `base` is looked at. `rst` begins anew with all regions, once the bursts
/// that are under way have come and were dropped; only `aresetn`, the reset of the memory's side, forgets them.
/// `error`: an answer was no OKAY since the last reset; its data are used. Does not write, and knows no weights.
module axi_reader #(
    parameter int COUNT = 2,
    parameter int BUS_WIDTH = 64,
    parameter int BURST = 16,
    parameter int OUTSTANDING = 8,
    parameter int DEPTH = 4 * BURST,
    // 32 bits for each region: its first byte, from `base` on, and its beats
    parameter logic [32*COUNT-1:0] OFFSETS = {COUNT{32'h0000_1000}},
    parameter logic [32*COUNT-1:0] BEATS = {COUNT{32'd20}}
) (
    input  logic                       clk,
    input  logic                       rst,
    input  logic                       aresetn,
    input  logic                       enable,
    input  logic [               63:0] base,
    output logic                       error,
    output logic [COUNT*BUS_WIDTH-1:0] data_out_0,
    output logic [          COUNT-1:0] data_out_0_valid,
    input  logic [          COUNT-1:0] data_out_0_ready,

    output logic [          0:0] m_axi_arid,
    output logic [         63:0] m_axi_araddr,
    output logic [          7:0] m_axi_arlen,
    output logic [          2:0] m_axi_arsize,
    output logic [          1:0] m_axi_arburst,
    output logic [          3:0] m_axi_arcache,
    output logic [          2:0] m_axi_arprot,
    output logic                 m_axi_arvalid,
    input  logic                 m_axi_arready,
    input  logic [          0:0] m_axi_rid,
    input  logic [BUS_WIDTH-1:0] m_axi_rdata,
    input  logic [          1:0] m_axi_rresp,
    input  logic                 m_axi_rlast,
    input  logic                 m_axi_rvalid,
    output logic                 m_axi_rready
);
  localparam int Bytes = BUS_WIDTH / 8;
  localparam int RoomWidth = $clog2(DEPTH + 1);
  localparam int IndexWidth = (COUNT > 1) ? $clog2(COUNT) : 1;

  if (BURST < 1 || BURST > 256 || (BURST & (BURST - 1)) != 0 || BURST * Bytes > 4096) begin : g_check
    $error("axi_reader: bursts of %0d beats of %0d bytes; a power of two up to 256 and 4096 bytes are possible", BURST,
           Bytes);
  end
  if (DEPTH < BURST) begin : g_check_depth
    $error("axi_reader: DEPTH is %0d; it has to hold a burst of %0d beats", DEPTH, BURST);
  end

  logic resets, started, draining;
  logic [51:0] page;

  assign resets = rst || !aresetn;

  always_ff @(posedge clk) begin
    if (resets) started <= 1'b0;
    else if (enable) started <= 1'b1;
  end
  always_ff @(posedge clk) if (!started) page <= base[63:12];

  // First a region is chosen, and the burst's place in it; in the next cycle the burst is asked for.
  logic [COUNT-1:0] wants, moves;
  logic [COUNT*32-1:0] places;
  logic [COUNT*8-1:0] lengths;
  logic [IndexWidth-1:0] wanted, chosen, owner;
  logic [31:0] place;
  logic [7:0] length;
  logic picks, holds, asks, order_ready, owner_valid;

  always_comb begin
    wanted = '0;
    for (int k = 0; k < COUNT; k++) if (wants[k]) wanted = IndexWidth'(k);
  end

  assign picks = started && !draining && !holds && wants != '0;
  assign asks = holds && !rst && order_ready && (!m_axi_arvalid || m_axi_arready);

  always_ff @(posedge clk) begin
    if (resets) holds <= 1'b0;
    else holds <= holds ? !asks : picks;
  end
  always_ff @(posedge clk) begin
    if (picks) begin
      chosen <= wanted;
      place  <= places[32*wanted+:32];
      length <= lengths[8*wanted+:8];
    end
  end

  always_ff @(posedge clk) begin
    if (!aresetn) m_axi_arvalid <= 1'b0;
    else m_axi_arvalid <= asks || (m_axi_arvalid && !m_axi_arready);
  end
  always_ff @(posedge clk) begin
    if (asks) begin
      m_axi_araddr <= {page, 12'h000} + 64'(place);
      m_axi_arlen  <= length;
    end
  end

  assign m_axi_arid = '0;
  assign m_axi_arsize = 3'($clog2(Bytes));
  assign m_axi_arburst = 2'b01;
  assign m_axi_arcache = 4'b0011;
  assign m_axi_arprot = 3'b000;

  // Whose the bursts are that are under way, in their order.
  fifo #(
      .DATA_WIDTH(IndexWidth),
      .DEPTH(OUTSTANDING)
  ) order (
      .clk,
      .rst(!aresetn),
      .data_in_0(chosen),
      .data_in_0_valid(asks),
      .data_in_0_ready(order_ready),
      .data_out_0(owner),
      .data_out_0_valid(owner_valid),
      .data_out_0_ready(m_axi_rvalid && m_axi_rlast)
  );

  assign m_axi_rready = owner_valid;

  always_ff @(posedge clk) begin
    if (!aresetn) draining <= 1'b0;
    else draining <= rst || (draining && owner_valid);
  end
  always_ff @(posedge clk) begin
    if (resets) error <= 1'b0;
    else if (m_axi_rvalid && m_axi_rready && m_axi_rresp != '0) error <= 1'b1;
  end

  for (genvar k = 0; k < COUNT; k++) begin : g_region
    localparam logic [31:0] Offset = OFFSETS[32*k+:32];
    localparam logic [31:0] Beats = BEATS[32*k+:32];
    localparam logic [RoomWidth-1:0] First = (Beats <= 32'(BURST)) ? RoomWidth'(Beats) : RoomWidth'(BURST);

    if (Offset[11:0] != '0) begin : g_check_offset
      $error("axi_reader: region %0d begins at byte %0d, which is no multiple of 4096", k, Offset);
    end

    // Of the burst that would be asked for next; a region is picked in every second cycle at most, so these may follow
    // `position` a cycle later. `spare` is the room in the fifo beside a burst: its sign tells whether that fits.
    logic [31:0] position, offset, left;
    logic [RoomWidth-1:0] count;
    logic signed [RoomWidth:0] spare;
    logic ends, picked, unused_ready;

    assign picked = picks && wanted == IndexWidth'(k);
    assign moves[k] = data_out_0_valid[k] && data_out_0_ready[k];
    assign wants[k] = !spare[RoomWidth];

    always_ff @(posedge clk) begin
      if (resets) begin
        position <= '0;
        left     <= Beats;
        spare    <= (RoomWidth + 1)'(DEPTH - BURST);
        ends     <= Beats <= 32'(BURST);
        count    <= First;
        offset   <= Offset;
      end else begin
        if (picked) position <= ends ? '0 : position + 32'(BURST);
        if (picked) left <= ends ? Beats : left - 32'(BURST);
        spare <= spare - (picked ? (RoomWidth + 1)'(count) : '0) + (RoomWidth + 1)'(moves[k]);
        ends   <= left <= 32'(BURST);
        count  <= (left <= 32'(BURST)) ? RoomWidth'(left) : RoomWidth'(BURST);
        offset <= Offset + position * 32'(Bytes);
      end
    end
    assign places[32*k+:32] = offset;
    assign lengths[8*k+:8] = 8'(9'(count) - 9'd1);

    fifo #(
        .DATA_WIDTH(BUS_WIDTH),
        .DEPTH(DEPTH)
    ) beats (
        .clk,
        .rst(resets),
        .data_in_0(m_axi_rdata),
        .data_in_0_valid(m_axi_rvalid && m_axi_rready && !draining && owner == IndexWidth'(k)),
        .data_in_0_ready(unused_ready),  // `spare` has seen to it
        .data_out_0(data_out_0[k*BUS_WIDTH+:BUS_WIDTH]),
        .data_out_0_valid(data_out_0_valid[k]),
        .data_out_0_ready(data_out_0_ready[k])
    );
  end

  logic unused_bits;
  assign unused_bits = &{1'b0, base[11:0], m_axi_rid};
endmodule
