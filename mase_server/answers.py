"""What API functions answer: the types that `mase/info` tells as JSON schemas, and that the Python clients give.

Declared once, here; tests hold every answer against them. New keys may come with any version, none goes or changes.
Standard library only, since clients load it. A `value` is as `snapshot` has it: a tensor is [type, shape, symbols].
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class Method(TypedDict):
    """One function of the API. params, result: JSON schemas."""

    name: str
    since: str
    description: str
    params: dict[str, Any]
    result: dict[str, Any]


class Info(TypedDict):
    """The daemon. files: the traced ones."""

    name: str
    version: str
    pid: int
    files: list[str]
    methods: NotRequired[list[Method]]


class Status(TypedDict):
    """Where one trace of a file is; see `daemon.status.Status`."""

    path: str
    state: str
    generation: int
    sha256: str
    shown_sha256: str | None
    stale: bool
    live: bool
    seconds: float
    message: str


class FileStatus(TypedDict, total=False):
    """The same; nothing of it before the first trace began."""

    path: str
    state: str
    generation: int
    sha256: str
    shown_sha256: str | None
    stale: bool
    live: bool
    seconds: float
    message: str


class File(TypedDict):
    """A file that somebody looks at, or looked at."""

    path: str
    folder: str
    open: bool
    status: Status | None


class Closed(TypedDict):
    """open: does somebody else look at it?"""

    path: str
    open: bool


class Transform(TypedDict):
    """What passes made of a model, as `snapshot.TRANSFORM_KEYS` has it. texts: the steps as texts."""

    model: int
    steps: list[dict[str, Any]]
    texts: list[str]
    formats: NotRequired[dict[str, float]]
    summary: dict[str, Any] | None
    inputs: str
    weights: str
    complete: bool
    problem: str | None
    failed: int | None


class ModelFacts(TypedDict):
    """A model, as `snapshot.MODEL_KEYS` has it, with its title. path: of a file."""

    name: str
    title: str
    path: str
    file_index: int
    line: int
    column: int
    end_line: int
    end_column: int
    arguments: dict[str, Any]
    inputs: dict[str, Any]
    inputs_from: str
    arguments_from: str
    found: str
    mode: str
    rung: str
    nodes: int
    parameters: int
    parameter_bytes: int
    flops: int | None
    generic: bool
    symbols: dict[str, int]
    fixed: list[str]
    seconds: float
    rest: bool
    comment: dict[str, Any]


class Model(ModelFacts):
    """A model of the file `path`, which was traced from the text `sha256`."""

    sha256: str
    complete: bool
    transform: Transform | None


class Node(TypedDict):
    """A node of a graph: what it computes, where it stands, what passes and hardware made of it.

    scope: [module path, type].  details: a map of `snapshot.NODE_BLOB`.  sqnr: in dB, "inf" where nothing differs.
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
    value: Any
    flops: int | None
    file: str | None
    line: int
    column: int
    end_line: int
    end_column: int
    details: dict[str, Any]
    format: str | None
    sqnr: float | str | None
    max_error: float | None
    note: str | None
    hardware: list[dict[str, Any]]


class PlaceValue(TypedDict):
    """A value that was seen at a place. original: without passes, where they change it.  scopes: [path, type] each."""

    value: Any
    original: Any
    model: str
    count: int
    scopes: list[list[str]]
    node: Node | None


class Place(TypedDict):
    """A place in a source file that held values. kind: one of `snapshot.KINDS`."""

    path: str
    sha256: str
    stale: bool
    line: int
    column: int
    end_line: int
    end_column: int
    name: str
    kind: str
    function: str
    values: list[PlaceValue]


class SiteValue(TypedDict):
    """A value, without the node that made it."""

    value: Any
    original: Any
    model: str
    count: int


class Site(TypedDict):
    """A place with its values."""

    line: int
    column: int
    end_line: int
    end_column: int
    name: str
    kind: str
    function: str
    values: list[SiteValue]


class Tensors(TypedDict):
    """The tensors of a source file. next: the line that the rest begins at."""

    path: str
    sha256: str
    stale: bool
    next: int | None
    sites: list[Site]


class Graph(TypedDict):
    """A graph as columns. values, scopes ([path, type]), files: what columns of these names refer to."""

    path: str
    model: str
    sha256: str
    generation: int
    stale: bool
    complete: bool
    total: int
    start: int
    next: int | None
    columns: dict[str, list[Any]]
    values: list[Any]
    scopes: list[list[str]]
    files: list[dict[str, Any]]


