"""Passes in a trace child: forks that run them, the real model, and what comes of it as an overlay."""
