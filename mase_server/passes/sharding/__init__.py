"""Tensor parallelism: which dimension of which tensor is split over which devices."""
