"""What a model becomes in hardware: the arithmetic of every component, and (with the emission) its Verilog."""
