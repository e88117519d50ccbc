"""Grids of models, pipelines and hardware budgets: measured, kept, and compared."""
