"""Finding the models of a file, and how each of them is constructed."""
