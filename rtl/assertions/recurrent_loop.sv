/// All ends of the component keep the rules of a stream in every cycle.
bind recurrent_loop stream_checker #(.DATA_WIDTH(InWidth)) check_in (
    .clk, .rst, .data(data_in_0), .valid(data_in_0_valid), .ready(data_in_0_ready));
bind recurrent_loop stream_checker #(.DATA_WIDTH(Products)) check_in_1 (
    .clk, .rst, .data(data_in_1), .valid(data_in_1_valid), .ready(data_in_1_ready));
bind recurrent_loop stream_checker #(.DATA_WIDTH(OutWidth)) check_out (
    .clk, .rst, .data(data_out_0), .valid(data_out_0_valid), .ready(data_out_0_ready));
bind recurrent_loop stream_checker #(.DATA_WIDTH(Vector)) check_out_1 (
    .clk, .rst, .data(data_out_1), .valid(data_out_1_valid), .ready(data_out_1_ready));
