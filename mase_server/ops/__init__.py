"""The operator table: name, type, arguments and cost formulas of each torch callable, keyed by the callable itself."""
