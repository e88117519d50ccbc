"""Tensor parallelism: the dimensions of tensors that are split over devices."""
