"""The Python client of a daemon; needs no torch."""
