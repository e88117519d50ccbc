/// These properties hold at both ends of the component in every cycle, and results always find a place.
bind fixed_dot_core stream_checker #(.DATA_WIDTH(InWidth)) check_in (
    .clk, .rst, .data(data_in_0), .valid(data_in_0_valid), .ready(data_in_0_ready));
bind fixed_dot_core stream_checker #(.DATA_WIDTH(OutWidth)) check_out (
    .clk, .rst, .data(data_out_0), .valid(data_out_0_valid), .ready(data_out_0_ready));
bind fixed_dot_core place_checker check_places (.clk, .rst, .valid(result_valid), .ready(unused_ready));
