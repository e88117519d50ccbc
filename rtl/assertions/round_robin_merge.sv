/// These properties hold at the output, and at the inputs one beat at a time is taken.
bind round_robin_merge stream_checker #(.DATA_WIDTH(DATA_WIDTH)) check_out_0 (
    .clk, .rst, .data(data_out_0), .valid(data_out_0_valid), .ready(data_out_0_ready));
bind round_robin_merge turn_checker #(.COUNT(COUNT)) check_in (.clk, .rst, .offered(data_in_0_ready));
