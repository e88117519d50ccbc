"""Importing a person's modules: rewritten so that bindings report, and with stand-ins for what is missing."""
