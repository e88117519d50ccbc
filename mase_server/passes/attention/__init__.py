"""Attention: written out, or as one operator."""
