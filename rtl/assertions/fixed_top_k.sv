/// These properties hold at both ends of the component in every cycle.
bind fixed_top_k stream_checker #(.DATA_WIDTH(Lanes * Width)) check_in (
    .clk, .rst, .data(data_in_0), .valid(data_in_0_valid), .ready(data_in_0_ready));
bind fixed_top_k stream_checker #(.DATA_WIDTH(Places * OutPrecision)) check_out (
    .clk, .rst, .data(data_out_0), .valid(data_out_0_valid), .ready(data_out_0_ready));
