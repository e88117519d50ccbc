"""Inputs of a forward when nobody said: the likeliest first, then what the errors of those that failed lead to."""
