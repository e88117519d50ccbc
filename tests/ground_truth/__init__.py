"""Eager truth, found without any part of the product: real tensors, sys.settrace, and a walk of the syntax tree."""
