"""When every beat of a netlist moves: cycle by cycle as the components do it, but beat by beat."""

from __future__ import annotations
