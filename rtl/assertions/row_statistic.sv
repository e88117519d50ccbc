/// These properties hold at both ends of the component in every cycle.
bind row_statistic stream_checker #(.DATA_WIDTH(InWidth)) check_in (
    .clk, .rst, .data(data_in_0), .valid(data_in_0_valid), .ready(data_in_0_ready));
bind row_statistic stream_checker #(.DATA_WIDTH(InWidth + OutPrecision)) check_out (
    .clk, .rst, .data({data_out_0, statistic}), .valid(data_out_0_valid), .ready(data_out_0_ready));
