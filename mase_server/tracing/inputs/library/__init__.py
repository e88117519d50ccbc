"""Inputs of Hugging Face models, from their configurations."""
