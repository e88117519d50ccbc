/// These properties hold at all ends in every cycle.
bind stream_concat stream_checker #(.DATA_WIDTH(DATA_WIDTH)) check_in_0 (
    .clk, .rst, .data(data_in_0), .valid(data_in_0_valid), .ready(data_in_0_ready));
bind stream_concat stream_checker #(.DATA_WIDTH(DATA_WIDTH)) check_in_1 (
    .clk, .rst, .data(data_in_1), .valid(data_in_1_valid), .ready(data_in_1_ready));
bind stream_concat stream_checker #(.DATA_WIDTH(DATA_WIDTH)) check_out_0 (
    .clk, .rst, .data(data_out_0), .valid(data_out_0_valid), .ready(data_out_0_ready));
