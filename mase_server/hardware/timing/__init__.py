"""The time at which every beat of a netlist moves: exact to the cycle, but computed beat by beat."""

from __future__ import annotations
