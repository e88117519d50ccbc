"""The inputs with which a model is traced: those that a user wrote, else those that code, names and errors suggest."""
