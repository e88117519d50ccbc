/// These properties hold at both ends of the component in every cycle.
bind round_robin_split stream_checker #(.DATA_WIDTH(1)) check_in (
    .clk, .rst, .data(1'b0), .valid(data_in_0_valid), .ready(data_in_0_ready));
bind round_robin_split turn_checker #(.COUNT(COUNT)) check_out (.clk, .rst, .offered(data_out_0_valid));
