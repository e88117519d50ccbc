"""The documentation, and the programs that generate its reference pages."""
