"""Searching inputs of a forward: the likeliest first, then those that the errors of failed ones suggest."""
