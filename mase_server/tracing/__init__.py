"""From a Python file to recordings of its models, package by package in the order in which it happens."""
