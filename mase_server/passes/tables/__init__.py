"""Layers as truth tables (LogicNets): small enough, a layer is what it gives for every input there can be."""
