/// These properties hold at its end in every cycle.
bind constant_stream stream_checker #(.DATA_WIDTH(DATA_WIDTH)) check_out_0 (
    .clk, .rst, .data(data_out_0), .valid(data_out_0_valid), .ready(data_out_0_ready));
