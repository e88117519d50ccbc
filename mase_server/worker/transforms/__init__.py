"""Passes in a trace child: the forks that run them, the real model, and their results as an overlay."""
