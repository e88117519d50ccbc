"""stub"""

from __future__ import annotations

from mase_server.ir.graph import MaseGraph


def code_of(graph: MaseGraph, name: str) -> str:
    """stub"""
    return str(graph.fx_graph)
