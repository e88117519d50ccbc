/// One AXI4-Stream of packets, a sample each, in front of a core (FROM_BUS) or behind it: TLAST ends every packet, TKEEP
/// has a bit for each byte of its last beat. The bus carries each element in ELEMENT_BYTES, the first in the low bytes,
/// sign-extended (with SIGNED); of what comes, the bits above PRECISION_0 are ignored.
/// In front of the core: a packet that ends early is filled with zeros, what stands behind the last beat of a sample is
/// dropped up to TLAST, and either, as other bytes than TKEEP promises, counts as one `error`. So each packet is a sample.
/// `rst` drops what is in flight, and what is still to come of a packet that has begun; behind the core, it fills such a
/// packet with zeros: a bus sees neither a torn packet nor a withdrawn beat. `aresetn` forgets all.
/// Two cycles of latency and those of `width_converter`, which sets the rate: lanes of both sides that have no common
/// divisor move one element a cycle. Cuts ready at the bus.
module axi_stream #(
    parameter bit FROM_BUS                    = 1'b1,
    parameter int BUS_WIDTH                   = 32,
    parameter int ELEMENT_BYTES               = 1,
    parameter bit SIGNED                      = 1'b1,
    parameter int DATA_IN_0_PRECISION_0       = 8,
    parameter int DATA_IN_0_TENSOR_SIZE_DIM_0 = 16,
    parameter int DATA_IN_0_PARALLELISM_DIM_0 = 2
) (
    input  logic clk,
    input  logic aresetn,
    input  logic rst,
    input  logic enable,  // low: no packet begins
    output logic sample,  // a sample begins in front of the core, or is complete behind it
    output logic stalls,  // the core waits for the bus
    output logic error,
    output logic active,  // something is left that no counter of samples tells

    input  logic [(FROM_BUS ? BUS_WIDTH : DATA_IN_0_PARALLELISM_DIM_0*DATA_IN_0_PRECISION_0)-1:0] data_in_0,
    input  logic [BUS_WIDTH/8-1:0] data_in_0_keep,
    input  logic data_in_0_last,
    input  logic data_in_0_valid,
    output logic data_in_0_ready,
    output logic [(FROM_BUS ? DATA_IN_0_PARALLELISM_DIM_0*DATA_IN_0_PRECISION_0 : BUS_WIDTH)-1:0] data_out_0,
    output logic [BUS_WIDTH/8-1:0] data_out_0_keep,
    output logic data_out_0_last,
    output logic data_out_0_valid,
    input  logic data_out_0_ready
);
  localparam int Width = DATA_IN_0_PRECISION_0;
  localparam int Room = 8 * ELEMENT_BYTES;
  localparam int Size = DATA_IN_0_TENSOR_SIZE_DIM_0;
  localparam int Lanes = BUS_WIDTH / Room;
  localparam int Beats = (Size + Lanes - 1) / Lanes;
  localparam int Missing = Beats * Lanes - Size;  // elements that the last beat of a packet has no place for
  localparam int Bytes = BUS_WIDTH / 8;
  localparam logic [Bytes-1:0] LastKeep = {Bytes{1'b1}} >> (Missing * ELEMENT_BYTES);

  if (BUS_WIDTH % Room != 0) begin : g_check_bus
    $error("axi_stream: BUS_WIDTH is %0d; it has to be a multiple of %0d, the bits of an element", BUS_WIDTH, Room);
  end
  if (Width > Room) begin : g_check_element
    $error("axi_stream: ELEMENT_BYTES is %0d, too few for elements of %0d bits", ELEMENT_BYTES, Width);
  end
  if (Size % DATA_IN_0_PARALLELISM_DIM_0 != 0) begin : g_check_size
    $error("axi_stream: a sample of %0d is no multiple of %0d", Size, DATA_IN_0_PARALLELISM_DIM_0);
  end

  // Beats of the bus: what came, and what goes on as a packet of the right length.
  logic [BUS_WIDTH-1:0] came, sent;
  logic [Bytes-1:0] came_keep, sent_keep;
  logic came_last, came_valid, came_ready, sent_valid, sent_ready;

  localparam logic [1:0] Pass = 2'd0, Fill = 2'd1, Drop = 2'd2;
  logic [1:0] state;
  logic begun, offers, ends, moves, open, forgets, wrong;

  assign open = state == Pass && (enable || begun || offers);
  assign sent_valid = !rst && (state == Fill || (open && came_valid));
  assign came_ready = !rst && (state == Drop || (open && sent_ready));
  assign sent = state == Fill ? '0 : came;
  assign sent_keep = ends ? LastKeep : '1;
  assign moves = sent_valid && sent_ready;
  assign forgets = !aresetn || (FROM_BUS && rst);

  loop_counter #(.COUNT(Beats)) beats (.clk, .rst(forgets), .step(moves), .last(ends));

  always_ff @(posedge clk) begin
    if (forgets) {begun, offers} <= '0;
    else begin
      if (moves) begun <= !ends;
      offers <= sent_valid && !sent_ready;  // a beat that is offered stays, although `enable` falls
    end
  end

  always_ff @(posedge clk) begin
    if (!aresetn) state <= Pass;
    else if (rst && !FROM_BUS) state <= begun ? Fill : Pass;
    else if (rst) state <= (state == Drop || (state == Pass && begun)) ? Drop : Pass;
    else if (state == Drop) state <= (came_valid && came_last) ? Pass : Drop;
    else if (moves && ends) state <= (state == Pass && !came_last) ? Drop : Pass;
    else if (moves && came_last) state <= Fill;
  end

  always_ff @(posedge clk) begin
    if (forgets) wrong <= 1'b0;
    else if (moves && (ends || came_last)) wrong <= 1'b0;
    else if (moves && came_keep != sent_keep) wrong <= 1'b1;
  end
  assign error = moves && state == Pass && (ends || came_last) && (wrong || ends != came_last || came_keep != sent_keep);

  if (FROM_BUS) begin : g_in
    logic [Lanes*Width-1:0] elements;
    logic unused_bits;

    skid_buffer #(.DATA_WIDTH(BUS_WIDTH + Bytes + 1)) skid (
        .clk,
        .rst(!aresetn),
        .data_in_0({data_in_0_last, data_in_0_keep, data_in_0}),
        .data_in_0_valid,
        .data_in_0_ready,
        .data_out_0({came_last, came_keep, came}),
        .data_out_0_valid(came_valid),
        .data_out_0_ready(came_ready)
    );
    for (genvar lane = 0; lane < Lanes; lane++) begin : g_lane
      assign elements[lane*Width+:Width] = sent[lane*Room+:Width];
    end
    width_converter #(
        .DATA_IN_0_PRECISION_0(Width),
        .DATA_IN_0_PARALLELISM_DIM_0(Lanes),
        .DATA_OUT_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
        .LENGTH(Size)
    ) converter (
        .clk,
        .rst,
        .data_in_0(elements),
        .data_in_0_valid(sent_valid),
        .data_in_0_ready(sent_ready),
        .data_out_0,
        .data_out_0_valid,
        .data_out_0_ready
    );
    assign sample = moves && state == Pass && !begun;
    assign stalls = open && sent_ready && !came_valid;
    assign active = state != Pass;
    assign data_out_0_keep = '1;
    assign data_out_0_last = 1'b0;
    assign unused_bits = &{1'b0, sent, SIGNED};
  end else begin : g_out
    logic [Lanes*Width-1:0] elements, gathered;
    logic unused_inputs;

    width_converter #(
        .DATA_IN_0_PRECISION_0(Width),
        .DATA_IN_0_PARALLELISM_DIM_0(DATA_IN_0_PARALLELISM_DIM_0),
        .DATA_OUT_0_PARALLELISM_DIM_0(Lanes),
        .LENGTH(Size)
    ) converter (
        .clk,
        .rst,
        .data_in_0,
        .data_in_0_valid,
        .data_in_0_ready,
        .data_out_0(gathered),
        .data_out_0_valid(came_valid),
        .data_out_0_ready(came_ready)
    );
    // The rest of a sample stands in the high bits.
    assign elements = ends ? gathered >> (Missing * Width) : gathered;
    for (genvar lane = 0; lane < Lanes; lane++) begin : g_lane
      if (Room == Width) begin : g_same
        assign came[lane*Room+:Room] = elements[lane*Width+:Width];
      end else begin : g_extend
        assign came[lane*Room+:Room] = {
          {(Room - Width) {SIGNED && elements[lane*Width+Width-1]}}, elements[lane*Width+:Width]
        };
      end
    end
    assign came_last = ends;
    assign came_keep = sent_keep;
    // `rst` may withdraw or replace what is offered here: the buffer reads nothing while it is not ready.
    skid_buffer #(.DATA_WIDTH(BUS_WIDTH + Bytes + 1)) skid (
        .clk,
        .rst(!aresetn),
        .data_in_0({ends, sent_keep, sent}),
        .data_in_0_valid(sent_valid),
        .data_in_0_ready(sent_ready),
        .data_out_0({data_out_0_last, data_out_0_keep, data_out_0}),
        .data_out_0_valid,
        .data_out_0_ready
    );
    assign sample = moves && state == Pass && ends;
    assign stalls = data_out_0_valid && !data_out_0_ready;
    assign active = state != Pass || data_out_0_valid;
    assign unused_inputs = &{1'b0, data_in_0_keep, data_in_0_last};
  end
endmodule
