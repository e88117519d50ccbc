"""Layers as truth tables (LogicNets): for a small enough layer, a table lists its result for every possible input."""
