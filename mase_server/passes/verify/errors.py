"""What is raised for metadata that breaks a rule, and how rules are run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import fx

from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import MaseMetadata
from mase_server.passes.arguments import Result
from mase_server.passes.report.tables import metadata_or_raise

Rule = Callable[[fx.Node, MaseMetadata], Iterator[str]]
_SHOWN = 10


class MetadataError(ValueError):
    """Metadata that breaks a rule.

    problems: one sentence for each.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph.nodes[1].meta["mase"]["common"]["mase_type"] = "layer"
    >>> try:
    ...     passes.verify_common_metadata_analysis_pass(graph)
    ... except passes.MetadataError as error:
    ...     print(error.problems[0].partition(";")[0])
    node '_0': its mase_type is 'layer'
    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        more = "" if len(problems) <= _SHOWN else f"\nand {len(problems) - _SHOWN} more"
        super().__init__("\n".join(problems[:_SHOWN]) + more)


def verified(graph: MaseGraph, rule: Rule) -> Result:
    """The graph, if no node breaks the rule; MetadataError with every break."""
    problems = [
        f"node {node.name!r}: {problem}" for node in graph.nodes for problem in rule(node, metadata_or_raise(node))
    ]
    if problems:
        raise MetadataError(problems)
    return graph, {}
