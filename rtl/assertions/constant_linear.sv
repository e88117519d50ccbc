/// These properties hold at both ends of the component in every cycle.
bind constant_linear stream_checker #(.DATA_WIDTH(Ins * DATA_IN_0_PRECISION_0)) check_in (
    .clk, .rst, .data(data_in_0), .valid(data_in_0_valid), .ready(data_in_0_ready));
bind constant_linear stream_checker #(.DATA_WIDTH(OutWidth)) check_out (
    .clk, .rst, .data(data_out_0), .valid(data_out_0_valid), .ready(data_out_0_ready));
