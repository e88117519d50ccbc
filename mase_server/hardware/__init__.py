"""Hardware for a model: the arithmetic of every component, its design, its estimates and its Verilog."""
