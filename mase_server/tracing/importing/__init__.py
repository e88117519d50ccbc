"""Importing the user's modules: rewritten so that bindings report, and with placeholders for missing packages."""
