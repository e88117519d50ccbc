"""Graphs as SystemVerilog."""
