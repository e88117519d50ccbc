"""Diagnosis: an exception of the user's code, reported at the user's own line with a remedy."""
