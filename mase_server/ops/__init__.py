"""What each torch callable is: one table, keyed by the callable itself."""
