"""What API functions answer: the types that `mase/info` tells as JSON schemas, and that the Python clients give.

Declared once, here; tests hold every answer against them. New keys may come with any version, none goes or changes.
Standard library only, since clients load it. A `value` is as `snapshot` has it: a tensor is [type, shape, symbols].
"""

from mase_server.answers.daemon import Info, Method, Restarted, Session, Statistics, Subscription, Unsubscribed, Worker
from mase_server.answers.files import Closed, File, FileStatus, Inputs, Problem, Root, Status
from mase_server.answers.graphs import (
    Graph,
    Node,
    Place,
    PlaceValue,
    Site,
    SiteValue,
    Tensors,
    Traced,
    TracedSite,
    TracedValue,
)
from mase_server.answers.hardware import Build, Emission, EmissionHead, Simulation, Verilog
from mase_server.answers.models import (
    Changed,
    Comparison,
    Costs,
    Model,
    ModelFacts,
    ModuleCost,
    NodeSide,
    OperatorCost,
    Side,
    Transform,
)
from mase_server.answers.passes import ArrayPart, Checkpoint, Drawing, Pass, PassArgument, Pipeline, Text, Weights

__all__ = [
    "ArrayPart",
    "Build",
    "Changed",
    "Checkpoint",
    "Closed",
    "Comparison",
    "Costs",
    "Drawing",
    "Emission",
    "EmissionHead",
    "File",
    "FileStatus",
    "Graph",
    "Info",
    "Inputs",
    "Method",
    "Model",
    "ModelFacts",
    "ModuleCost",
    "Node",
    "NodeSide",
    "OperatorCost",
    "Pass",
    "PassArgument",
    "Pipeline",
    "Place",
    "PlaceValue",
    "Problem",
    "Restarted",
    "Root",
    "Session",
    "Side",
    "Simulation",
    "Site",
    "SiteValue",
    "Statistics",
    "Status",
    "Subscription",
    "Tensors",
    "Text",
    "Traced",
    "TracedSite",
    "TracedValue",
    "Transform",
    "Unsubscribed",
    "Verilog",
    "Weights",
    "Worker",
]
