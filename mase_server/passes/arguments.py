"""Options of passes: checked by name, completed with defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.suggestions import suggest

#: What every pass gives: the graph, and what it found.
Result = tuple[MaseGraph, dict[str, Any]]


def options(name: str, given: Mapping[str, Any] | None, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults with the given options in place of theirs. Raises ValueError for one that the pass does not have."""
    given = given or {}
    for key in given:
        if key not in defaults:
            raise ValueError(f"{name} has no option {key!r}{suggest(key, defaults, 'it takes')}")
    return {**defaults, **given}


def with_common_metadata(graph: MaseGraph) -> None:
    """See that every node has common metadata. Where only some have, a transform made the others: all get it anew.

    Raises ValueError where the graph was never annotated.
    """
    lacking = [node for node in graph.fx_graph.nodes if "mase_op" not in metadata_of(node, graph.module)["common"]]
    if lacking and len(lacking) == len(graph.fx_graph.nodes):
        raise ValueError(
            f"node {lacking[0].name!r} has no common metadata: run add_common_metadata_analysis_pass first"
        )
    if lacking:
        graph.annotate(add_value=False)
