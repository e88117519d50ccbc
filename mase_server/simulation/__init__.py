"""Emitted hardware, built and run by a simulator."""
