"""Granularity: modules as one node each, or as what they compute."""
