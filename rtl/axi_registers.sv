/// The registers of a core with AXI4-Streams, as an AXI4-Lite slave of 32 bits and 4 KiB: README.md has their map.
/// Address and data of a write come in any order and are answered two cycles after the last of both, a read one cycle after
/// its address, the next in no less than two. Answers come from registers. What has no register, and a write to one
/// that only tells, is answered by SLVERR. `rst` is high with !aresetn and one cycle after
/// a write of the soft reset, which clears all counters. Samples in flight are those that the counters of the streams
/// differ by.
module axi_registers #(
    parameter int INPUTS = 1,
    parameter int OUTPUTS = 1,
    parameter int BUS_WIDTH = 32,
    parameter bit ENABLED = 1'b0,  // after reset
    parameter logic [31:0] CHECKSUM = 32'd0,
    // 32 bits for each stream, the inputs first: bytes of a packet, and the format of an element
    parameter logic [32*(INPUTS+OUTPUTS)-1:0] SIZES = '0,
    parameter logic [32*(INPUTS+OUTPUTS)-1:0] FORMATS = '0,
    // the weights outside: where they are after reset, and their image
    parameter logic [63:0] WEIGHTS_BASE = 64'd0,
    parameter logic [31:0] WEIGHTS_BYTES = 32'd0,
    parameter logic [31:0] WEIGHTS_CHECKSUM = 32'd0
) (
    input  logic        clk,
    input  logic        aresetn,
    output logic        rst,
    output logic        enable,
    input  logic [INPUTS+OUTPUTS-1:0] samples,  // one of each stream in this cycle
    input  logic [INPUTS+OUTPUTS-1:0] stalls,
    input  logic [INPUTS+OUTPUTS-1:0] errors,
    input  logic [INPUTS+OUTPUTS-1:0] active,
    output logic [63:0] weights_base,
    input  logic        weights_error,

    input  logic [11:0] s_axi_awaddr,
    input  logic [ 2:0] s_axi_awprot,
    input  logic        s_axi_awvalid,
    output logic        s_axi_awready,
    input  logic [31:0] s_axi_wdata,
    input  logic [ 3:0] s_axi_wstrb,
    input  logic        s_axi_wvalid,
    output logic        s_axi_wready,
    output logic [ 1:0] s_axi_bresp,
    output logic        s_axi_bvalid,
    input  logic        s_axi_bready,
    input  logic [11:0] s_axi_araddr,
    input  logic [ 2:0] s_axi_arprot,
    input  logic        s_axi_arvalid,
    output logic        s_axi_arready,
    output logic [31:0] s_axi_rdata,
    output logic [ 1:0] s_axi_rresp,
    output logic        s_axi_rvalid,
    input  logic        s_axi_rready
);
  localparam int Streams = INPUTS + OUTPUTS;
  localparam logic [1:0] Okay = 2'b00, SlaveError = 2'b10;
  localparam logic [9:0] Control = 10'h002, WeightsLow = 10'h008, WeightsHigh = 10'h009;  // as words
  // Where the registers of the streams begin, in blocks of eight words.
  localparam int First = 2;

  logic [32*Streams-1:0] sample_counts, stall_counts, error_counts;
  logic [Streams-1:0] differs;
  logic [31:0] cycles;
  logic busy, failed, resets;

  assign rst = !aresetn || resets;
  assign busy = |differs || |active;

  for (genvar k = 0; k < Streams; k++) begin : g_stream
    assign differs[k] = sample_counts[32*k+:32] != sample_counts[31:0];
    always_ff @(posedge clk) begin
      if (rst) begin
        sample_counts[32*k+:32] <= '0;
        stall_counts[32*k+:32] <= '0;
        error_counts[32*k+:32] <= '0;
      end else begin
        if (samples[k]) sample_counts[32*k+:32] <= sample_counts[32*k+:32] + 1'b1;
        if (stalls[k] && busy) stall_counts[32*k+:32] <= stall_counts[32*k+:32] + 1'b1;
        if (errors[k]) error_counts[32*k+:32] <= error_counts[32*k+:32] + 1'b1;
      end
    end
  end

  always_ff @(posedge clk) begin
    if (rst) {failed, cycles} <= '0;
    else begin
      if (|errors) failed <= 1'b1;
      if (busy) cycles <= cycles + 1'b1;
    end
  end

  // Writes.
  logic [9:0] write_word;
  logic [31:0] write_data;
  logic [3:0] write_strobe;
  logic has_address, has_data, writes, writes_control, writes_low, writes_high;

  assign s_axi_awready = !has_address;
  assign s_axi_wready = !has_data;
  assign writes = has_address && has_data && !s_axi_bvalid;
  assign writes_control = writes && write_word == Control;
  assign writes_low = writes && write_word == WeightsLow;
  assign writes_high = writes && write_word == WeightsHigh;

  always_ff @(posedge clk) begin
    if (!aresetn) {has_address, has_data, s_axi_bvalid} <= '0;
    else begin
      has_address <= has_address ? !writes : s_axi_awvalid;
      has_data <= has_data ? !writes : s_axi_wvalid;
      s_axi_bvalid <= s_axi_bvalid ? !s_axi_bready : writes;
    end
  end
  always_ff @(posedge clk) begin
    if (!has_address) write_word <= s_axi_awaddr[11:2];
    if (!has_data) {write_strobe, write_data} <= {s_axi_wstrb, s_axi_wdata};
    if (writes) s_axi_bresp <= (writes_control || writes_low || writes_high) ? Okay : SlaveError;
  end

  always_ff @(posedge clk) begin
    if (!aresetn) begin
      resets <= 1'b0;
      enable <= ENABLED;
    end else begin
      resets <= writes_control && write_strobe[0] && write_data[1];
      if (writes_control && write_strobe[0]) enable <= write_data[0];
    end
  end

  for (genvar k = 0; k < 4; k++) begin : g_base
    always_ff @(posedge clk) begin
      if (!aresetn) {weights_base[32+8*k+:8], weights_base[8*k+:8]} <= {WEIGHTS_BASE[32+8*k+:8], WEIGHTS_BASE[8*k+:8]};
      else begin
        if (writes_low && write_strobe[k]) weights_base[8*k+:8] <= write_data[8*k+:8];
        if (writes_high && write_strobe[k]) weights_base[32+8*k+:8] <= write_data[8*k+:8];
      end
    end
  end

  // Reads.
  logic [ 9:0] read_word;
  logic [31:0] read_data;
  logic known;

  assign read_word = s_axi_araddr[11:2];
  assign s_axi_arready = !s_axi_rvalid;

  always_comb begin
    known = 1'b1;
    read_data = '0;
    case (read_word)
      10'h000: read_data = 32'h4d41_5345;  // "MASE"
      10'h001: read_data = 32'h0001_0001;
      Control: read_data = {31'd0, enable};
      10'h003: read_data = {28'd0, weights_error, failed, !busy, busy};
      10'h004: read_data = CHECKSUM;
      10'h005: read_data = {16'(BUS_WIDTH), 8'(OUTPUTS), 8'(INPUTS)};
      10'h006: read_data = cycles;
      10'h007: read_data = WEIGHTS_CHECKSUM;
      WeightsLow: read_data = weights_base[31:0];
      WeightsHigh: read_data = weights_base[63:32];
      10'h00a: read_data = WEIGHTS_BYTES;
      default: known = 1'b0;
    endcase
    for (int k = 0; k < Streams; k++) begin
      if (read_word[9:3] == 7'(First + k)) begin
        known = read_word[2:0] < 3'd5;
        case (read_word[2:0])
          3'd0: read_data = sample_counts[32*k+:32];
          3'd1: read_data = stall_counts[32*k+:32];
          3'd2: read_data = error_counts[32*k+:32];
          3'd3: read_data = SIZES[32*k+:32];
          3'd4: read_data = FORMATS[32*k+:32];
          default: read_data = '0;
        endcase
      end
    end
  end

  always_ff @(posedge clk) begin
    if (!aresetn) s_axi_rvalid <= 1'b0;
    else s_axi_rvalid <= s_axi_rvalid ? !s_axi_rready : s_axi_arvalid;
  end
  always_ff @(posedge clk) begin
    if (s_axi_arready) {s_axi_rresp, s_axi_rdata} <= {known ? Okay : SlaveError, read_data};
  end

  logic unused_bits;
  assign unused_bits = &{
    1'b0, s_axi_awprot, s_axi_arprot, s_axi_awaddr[1:0], s_axi_araddr[1:0]
  };
endmodule
