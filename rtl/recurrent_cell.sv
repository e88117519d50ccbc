/// The gates of a GRU or an LSTM, and its state, which begins at zero for each sequence of SIZE_DIM_1 steps.
/// data_in_0 is what the input adds to the gates, data_in_1 what the last result adds: the gates of a unit side by side,
/// reset, update and new, or input, forget, cell and output. The gates of a lane take turns at one table of the sigmoid
/// and one of tanh (an LSTM has a second one for its cell), so a beat takes 3 cycles, 4 with LSTM.
/// 14 cycles of latency after the last gate. Two multipliers a lane, three with LSTM.
/// With SERIAL none: products are made bit by bit, one beat is worked on at a time, and all stands still for each of two
/// products: 14 + 2 * (DATA_OUT_0_PRECISION_0 + 1) cycles from the last gate, and a beat in as many.
/// The files have a word for each integer of ARGUMENT_WIDTH bits, as those of fixed_table: of the sigmoid from -8 to 8,
/// of tanh from -4 to 4. Does not cut the ready path, and an operand's ready depends on the valid of the other one.
module recurrent_cell #(
    parameter bit LSTM                         = 1'b0,
    parameter bit SERIAL                       = 1'b0,
    parameter int DATA_IN_0_PRECISION_0        = 16,
    parameter int DATA_IN_0_PRECISION_1        = 11,
    parameter int ARGUMENT_WIDTH               = 11,
    parameter int CELL_PRECISION_0             = 16,
    parameter int CELL_PRECISION_1             = 11,
    parameter int DATA_OUT_0_PRECISION_0       = 16,
    parameter int DATA_OUT_0_PRECISION_1       = 14,
    parameter int DATA_OUT_0_TENSOR_SIZE_DIM_0 = 4,
    parameter int DATA_OUT_0_TENSOR_SIZE_DIM_1 = 3,
    parameter int DATA_OUT_0_PARALLELISM_DIM_0 = 1,
    parameter     SIGMOID_FILE                 = "sigmoid.mem",
    parameter     TANH_FILE                    = "tanh.mem",
    localparam int Gates                       = LSTM ? 4 : 3,
    localparam int InWidth                     = Gates * DATA_OUT_0_PARALLELISM_DIM_0 * DATA_IN_0_PRECISION_0,
    localparam int OutWidth                    = DATA_OUT_0_PARALLELISM_DIM_0 * DATA_OUT_0_PRECISION_0
) (
    input  logic                clk,
    input  logic                rst,
    input  logic [ InWidth-1:0] data_in_0,
    input  logic                data_in_0_valid,
    output logic                data_in_0_ready,
    input  logic [ InWidth-1:0] data_in_1,
    input  logic                data_in_1_valid,
    output logic                data_in_1_ready,
    output logic [OutWidth-1:0] data_out_0,
    output logic                data_out_0_valid,
    input  logic                data_out_0_ready
);
  localparam int In = DATA_IN_0_PRECISION_0;
  localparam int Unit = DATA_OUT_0_PRECISION_0;
  localparam int Fraction = DATA_OUT_0_PRECISION_1;
  localparam int Words = DATA_OUT_0_TENSOR_SIZE_DIM_0 / DATA_OUT_0_PARALLELISM_DIM_0;
  localparam int IndexWidth = (Words > 1) ? $clog2(Words) : 1;
  // Stages after the one that has the last gate: of the address of the state, of the new state, and of the result.
  localparam int Reads = LSTM ? 1 : 6;
  localparam int Writes = LSTM ? 7 : 13;
  localparam int Last = 13;
  localparam int Ages = LSTM ? 8 : 7;
  localparam int Products = LSTM ? 3 : 2;
  // Stages that have the factors of the gates' products, and of those of the state.
  localparam int GateProducts = LSTM ? 3 : 2;
  localparam int StateProducts = LSTM ? 10 : 9;
  localparam int State = LSTM ? CELL_PRECISION_0 : Unit;

  if (Words * DATA_OUT_0_PARALLELISM_DIM_0 != DATA_OUT_0_TENSOR_SIZE_DIM_0) begin : g_check
    $error("recurrent_cell: %0d units are no multiple of %0d a beat", DATA_OUT_0_TENSOR_SIZE_DIM_0,
           DATA_OUT_0_PARALLELISM_DIM_0);
  end

  // The bits of a number of so many, rounded to another fraction: see fixed_round.
  // A layer of a model may have one of these names: that is no fault.
  /* verilator lint_off VARHIDDEN */
  function automatic int rounded_width(input int width, fraction, fraction_out);
    rounded_width = width - fraction + fraction_out;
    rounded_width = ((rounded_width > 1) ? rounded_width : 1) + 1;
  endfunction
  /* verilator lint_on VARHIDDEN */

  logic both, last_gate, moves, enters, begins;
  logic [1:0] gate;
  logic [Last:0] stage;  // those that have a beat, all gates of which are in

  // A product that is made bit by bit is waited for.
  logic [DATA_OUT_0_PARALLELISM_DIM_0*Products-1:0] done;
  assign moves  = (!data_out_0_valid || data_out_0_ready) && done == '1;
  assign enters = both && begins && moves;
  assign data_out_0_valid = stage[Last];

  stream_join #(
      .COUNT(2)
  ) operands (
      .data_in_0_valid({data_in_1_valid, data_in_0_valid}),
      .data_in_0_ready({data_in_1_ready, data_in_0_ready}),
      .data_out_0_valid(both),
      .data_out_0_ready(moves && last_gate)
  );

  assign last_gate = gate == 2'(Gates - 1);

  // The last gate enters when the beat before leaves.
  if (SERIAL) begin : g_one_by_one
    assign begins = gate != '0 || stage[Last-Gates:0] == '0;
  end else begin : g_stream
    assign begins = 1'b1;
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      gate  <= '0;
      stage <= '0;
    end else if (moves) begin
      if (enters) gate <= last_gate ? '0 : gate + 1'b1;
      stage <= {stage[Last-1:0], enters && last_gate};
    end
  end

  // The unit whose state is read and written, and whether it has one already.
  logic [IndexWidth-1:0] read_index, write_index;
  logic read_last, step_last, first, write_last;

  loop_counter #(
      .COUNT(Words)
  ) units_read (
      .clk,
      .rst,
      .step(moves && stage[Reads]),
      .last(read_last)
  );
  loop_counter #(
      .COUNT(DATA_OUT_0_TENSOR_SIZE_DIM_1)
  ) steps (
      .clk,
      .rst,
      .step(moves && stage[Reads] && read_last),
      .last(step_last)
  );
  loop_counter #(
      .COUNT(Words)
  ) units_written (
      .clk,
      .rst,
      .step(moves && stage[Writes]),
      .last(write_last)
  );

  always_ff @(posedge clk) begin
    if (rst) begin
      read_index  <= '0;
      write_index <= '0;
      first       <= 1'b1;
    end else if (moves) begin
      if (stage[Reads]) read_index <= read_last ? '0 : read_index + 1'b1;
      if (stage[Reads] && read_last) first <= step_last;
      if (stage[Writes]) write_index <= write_last ? '0 : write_index + 1'b1;
    end
  end

  for (genvar lane = 0; lane < DATA_OUT_0_PARALLELISM_DIM_0; lane++) begin : g_lane
    // Registered: the two parts of one gate.
    logic signed [In-1:0] given, kept;
    always_ff @(posedge clk) begin
      if (moves) begin
        given <= data_in_0[(lane*Gates+32'(gate))*In+:In];
        kept  <= data_in_1[(lane*Gates+32'(gate))*In+:In];
      end
    end

    // The sigmoid of every gate, and those of the gates before: sigmoids[0] is three stages after the parts.
    logic signed [In:0] sum;
    logic [ARGUMENT_WIDTH-1:0] sigmoid_next, sigmoid_index;
    logic signed [Unit-1:0] sigmoids[Ages];
    always_ff @(posedge clk) if (moves) sum <= (In + 1)'(given) + (In + 1)'(kept);
    fixed_requantise #(
        .DATA_IN_0_PRECISION_0(In + 1),
        .DATA_IN_0_PRECISION_1(DATA_IN_0_PRECISION_1),
        .DATA_OUT_0_PRECISION_0(ARGUMENT_WIDTH),
        .DATA_OUT_0_PRECISION_1(ARGUMENT_WIDTH - 4)
    ) to_sigmoid (
        .data_in_0 (sum),
        .data_out_0(sigmoid_next)
    );
    always_ff @(posedge clk) if (moves) sigmoid_index <= sigmoid_next;
    rom #(
        .DATA_WIDTH(Unit),
        .DEPTH(2 ** ARGUMENT_WIDTH),
        .FILE(SIGMOID_FILE)
    ) sigmoid (
        .clk,
        .enable(moves),
        .address(sigmoid_index),
        .data(sigmoids[0])
    );
    for (genvar age = 1; age < Ages; age++) begin : g_age
      always_ff @(posedge clk) if (moves) sigmoids[age] <= sigmoids[age-1];
    end

    // The hyperbolic tangent of the gate that has one: eight stages after the parts, four with LSTM.
    localparam int TanhWidth = LSTM ? In + 1 : In + Unit + 1;
    localparam int TanhFraction = LSTM ? DATA_IN_0_PRECISION_1 : DATA_IN_0_PRECISION_1 + Fraction;
    logic [ARGUMENT_WIDTH-1:0] tanh_next, tanh_index;
    logic signed [Unit-1:0] tanh_word, tanh_gate;
    if (LSTM) begin : g_sum
      fixed_requantise #(
          .DATA_IN_0_PRECISION_0(TanhWidth),
          .DATA_IN_0_PRECISION_1(TanhFraction),
          .DATA_OUT_0_PRECISION_0(ARGUMENT_WIDTH),
          .DATA_OUT_0_PRECISION_1(ARGUMENT_WIDTH - 3)
      ) to_tanh (
          .data_in_0 (sum),
          .data_out_0(tanh_next)
      );
    end else begin : g_reset
      // Two stages after the new gate's parts, the reset gate is in sigmoids[1].
      logic signed [In+Unit-1:0] product;
      logic signed [In-1:0] kept_1, kept_2, given_1, given_2, added;
      logic signed [TanhWidth-1:0] tanh_sum;
      logic signed [rounded_width(TanhWidth, TanhFraction, ARGUMENT_WIDTH - 3)-1:0] tanh_rounded, tanh_rounded_1;
      awaited_product #(
          .DATA_IN_0_PRECISION_0(In),
          .DATA_IN_1_PRECISION_0(Unit),
          .SERIAL(SERIAL)
      ) multiply (
          .clk,
          .rst,
          .moves,
          .wanted(stage[GateProducts]),
          .data_in_0(kept_2),
          .data_in_1(sigmoids[1]),
          .done(done[lane*Products]),
          .product
      );
      always_ff @(posedge clk) begin
        if (moves) begin
          {kept_2, kept_1} <= {kept_1, kept};
          {added, given_2, given_1} <= {given_2, given_1, given};
          tanh_sum <= (TanhWidth'(added) <<< Fraction) + TanhWidth'(product);
          tanh_rounded_1 <= tanh_rounded;
        end
      end
      fixed_round #(
          .DATA_IN_0_PRECISION_0(TanhWidth),
          .DATA_IN_0_PRECISION_1(TanhFraction),
          .DATA_OUT_0_PRECISION_1(ARGUMENT_WIDTH - 3),
          .ROUNDED_WIDTH(rounded_width(TanhWidth, TanhFraction, ARGUMENT_WIDTH - 3))
      ) round_tanh (
          .data_in_0(tanh_sum),
          .rounded  (tanh_rounded)
      );
      fixed_saturate #(
          .DATA_IN_0_PRECISION_0 (rounded_width(TanhWidth, TanhFraction, ARGUMENT_WIDTH - 3)),
          .DATA_OUT_0_PRECISION_0(ARGUMENT_WIDTH)
      ) saturate_tanh (
          .data_in_0 (tanh_rounded_1),
          .data_out_0(tanh_next)
      );
    end
    always_ff @(posedge clk) if (moves) tanh_index <= tanh_next;
    rom #(
        .DATA_WIDTH(Unit),
        .DEPTH(2 ** ARGUMENT_WIDTH),
        .FILE(TANH_FILE)
    ) tanh (
        .clk,
        .enable(moves),
        .address(tanh_index),
        .data(tanh_word)
    );
    always_ff @(posedge clk) if (moves) tanh_gate <= tanh_word;

    // The state, which is there together with the hyperbolic tangent.
    logic signed [State-1:0] read, state, changed;
    logic is_first;
    ram #(
        .DATA_WIDTH(State),
        .DEPTH(Words)
    ) memory (
        .clk,
        .write(moves && stage[Writes]),
        .write_address(write_index),
        .write_data(changed),
        .read(moves),
        .read_address(read_index),
        .read_data(read)
    );
    always_ff @(posedge clk) begin
      if (moves) begin
        is_first <= first;
        state    <= is_first ? '0 : read;
      end
    end

    logic signed [Unit-1:0] result;
    assign data_out_0[lane*Unit+:Unit] = result;

    if (LSTM) begin : g_lstm
      localparam int Most = (Fraction > CELL_PRECISION_1) ? Fraction : CELL_PRECISION_1;
      localparam int Kept = Unit + State + Most - CELL_PRECISION_1;
      localparam int Added = 2 * Unit + Most - Fraction;
      localparam int SumWidth = ((Kept > Added) ? Kept : Added) + 1;
      logic signed [Unit+State-1:0] keeps;
      logic signed [2*Unit-1:0] adds, shows;
      logic signed [SumWidth-1:0] total;
      logic signed [State-1:0] changed_next;
      logic signed [rounded_width(SumWidth, Fraction + Most, CELL_PRECISION_1)-1:0] state_rounded, state_rounded_1;
      logic signed [rounded_width(2 * Unit, 2 * Fraction, Fraction)-1:0] result_rounded, result_rounded_1;
      logic [ARGUMENT_WIDTH-1:0] cell_next, cell_index;
      logic signed [Unit-1:0] cell_word, tanh_state, result_next;
      awaited_product #(
          .DATA_IN_0_PRECISION_0(State),
          .DATA_IN_1_PRECISION_0(Unit),
          .SERIAL(SERIAL)
      ) multiply_kept (
          .clk,
          .rst,
          .moves,
          .wanted(stage[GateProducts]),
          .data_in_0(state),
          .data_in_1(sigmoids[2]),
          .done(done[lane*Products]),
          .product(keeps)
      );
      awaited_product #(
          .DATA_IN_0_PRECISION_0(Unit),
          .DATA_IN_1_PRECISION_0(Unit),
          .SERIAL(SERIAL)
      ) multiply_added (
          .clk,
          .rst,
          .moves,
          .wanted(stage[GateProducts]),
          .data_in_0(sigmoids[3]),
          .data_in_1(tanh_gate),
          .done(done[lane*Products+1]),
          .product(adds)
      );
      awaited_product #(
          .DATA_IN_0_PRECISION_0(Unit),
          .DATA_IN_1_PRECISION_0(Unit),
          .SERIAL(SERIAL)
      ) multiply_shown (
          .clk,
          .rst,
          .moves,
          .wanted(stage[StateProducts]),
          .data_in_0(sigmoids[7]),
          .data_in_1(tanh_state),
          .done(done[lane*Products+2]),
          .product(shows)
      );
      always_ff @(posedge clk) begin
        if (moves) begin
          total <= (SumWidth'(keeps) <<< (Most - CELL_PRECISION_1)) + (SumWidth'(adds) <<< (Most - Fraction));
          state_rounded_1 <= state_rounded;
          changed <= changed_next;
          cell_index <= cell_next;
          tanh_state <= cell_word;
          result_rounded_1 <= result_rounded;
          result <= result_next;
        end
      end
      fixed_round #(
          .DATA_IN_0_PRECISION_0(SumWidth),
          .DATA_IN_0_PRECISION_1(Fraction + Most),
          .DATA_OUT_0_PRECISION_1(CELL_PRECISION_1),
          .ROUNDED_WIDTH(rounded_width(SumWidth, Fraction + Most, CELL_PRECISION_1))
      ) round_state (
          .data_in_0(total),
          .rounded  (state_rounded)
      );
      fixed_saturate #(
          .DATA_IN_0_PRECISION_0 (rounded_width(SumWidth, Fraction + Most, CELL_PRECISION_1)),
          .DATA_OUT_0_PRECISION_0(State)
      ) saturate_state (
          .data_in_0 (state_rounded_1),
          .data_out_0(changed_next)
      );
      fixed_requantise #(
          .DATA_IN_0_PRECISION_0(State),
          .DATA_IN_0_PRECISION_1(CELL_PRECISION_1),
          .DATA_OUT_0_PRECISION_0(ARGUMENT_WIDTH),
          .DATA_OUT_0_PRECISION_1(ARGUMENT_WIDTH - 3)
      ) to_tanh_of_cell (
          .data_in_0 (changed),
          .data_out_0(cell_next)
      );
      rom #(
          .DATA_WIDTH(Unit),
          .DEPTH(2 ** ARGUMENT_WIDTH),
          .FILE(TANH_FILE)
      ) tanh_of_cell (
          .clk,
          .enable(moves),
          .address(cell_index),
          .data(cell_word)
      );
      fixed_round #(
          .DATA_IN_0_PRECISION_0(2 * Unit),
          .DATA_IN_0_PRECISION_1(2 * Fraction),
          .DATA_OUT_0_PRECISION_1(Fraction),
          .ROUNDED_WIDTH(rounded_width(2 * Unit, 2 * Fraction, Fraction))
      ) round_result (
          .data_in_0(shows),
          .rounded  (result_rounded)
      );
      fixed_saturate #(
          .DATA_IN_0_PRECISION_0 (rounded_width(2 * Unit, 2 * Fraction, Fraction)),
          .DATA_OUT_0_PRECISION_0(Unit)
      ) saturate_result (
          .data_in_0 (result_rounded_1),
          .data_out_0(result_next)
      );
    end else begin : g_gru
      localparam int SumWidth = 2 * Unit + 2;
      logic signed [Unit:0] difference;
      logic signed [2*Unit:0] product;
      logic signed [Unit-1:0] update, new_1, new_2, result_next;
      logic signed [SumWidth-1:0] total;
      logic signed [rounded_width(SumWidth, 2 * Fraction, Fraction)-1:0] state_rounded, state_rounded_1;
      awaited_product #(
          .DATA_IN_0_PRECISION_0(Unit + 1),
          .DATA_IN_1_PRECISION_0(Unit),
          .SERIAL(SERIAL)
      ) multiply (
          .clk,
          .rst,
          .moves,
          .wanted(stage[StateProducts]),
          .data_in_0(difference),
          .data_in_1(update),
          .done(done[lane*Products+1]),
          .product(product)
      );
      always_ff @(posedge clk) begin
        if (moves) begin
          difference      <= (Unit + 1)'(state) - (Unit + 1)'(tanh_gate);
          update          <= sigmoids[6];
          new_1           <= tanh_gate;
          new_2           <= new_1;
          total           <= (SumWidth'(new_2) <<< Fraction) + SumWidth'(product);
          state_rounded_1 <= state_rounded;
          result          <= result_next;
        end
      end
      assign changed = result;
      fixed_round #(
          .DATA_IN_0_PRECISION_0(SumWidth),
          .DATA_IN_0_PRECISION_1(2 * Fraction),
          .DATA_OUT_0_PRECISION_1(Fraction),
          .ROUNDED_WIDTH(rounded_width(SumWidth, 2 * Fraction, Fraction))
      ) round_state (
          .data_in_0(total),
          .rounded  (state_rounded)
      );
      fixed_saturate #(
          .DATA_IN_0_PRECISION_0 (rounded_width(SumWidth, 2 * Fraction, Fraction)),
          .DATA_OUT_0_PRECISION_0(Unit)
      ) saturate_state (
          .data_in_0 (state_rounded_1),
          .data_out_0(result_next)
      );
    end
  end
endmodule
