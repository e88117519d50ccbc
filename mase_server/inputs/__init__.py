"""Which model, with which constructor arguments and inputs, when nobody said."""