class Problem(TypedDict):
    """A diagnostic; see `snapshot.Problem`."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    severity: str
    code: str
    message: str
    related: list[dict[str, Any]]
    fixes: list[dict[str, Any]]


class ModuleCost(TypedDict):
    """A module with all below it; path "" is the whole model."""

    path: str
    type: str
    nodes: int
    flops: int


class OperatorCost(TypedDict):
    """All calls of an operator."""

    mase_op: str
    family: str
    nodes: int
    flops: int


class TracedValue(TypedDict):
    """A value, and the paths of the modules that it was seen in."""

    value: Any
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
    kind: str
    function: str
    values: list[TracedValue]


class Traced(TypedDict):
    """All that the trace of a file tells of that file. next: the line that the rest of the sites begins at."""

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


class Costs(TypedDict):
    """What one forward of a model costs."""

    model: str
    nodes: int
    flops: int | None
    parameters: int
    parameter_bytes: int
    modules: list[ModuleCost]
    operators: list[OperatorCost]


class Side(TypedDict):
    """One of two models that are compared."""

    path: str
    model: str
    nodes: int
    parameters: int
    parameter_bytes: int
    flops: int | None


class NodeSide(TypedDict):
    """A node of one of them."""

    mase_op: str
    value: Any


class Changed(TypedDict):
    """A node that differs; format .. note: of what passes made."""

    name: str
    before: NodeSide
    after: NodeSide
    format: NotRequired[str | None]
    sqnr: NotRequired[float | str | None]
    max_error: NotRequired[float | None]
    note: NotRequired[str | None]


class Comparison(TypedDict):
    """How two models differ."""

    before: Side
    after: Side
    changed: list[Changed]
    added: list[str]
    removed: list[str]
    summary: dict[str, Any] | None


class Inputs(TypedDict):
    """With which inputs a model is traced. text: the comment that asks for the same."""

    model: str
    inputs: dict[str, Any]
    inputs_from: str
    found: str
    text: str | None


class Root(TypedDict):
    """A model that shows shapes in a file."""

    root: str
    path: str
    inputs_from: str
    found: str
    picked: bool


class PassArgument(TypedDict):
    """What a pass takes; see `arguments.Argument`."""

    name: str
    kind: str
    help: str
    default: Any
    required: bool
    choices: list[str]
    minimum: float | None
    maximum: float | None


class Pass(TypedDict):
    """A pass; see `passes.declaration.Pass`."""

    name: str
    title: str
    kind: str
    selects: bool
    menu: bool
    source: str
    help: str
    mase: str
    needs: list[str]
    arguments: list[PassArgument]
    others: PassArgument | None


class Pipeline(TypedDict, total=False):
    """The passes on a model; nothing where no model is shown."""

    model: str
    steps: list[str]
    undone: list[str]
    summary: dict[str, Any] | None
    problem: str | None
    complete: bool
    running: bool


class Text(TypedDict):
    """A text to be shown."""

    text: str
    language: str


class Build(TypedDict):
    """How hardware is made; see `building.Build`."""

    precision: str
    multipliers: int | None
    interval: int | None
    scope: str
    max_multipliers: int
    max_memory_bits: int


class EmissionHead(TypedDict):
    """Hardware of a model without its text; see `building.EMISSION_KEYS`."""

    model: str
    build: Build
    steps: list[str]
    weights: str
    module: str
    files: list[list[Any]]
    folder: str | None
    operations: list[dict[str, Any]]
    unsupported: list[dict[str, Any]]
    totals: dict[str, Any]
    refusal: str | None
    scopes: list[str]


class Emission(EmissionHead):
    """Hardware of a model."""

    text: str


class Verilog(TypedDict, total=False):
    """What is known of a model's hardware; nothing where no model is shown."""

    model: str
    build: Build | None
    default: Build
    emission: EmissionHead | None
    stale: bool
    running: bool
    problem: str | None


class Simulation(TypedDict):
    """What a simulation said; see `building.SIMULATION_KEYS`."""

    status: str
    vectors: int
    mismatches: int
    cycles_per_vector: float | None
    latency: int
    cycles: int
    first: dict[str, Any] | None
    folder: str
    seconds: dict[str, float]
    log: str


class Checkpoint(TypedDict):
    """What was written. weights: whose, in words."""

    files: list[str]
    weights: str


class ArrayPart(TypedDict):
    """Bytes of an array. size: of the whole array, in bytes.  offset: of `data` in it."""

    name: str
    dtype: str
    shape: list[int]
    size: int
    offset: int
    data: bytes


class Weights(TypedDict):
    """A page of parameters and buffers. total: bytes of all pages.  weights: whose, in words."""

    arrays: list[ArrayPart]
    total: int
    next: int | None
    weights: str


class Drawing(TypedDict, total=False):
    """The text, or the file that it was written to."""

    svg: str
    file: str


class Worker(TypedDict):
    """A live trace child. memory: bytes.  idle: seconds."""

    path: str
    folder: str
    pid: int
    memory: int
    generation: int
    idle: float


class Restarted(TypedDict):
    """The folders concerned."""

    folders: list[str]


class Statistics(TypedDict):
    """What the daemon counts. states: of files.  requests: of the front that was asked, {} for the editor's."""

    pid: int
    memory: int
    files: int
    open: int
    states: dict[str, int]
    live: int
    nodes: int
    requests: dict[str, float]


class Session(TypedDict):
    """How a connection is told of errors."""

    errors: str


class Subscription(TypedDict):
    """Its number."""

    subscription: int
    topics: list[str]


class Unsubscribed(TypedDict):
    """ended: was there such a subscription?"""

    ended: bool
