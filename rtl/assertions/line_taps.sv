/// These properties hold at both ends of the component in every cycle.
bind line_taps stream_checker #(.DATA_WIDTH(DATA_WIDTH)) check_in (
    .clk, .rst, .data(data_in_0), .valid(data_in_0_valid), .ready(data_in_0_ready));
bind line_taps stream_checker #(.DATA_WIDTH(TAPS * DATA_WIDTH)) check_out (
    .clk, .rst, .data(data_out_0), .valid(data_out_0_valid), .ready(data_out_0_ready));
