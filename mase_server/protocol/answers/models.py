"""The types of answers about models: facts, costs, passes, hardware, graphs, and the difference between two models."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from mase_server.protocol import records
from mase_server.protocol.answers.files import Problem, Status
from mase_server.protocol.records import (
    BuildRecord,
    EmissionRecord,
    ModelRecord,
    NodeDetails,
    Operation,
    Plain,
    SimulationFacts,
    SourcePlace,
    Summary,
    TransformFacts,
    Value,
)


class Transform(TransformFacts):
    """The effect of passes on a model. texts: the steps as texts."""

    texts: list[str]


class ModelFacts(ModelRecord):
    """A model with its title. path: of a file."""

    title: str
    path: str


class Model(ModelFacts):
    """A model of the file `path`, traced from the text `sha256`.

    complete: has the trace ended, and did the forward run to its end?
    """

    sha256: str
    transform: Transform | None


class ModuleCost(TypedDict):
    """A module including everything below it; path "" is the whole model."""

    path: str
    type: str
    nodes: int
    flops: int


class OperatorCost(TypedDict):
    """The sum of all calls of an operator."""

    mase_op: str
    family: str
    nodes: int
    flops: int


class Costs(TypedDict):
    """The cost of one forward of a model. complete: did it run to its end?"""

    model: str
    nodes: int
    flops: int | None
    parameters: int
    parameter_bytes: int
    complete: bool
    modules: list[ModuleCost]
    operators: list[OperatorCost]


class CostHardware(TypedDict):
    """Hardware of a part of a model. cycles: of its slowest operation, from one sample to the next."""

    multipliers: int
    luts: int
    memory_bits: int
    cycles: int


class CostPlace(SourcePlace):
    """A place in the traced text."""


#: Parts of a model that have costs.
RowKind = Literal["scope", "layer", "operator", "parameter"]


class RowRun(TypedDict):
    """The share of a part of a model in a run on a device."""

    seconds: float | None
    moved: int | None
    bound: str | None
    held: int | None


class CostRow(RowRun):
    """A part of a model including everything below it. parent: the number of its row, -1 for the whole model."""

    id: str
    parent: int
    name: str
    kind: Annotated[str, RowKind]
    type: str
    nodes: int
    parameters: int | None
    parameter_bytes: int | None
    shared: list[str]
    flops: int
    traffic: int
    results: int
    formats: list[str]
    bits: float | None
    sqnr: float | str | None
    max_error: float | None
    hardware: CostHardware | None
    places: list[CostPlace]
    passes: str
    saturated: float | None
    kernels: int | None


class RunPlace(TypedDict):
    """Where an operator was called for. file: "" if no line of the workspace is known.  module: its path."""

    file: str
    line: int
    module: str


class PeakHolder(RunPlace):
    """Bytes that are held when most are. kind: parameter, buffer, input, activation, gradient, optimizer state or
    temporary."""

    kind: str
    bytes: int


class CurvePoint(RunPlace):
    """Bytes that are held after an operator. step: its number."""

    step: int
    bytes: int


class RunRow(RunPlace):
    """All calls of an ATen operator at one place. phase: forward, backward or optimizer.  bound: compute, memory or
    launch.  seconds: an estimate."""

    phase: str
    operator: str
    dtype: str
    calls: int
    flops: int
    reads_bytes: int
    writes_bytes: int
    bound: str
    seconds: float


class DeviceFacts(TypedDict):
    """A device that costs are estimated for. memory: bytes, 0 if unknown.  bandwidth: bytes a second.

    rates: operations a second by element type.  source: of these figures.
    """

    name: str
    title: str
    memory: int
    bandwidth: float
    rates: dict[str, float]
    source: str


class Devices(TypedDict):
    """All devices that costs can be estimated for."""

    devices: list[DeviceFacts]


class ModelTrace(TypedDict):
    """A model in one trace.

    stale: is the trace of an older text, because the present one cannot be traced?  complete: has the trace ended?
    failed: did the forward fail, so that nodes and costs are those up to its error?
    """

    path: str
    model: str
    sha256: str
    generation: int
    stale: bool
    complete: bool
    failed: bool


class RunFigures(records.RunFacts):
    """A run of a model on a device in numbers. seconds: an estimate.  bound: of most of the time.

    communication_seconds: beside it, an estimate, if several devices share the run.
    """

    seconds: float
    communication_seconds: float
    flops: int
    bound: str


class RunSummary(RunFigures):
    """A run of a model on a device. memory: the bytes that `fits` is for.

    at_peak: the largest holders of the peak, the largest first.  curve: memory over the run.
    """

    device: DeviceFacts
    memory: int
    at_peak: list[PeakHolder]
    curve: list[CurvePoint]


class ChangedLine(TypedDict):
    """A line whose costs differ, each as [before, after]. line: in the later text, 0 if it is gone.

    before_line: in the earlier text, 0 if it is new.  modules: that ran it.  held: bytes at the peak.
    """

    file: str
    line: int
    before_line: int
    modules: list[str]
    seconds: list[float]
    moved: list[int]
    held: list[int]


class CostChange(TypedDict):
    """The difference of two runs of a model. lines: those that differ, the largest difference first."""

    before: RunFigures
    after: RunFigures
    lines: list[ChangedLine]


class CostTable(ModelTrace):
    """The cost of each part of a model. steps: its passes, as texts.

    run: on the device that was picked, None unless it is shown.  older: is it of an earlier trace?  change: from the
    last other text of the file to this one, None if none is known.
    """

    steps: list[str]
    rows: list[CostRow]
    run: RunSummary | None
    older: bool
    change: CostChange | None


class Side(TypedDict):
    """One of two compared models."""

    path: str
    model: str
    nodes: int
    parameters: int
    parameter_bytes: int
    flops: int | None


class NodeSide(TypedDict):
    """A node of one of two compared models."""

    mase_op: str
    value: Value


class Changed(TypedDict):
    """A node that differs; format .. saturated: results of passes."""

    name: str
    before: NodeSide
    after: NodeSide
    format: NotRequired[str | None]
    sqnr: NotRequired[float | str | None]
    max_error: NotRequired[float | None]
    note: NotRequired[str | None]
    saturated: NotRequired[float | None]


class Comparison(TypedDict):
    """The difference between two models."""

    before: Side
    after: Side
    changed: list[Changed]
    added: list[str]
    removed: list[str]
    summary: Summary | None


# Passes, and files written from their graphs.


#: The kinds of arguments of passes; `arguments.READERS` reads their values.
ArgumentKind = Literal["integer", "number", "boolean", "text", "choice", "format", "texts", "map", "file", "value"]
#: A pass measures a graph, or changes it.
PassKind = Literal["analysis", "transform"]


class PassArgument(TypedDict):
    """An argument of a pass. choices: the words of a choice.  minimum, maximum: None where there is none."""

    name: str
    kind: Annotated[str, ArgumentKind]
    help: str
    default: Plain
    required: bool
    choices: list[str]
    minimum: float | None
    maximum: float | None


class Pass(TypedDict):
    """A pass. selects: does it take a part of the graph?  menu: would it change something there?  source: "mase", or
    the file of the workspace that declares it.  help: what it does.  needs: what it lacks here, in words.  others:
    the kind of further arguments by name, None if it takes none."""

    name: str
    title: str
    kind: Annotated[str, PassKind]
    selects: bool
    menu: bool
    source: str
    help: str
    mase: str
    needs: list[str]
    arguments: list[PassArgument]
    others: PassArgument | None


class Pipeline(TypedDict, total=False):
    """The passes on a model; empty if no model is shown."""

    model: str
    steps: list[str]
    undone: list[str]
    summary: Summary | None
    problem: str | None
    complete: bool
    running: bool


class Text(TypedDict):
    """A text to be shown."""

    text: str
    language: str


class Checkpoint(TypedDict):
    """A written checkpoint. weights: their origin, in words."""

    files: list[str]
    weights: str


class ArrayPart(TypedDict):
    """A part of an array. size: of the whole array, in bytes.  offset: the position of `data` in it."""

    name: str
    dtype: str
    shape: list[int]
    size: int
    offset: int
    data: bytes


class ArrayPage(TypedDict):
    """A part of the bytes of all arrays in a row. total: bytes of all pages.  next: where the rest starts."""

    arrays: list[ArrayPart]
    total: int
    next: int | None


class Weights(ArrayPage):
    """A page of parameters and buffers. weights: whose, in words."""

    weights: str


class ValueStatistics(TypedDict):
    """Statistics of the finite values of a parameter. std: with n - 1, as torch has it.  zeros: their share.

    not_finite: how many values are NaN or infinite.  bins: a histogram from min to max, in intervals of equal width;
    one bin if all values are equal.
    """

    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    zeros: float | None
    not_finite: int | None
    bins: list[int]


class ParameterStatistics(ValueStatistics):
    """One parameter. random: has it no values of a file? Then nothing is told of its values: they are None, bins is
    empty, as they are for complex, sparse and quantised types.  count: of elements."""

    name: str
    dtype: str
    shape: list[int]
    count: int
    random: bool


class WeightStatistics(TypedDict):
    """The parameters of a node or a module, the first hundred. total: how many there are.  weights: the source of
    the values, in words."""

    parameters: list[ParameterStatistics]
    total: int
    weights: str


class Drawing(TypedDict, total=False):
    """A drawing as text, or the file that it was written to."""

    svg: str
    file: str


# What compilers make of a model.


class DeviceCosts(ModelTrace, RunSummary):
    """A run of a model on a device, with each operator."""

    rows: list[RunRow]


class CostComparison(ModelTrace, CostChange):
    """The difference of two runs of a model on a device."""

    device: DeviceFacts


class GraphBreak(TypedDict):
    """A place at which Dynamo ends its graph. reason: what it does not support.  hints: what PyTorch proposes.

    column: of the first character on the line, from 0.  advice: what would avoid it, "" if unknown.  fix: an edit after
    which the break is gone and the results are the same; it is searched for in the view "dynamo" only.
    """

    file: str
    line: int
    column: int
    reason: str
    explanation: str
    hints: list[str]
    advice: str
    fix: records.Fix | None


class Recompile(TypedDict):
    """A function that is compiled once more for other inputs. reason: the guards that failed, without their notes.

    file, line, column: where the code asked for what is specialised, else the function.  size: that, such as
    `ids.shape[1] (T): 8, then 11` or `self.width == 4`.
    """

    file: str
    line: int
    column: int
    function: str
    reason: str
    size: str


class Kernel(TypedDict):
    """A kernel of Inductor's code, or a function of a library that it calls. lines: [file, line] of what it computes.

    operations: [file, line, name] of what was called there, such as "gelu"; several make it a fused one.  calls: in one
    run of the model.  reads_bytes, writes_bytes: of all calls, each buffer counted once for each.
    """

    name: str
    lines: list[tuple[str, int]]
    operations: list[tuple[str, int, str]]
    calls: int
    reads_bytes: int
    writes_bytes: int


class Compiled(TypedDict):
    """The product of a compiler for a model. view: dynamo, aten, joint, inductor, export or onnx.

    text: the graphs as Python, or Inductor's code.  lines: [line of the text, file, line of the file].  operations: in
    all graphs.  sizes: the other ones at which it was run, by symbol.  problem: why there is no program.  place: [file,
    line] that prevents it, if that is known.
    """

    view: str
    text: str
    lines: list[tuple[int, str, int]]
    graphs: int
    operations: int
    breaks: list[GraphBreak]
    recompiles: list[Recompile]
    sizes: list[dict[str, int]]
    kernels: list[Kernel]
    problem: str
    place: tuple[str, int] | None


# Hardware, and its simulation.


class Build(BuildRecord):
    """Parameters of an emission. precision, data: number formats of the weights and of the data, "" for the default.
    multipliers: a budget of them; interval: of cycles from one sample to the next; both None for none.  scope: the
    module to build, "" for the whole model."""


class EmissionHead(records.EmissionHead):
    """Hardware of a model without its text."""


class Emission(EmissionRecord):
    """Hardware of a model."""


class Verilog(TypedDict, total=False):
    """The hardware of a model; no keys if the file has no model."""

    model: str
    build: Build | None
    default: Build
    emission: EmissionHead | None
    stale: bool
    running: bool
    problem: str | None


class Simulation(SimulationFacts):
    """The result of a simulation. latency: 0 where no result came."""

    latency: int


# Graphs: nodes, places in the source, and their values.


class Node(TypedDict):
    """A node of a graph: its operation, its place, and the results of passes and hardware.

    scope: [module path, type].  sqnr: in dB, "inf" if nothing differs.
    """

    index: int
    name: str
    op: str
    target: str
    mase_op: str
    mase_type: str
    family: str
    model: str
    scope: list[str] | None
    value: Value
    flops: int | None
    file: str | None
    line: int
    column: int
    end_line: int
    end_column: int
    details: NodeDetails
    format: str | None
    sqnr: float | str | None
    max_error: float | None
    note: str | None
    saturated: float | None
    hardware: list[Operation]


#: The kinds of places that hold a value.
SiteKind = Literal["parameter", "binding", "return", "expression"]


class PlaceValue(TypedDict):
    """A value seen at a place. original: the value without passes, if they change it.  scopes: [path, type] each."""

    value: Value
    original: Value
    model: str
    count: int
    scopes: list[list[str]]
    node: Node | None


class Place(TypedDict):
    """A place in a source file that held values."""

    path: str
    sha256: str
    stale: bool
    line: int
    column: int
    end_line: int
    end_column: int
    name: str
    kind: Annotated[str, SiteKind]
    function: str
    values: list[PlaceValue]


class SiteValue(TypedDict):
    """A value, without its node."""

    value: Value
    original: Value
    model: str
    count: int


class Site(TypedDict):
    """A place with its values."""

    line: int
    column: int
    end_line: int
    end_column: int
    name: str
    kind: Annotated[str, SiteKind]
    function: str
    values: list[SiteValue]


class Tensors(TypedDict):
    """The tensors of a source file. next: the line at which the rest begins."""

    path: str
    sha256: str
    stale: bool
    next: int | None
    sites: list[Site]


class GraphFile(TypedDict):
    """A file that nodes of a graph stand in. library: is it outside the workspace?"""

    path: str
    library: bool


class GraphColumns(TypedDict, total=False):
    """The columns that were asked for; a row of each tells of one operation.

    row: its number; inputs: the numbers of the operations that it reads.  value, scope, file: indices into the tables
    of a `Graph`, -1 for none.  details: what a hover shows.  format .. saturated: results of passes.  parameters: how
    many elements the parameters of a layer, or of a parameter that it reads, have.  bytes: of its result.  kernel: the
    names of the kernels that Inductor makes of it; None unless these were asked for, with `mase/compiled`.  seconds,
    moved, bound: of a run on a device, as in a `CostRow`; None unless these are shown, with `mase/deviceCosts`.
    """

    row: list[int]
    name: list[str]
    op: list[str]
    target: list[str]
    mase_op: list[str]
    mase_type: list[str]
    family: list[str]
    scope: list[int]
    value: list[int]
    flops: list[int | None]
    file: list[int]
    line: list[int]
    column: list[int]
    end_line: list[int]
    end_column: list[int]
    inputs: list[list[int]]
    details: list[NodeDetails]
    format: list[str | None]
    sqnr: list[float | str | None]
    max_error: list[float | None]
    note: list[str | None]
    saturated: list[float | None]
    parameters: list[int]
    bytes: list[int]
    kernel: list[str | None]
    seconds: list[float | None]
    moved: list[int | None]
    bound: list[str | None]


class Graph(ModelTrace):
    """A graph as columns. values, scopes ([path, type]), files: the tables that columns of these names index."""

    total: int
    start: int
    next: int | None
    columns: GraphColumns
    values: list[Value]
    scopes: Annotated[list[list[str]], "[module path, type] each", list[tuple[str, str]]]
    files: list[GraphFile]


class TracedValue(TypedDict):
    """A value, and the paths of the modules in which it was seen."""

    value: Value
    model: str
    count: int
    scopes: list[str]


class TracedSite(TypedDict):
    """A place with its values."""

    line: int
    column: int
    end_line: int
    end_column: int
    name: str
    kind: Annotated[str, SiteKind]
    function: str
    values: list[TracedValue]


class Traced(TypedDict):
    """All results of a file's trace for that file. next: the line at which the remaining sites begin."""

    path: str
    sha256: str
    status: Status | None
    interpreter: str | None
    python: str | None
    torch: str | None
    seconds: float | None
    models: list[ModelFacts]
    problems: list[Problem]
    sites: list[TracedSite]
    next: int | None
