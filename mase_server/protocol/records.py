"""The records that the two halves send each other: each key is declared here, once, with its type and its meaning.

Both halves load this module. `answers` extends these records; the documentation prints their meanings.
"""

# No `from __future__ import annotations` here: `key_meanings` reads the annotations as they stand.

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict, get_args, get_origin

if TYPE_CHECKING:
    from mase_server.protocol.answers.files import InputForm

#: The version of the API itself. A new one drops or changes what the last one promised; clients name those they speak.
PROTOCOL = 1


@dataclass(frozen=True, slots=True)
class Life:
    """The versions of this program that have a parameter or a key, as a part of its `Annotated` type.

    since: the first.  until: the first that may lack it; "" while none is planned.
    """

    since: str = "0.1"
    until: str = ""


#: A value: a tensor is [type, shape, symbols].
Value = Annotated[Any, "None, [type, shape, symbols], {tuple}, {dict} or {python}"]
_VALUE = {"$ref": "#/$defs/Value"}
#: The JSON schema of a `Value`. The number of a value that is no tensor is its Python text.
VALUE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "null"},
        {
            "type": "array",
            "prefixItems": [
                {"title": "dtype", "type": "string"},
                {"title": "shape", "type": "array", "items": {"type": "integer"}},
                {"title": "symbols", "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
            ],
            "minItems": 3,
            "maxItems": 3,
        },
        {"type": "object", "properties": {"tuple": {"type": "array", "items": _VALUE}}, "required": ["tuple"]},
        {
            "type": "object",
            "properties": {"dict": {"type": "object", "additionalProperties": _VALUE}},
            "required": ["dict"],
        },
        {"type": "object", "properties": {"python": {"type": "string"}}, "required": ["python"]},
    ]
}
#: What JSON can hold: None, a boolean, a number, a text, or a list or map of them.
Plain = Any
#: The parameters of a call, by their names.
Params = Mapping[str, Any]
#: An answer as it crosses a wire: a map, whose keys `answers` declares for each method.
Answer = dict[str, Any]
#: News for who subscribed: a map with "topic", "path", and what the topic tells, see `answers.files`.
Event = dict[str, Any]


#: How bad a problem is.
Severity = Literal["error", "warning", "information", "hint"]


class Extent(TypedDict):
    """Characters of a text: lines from 1, columns from 0 in code points, the end exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


class SourcePlace(Extent):
    """Characters of a file."""

    file: str


class Related(SourcePlace):
    """A place that explains a problem."""

    message: str


class Edit(SourcePlace):
    """A replacement of characters of a file."""

    new_text: str


class Fix(TypedDict):
    """A mend of a problem. preferred: is it the one that an editor applies without asking which?"""

    title: str
    preferred: bool
    edits: list[Edit]


class Command(TypedDict):
    """A program that a user may run in a terminal. arguments: the program, then its arguments."""

    title: str
    arguments: list[str]


class ProblemRecord(SourcePlace):
    """A diagnostic, see `snapshot.Problem`."""

    severity: Annotated[str, Severity]
    code: str
    message: str
    related: list[Related]
    fixes: list[Fix]
    command: Command | None


class WrittenComment(TypedDict):
    """A `# mase:` comment about a model. set: its named set.  own: of this model alone.  skip: it gives no inputs."""

    line: int
    column: int
    end_column: int
    set: str
    text: str
    own: bool
    skip: bool


class ModelComment(TypedDict, total=False):
    """The `# mase:` comment that asks for what was assumed of a model. {}: nothing was assumed."""

    text: str | None
    why: str
    inputs: str | None
    line: int
    column: int
    written: list[WrittenComment]


class ModelRecord(TypedDict):
    """One model: `line` .. `end_column` is the class name in its file (`file_index`)."""

    name: Annotated[str, "class name"]
    file_index: int
    line: int
    column: int
    end_line: int
    end_column: int
    arguments: Annotated[dict[str, Plain], "{constructor argument: plain value or text}"]
    inputs: Annotated[
        dict[str, Value], "{forward parameter: value}; tensors as {dtype, shape, symbols} nested like values"
    ]
    inputs_from: Annotated[str, "option|comment|settings|main|instance|usage|search"]
    arguments_from: Annotated[str, "the same words, or default"]
    found: Annotated[str, "one sentence on how they were found, for the lens and the hover"]
    mode: Annotated[str, "eval|train", Literal["eval", "train"]]
    rung: Annotated[str, "meta|fake|real: what the values ran on", Literal["meta", "fake", "real"]]
    nodes: int
    parameters: int
    parameter_bytes: int
    flops: Annotated[int | None, "int; None while the payload is not complete: it then has no nodes"]
    complete: Annotated[bool, "bool: the forward ran to its end; otherwise nodes and costs are those up to its error"]
    generic: Annotated[bool, "bool: proven at other sizes"]
    symbols: Annotated[dict[str, int], "{symbol: size in this run}"]
    fixed: Annotated[list[str], "texts on what the graph is fixed to, e.g. 'fixed to batch 2'"]
    guards: Annotated[
        list[str],
        "texts on what the graph takes for granted of sizes and values, e.g. 'T <= 512 at model.py:12'",
    ]
    seconds: Annotated[float, "float, time of the recording alone"]
    rest: Annotated[bool, "bool: shown alone because no other model has it"]
    sets: Annotated[list[str], "names of the sets of inputs that comments give it"]
    set: Annotated[str, "the set that is used, '' for none"]
    builders: Annotated[list[str], "calls of functions of its file that build it, such as `resnet18()`"]
    builder: Annotated[str, "the one that built it, '' if none did"]
    comment: Annotated[
        ModelComment,
        "{text, why, inputs, line, column}: the `# mase:` comment that asks for what was assumed, without its "
        "`#`, and above which line it goes; None where `why` says what has no text form; inputs: the one for these "
        "alone; written: the comments about it, {line, column, end_column, set, text, own, skip} each",
    ]


class TracedModel(ModelRecord):
    """A model of a payload, with the form of its inputs where a trial was asked for."""

    form: NotRequired[
        Annotated[
            "InputForm",
            "{call, arguments, inputs}: what a person may change, as the form shows it; only for a trial",
        ]
    ]


class ClassRecord(TypedDict):
    """One class statement: `line` .. `end_column` is its name."""

    name: str
    file_index: int
    line: int
    column: int
    end_line: int
    end_column: int


class FileRecord(TypedDict):
    """A file of a trace. library: is it outside the workspace?"""

    path: str
    sha256: str
    library: bool


class WeightColumns(TypedDict):
    """The parameters of one model, as `named_parameters` lists them, shared ones under each of their names."""

    name: Annotated[list[str], "e.g. transformer.h.0.mlp.c_fc.weight"]
    elements: Annotated[list[int], "int"]
    bytes: Annotated[list[int], "int"]
    same: Annotated[list[int], "index of the first name of the same parameter: its own, unless it is shared"]


class NodeDetails(TypedDict, total=False):
    """A node's packed map; absent keys do not apply."""

    args: Annotated[list[list[str]], "list of [MASE argument name, value or text]"]
    module: Annotated[
        str, "text of the module as torch prints it, e.g. Linear(in_features=768, out_features=3072, bias=True)"
    ]
    module_path: Annotated[str, "qualified name in the model, e.g. transformer.h.0.mlp.c_fc"]
    parameters: Annotated[dict[str, str], "{name: value} of the module's own parameters"]
    parameter_count: int
    parameter_bytes: int
    bytes: Annotated[int, "bytes read and written"]
    stack: Annotated[
        list[list[Any]],
        "list of [file index, line, column, end_line, end_column, function], innermost first",
        list[tuple[int, int, int, int, int, str]],
    ]
    input_nodes: Annotated[list[int], "list of node indices"]


class UnshownModel(Extent):
    """A model of which no shapes are shown, at its class.

    why: the reason; step: what would help, both sentences.  code: of the problem, as diagnostics have it.
    """

    name: str
    why: str
    step: str
    code: str


class UnrunCode(Extent):
    """Code of a shown model that did not run with its inputs.

    decider: the line that decides whether it runs, 0 for none.  reason: a sentence, [text, code, text]; empty for none.
    """

    file_index: int
    decider: int
    reason: list[str]


# "pass" is a word of Python, so no class body can declare it.
StepRecord = TypedDict("StepRecord", {"pass": str, "arguments": dict[str, Plain]})


class AppliedStep(StepRecord):
    """A step that was applied. info: what it did, in words.  report: the text that a pass of that kind writes."""

    title: str
    seconds: float
    info: str
    report: str | None


class Summary(TypedDict, total=False):
    """The effect of passes on a whole model, each as [before, after]; sqnr, max_error: of the output. {}: none.

    trainable: parameters that learn, absent if all do.  ranks: of LoRA adapters, each once, absent without any.
    sparsity: the share of the weights of linear and convolution layers that pruning took away, absent if none.
    """

    nodes: list[int]
    parameters: list[int]
    parameter_bytes: list[int]
    data_bits: list[float | None]
    weight_bits: list[float | None]
    sqnr: float | str | None
    max_error: float | None
    saturated: float | None
    trainable: list[int]
    ranks: list[int]
    sparsity: float


class InsertedNode(TypedDict):
    """An operation that a pass inserted. after: the row before it in order of execution, -1 for none.  inputs: rows, or
    -1 - n for the inserted operation n.  inserted_by: a pass."""

    name: str
    op: str
    target: str
    mase_op: str
    mase_type: str
    family: str
    after: int
    inputs: list[int]
    value: Value
    inserted_by: str


class TransformFacts(TypedDict):
    """The result of a pipeline of passes on one model, without its tables."""

    model: Annotated[int, "index into models"]
    steps: Annotated[
        list[AppliedStep],
        "list of {pass, arguments, title, seconds, info, report}: in order; info: what it did, in words; report: "
        "the text that a pass of that kind writes, else None",
    ]
    formats: NotRequired[
        Annotated[
            dict[str, float],
            "{number format: bits of an element on average}: every format that `rows` and `nodes` name",
        ]
    ]
    summary: Annotated[
        Summary | None,
        "{nodes, parameters, parameter_bytes, data_bits, weight_bits: [before, after] each; sqnr, max_error: of "
        "the output; saturated: of all values}; these three are None until measured, sqnr is 'inf' where nothing "
        "differs; where passes change them: trainable: [before, after], ranks: of adapters, sparsity: of all weights",
    ]
    inputs: Annotated[str, "on what inputs the errors were measured, in words; '' until measured"]
    weights: Annotated[
        str,
        "whose values: in words, e.g. 'weights of model.pt' or 'random weights (seed 0)'; '' until then",
    ]
    complete: Annotated[bool, "bool: no more is coming"]
    problem: Annotated[str | None, "why it stopped, and at which step; None where all steps were applied"]
    failed: Annotated[int | None, "index of the step that failed, or None"]


class TransformRecord(TransformFacts):
    """The same with its tables: it lies over the payload of the model as it was traced."""

    rows: Annotated[
        list[list[Any]],
        "[rows of the table rows], [their values now]: as in values, the number format for the element type",
    ]
    nodes: Annotated[
        dict[str, list[Any]],
        "columns row (in nodes), format, sqnr (dB), max_error, note (e.g. 'taken together with conv1'), saturated "
        "(the share of its values that its formats do not hold, 0 to 1); None each where it is not known",
    ]
    inserted: NotRequired[
        Annotated[
            list[InsertedNode],
            "operations that passes inserted, in order: {name, op, target, mase_op, mase_type, family, after, inputs, "
            "value, inserted_by}; roundings and masks are told as formats and notes instead",
        ]
    ]
    rewired: NotRequired[
        Annotated[
            list[tuple[int, list[int]]],
            "[row, its inputs now] of every row that reads an inserted operation; -1 - n is the inserted operation n",
        ]
    ]


# Hardware of a model, and its simulation.


#: The largest size that is searched for what fits into memory.
MOST_SEARCHED = (1 << 20) - 1


class RunFacts(TypedDict):
    """A run of a model in numbers. mode: inference or training.  loss: what is differentiated, in words.

    measured: how values were needed to record it, "" if it was recorded without.  sizes: of the symbols, as recorded;
    fits: the largest of each at the recorded sizes of the others.  kinds: bytes of the peak.  fits_checkpointed: the
    same if the model's blocks were computed again in the backward.  checkpointed: these blocks, such as "12 Block".
    parallel: how several devices share the run, "" for one alone: all is told for one of them.  sent_bytes: that it
    sends in rings.  split_seconds: of the communication for split tensors.  token_bytes: keys and values that inference
    keeps for each token of a sequence, 0 if it keeps none.  longest: so many tokens of each sequence fit beside the
    parameters, at the recorded number of sequences.
    """

    mode: str
    optimizer: str
    loss: str
    measured: str
    peak_bytes: int
    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    inputs_bytes: int
    kinds: dict[str, int]
    sizes: dict[str, int]
    fits: dict[str, int]
    fits_checkpointed: dict[str, int]
    checkpointed: str
    parallel: str
    devices: int
    sent_bytes: int
    split_seconds: float
    token_bytes: int
    longest: int


class RunCosts(TypedDict):
    """The costs of a run of a model on any device; see `ir/run_costs.py`.

    held: holders of the peak, as [kind, file, line, module, bytes].  curve: [number of the operator, bytes held after
    it, file, line, module].  calls: [phase, operator, element type, file, line, module, FLOPs, bytes read, bytes
    written, how often].  files, modules: what these numbers stand for.
    """

    facts: RunFacts
    held: list[list[Any]]
    curve: list[list[int]]
    calls: list[list[Any]]
    files: list[str]
    modules: list[str]


class PartRecord(TypedDict):
    """A chip that hardware has to fit. bandwidth: bytes a second to the memory beside it.  clock: cycles a second.

    process: that of a chip of one's own, which limits nothing; "" for a part that is bought.
    """

    name: str
    title: str
    luts: int
    multipliers: int
    memory_bits: int
    bandwidth: float
    clock: float
    source: str
    process: str


class BuildRecord(TypedDict):
    """How hardware is made."""

    precision: str
    data: str
    multipliers: int | None
    interval: int | None
    copies: int | None
    scope: str
    max_multipliers: int
    max_memory_bits: int
    target: str
    part: PartRecord | None
    bus: str
    weights: str
    reset_style: str


class Accuracy(TypedDict, total=False):
    """The accuracy that hardware loses. {}: nothing is emitted."""

    sqnr: float | str | None
    max_error: float | None
    saturated: float | None
    inputs: str | None
    calibrated: str | None
    problem: str | None


class Estimate(TypedDict, total=False):
    """The resources of one operation, before synthesis. {}: there is no hardware as it was asked for.

    utilisation: the share of the whole's interval in which it works.  reads, waits: cycles of a sample in which its
    weights are read from outside, and whether it waits for them.
    """

    multipliers: int
    luts: int
    memory_bits: int
    cycles: int
    latency: int
    utilisation: float
    reads: int
    waits: bool


class Totals(TypedDict, total=False):
    """The resources of a whole design. {}: there is no hardware as it was asked for.

    reads, waiting: cycles of a sample in which weights are read from outside, and the operations that wait for them.
    clock, samples: cycles and samples a second, estimated for the target; missing without one.  rams: memories that are
    written, each size as [words, bits of a word, number of them]; missing but for a chip of one's own.  copies: of the
    design, which take samples in turn; missing for one.
    """

    multipliers: int
    luts: int
    memory_bits: int
    interval: int
    latency: int
    bottlenecks: list[str]
    reads: int
    waiting: list[str]
    clock: float
    samples: float
    rams: list[list[int]]
    copies: int


class Operation(TypedDict):
    """One operation of a design. `rows`: indices into the payload's table of nodes.  `lines`: of the text."""

    name: Annotated[str, "the instance's stem"]
    kind: Annotated[str, "of operation, such as linear"]
    module: Annotated[str, "the component"]
    nodes: Annotated[list[str], "names of graph nodes"]
    rows: Annotated[list[int], "list of indices"]
    lines: Annotated[list[list[int]], "list of [first, last], from 1, both included"]
    scope: Annotated[str, "path of the module that it belongs to"]
    estimate: Annotated[Estimate, "its resources; {} where there is no hardware as it was asked for"]


class MissingHardware(TypedDict):
    """A node without hardware. row: its index, -1 where it has none.  nodes: the names that it stands for."""

    node: str
    operator: str
    why: str
    row: int
    nodes: list[str]


class EmissionHead(TypedDict):
    """Hardware of a model without its text."""

    model: Annotated[str, "the model's title"]
    build: Annotated[BuildRecord, "how it is made"]
    steps: Annotated[
        list[str],
        "texts of the steps that were applied to make the graph fit for hardware, the model's pipeline first",
    ]
    weights: Annotated[
        str,
        "whose values stand in the memories, in words, e.g. 'random weights (seed 0)'; '' where nobody said",
    ]
    accuracy: Annotated[Accuracy, "what it loses; {} where nothing is emitted"]
    module: Annotated[str, "the top module's name"]
    files: Annotated[
        list[list[Any]],
        "[relative path, bytes] of every file of the folder, the top module first",
        list[tuple[str, int]],
    ]
    folder: Annotated[str | None, "absolute path that it was written to, or None"]
    operations: Annotated[list[Operation], "in the order of the data"]
    unsupported: Annotated[
        list[MissingHardware],
        "list of {node, operator, why, row, nodes}: without hardware; `text` is then the rest",
    ]
    totals: Annotated[Totals, "the resources of what has hardware; {} where there is none as it was asked for"]
    refusal: Annotated[str | None, "why nothing was emitted (nothing has hardware, a budget, a ceiling), or None"]
    scopes: Annotated[
        list[str],
        "paths of modules that can be built alone as asked, each tried, largest first, at most 20; where refused "
        "or not whole",
    ]


class EmissionRecord(EmissionHead):
    """Hardware of a model."""

    text: Annotated[str, 'SystemVerilog of the top module; "" where nothing is emitted']


class FirstMismatch(TypedDict):
    """The first integer that a simulation gave wrong, see `simulation.simulating.Mismatch`."""

    output: str
    vector: int
    element: int
    expected: int
    got: int


class ActivityRecord(TypedDict):
    """The cycles of a waveform by what an operation does in them, see `simulation.waves.STATES`.

    columns: the same numbers in each part of the time.
    """

    name: str
    works: int
    waits_for_multipliers: int
    waits_for_room: int
    waits_for_data: int
    inside: int
    columns: list[list[int]]


class WaveRecord(TypedDict):
    """A waveform. picture: a drawing of the activity, as SVG.  begin: its first cycle, from the end of reset.

    column: cycles of a column.
    """

    file: str
    picture: str
    begin: int
    cycles: int
    column: int
    operations: list[ActivityRecord]


#: The end of a simulation.
SimulationStatus = Literal["equal", "different", "stood still", "failed"]


class SimulationFacts(TypedDict):
    """The result of a simulation. status: "equal" | "different" | "stood still" | "failed"."""

    status: Annotated[str, "as above", SimulationStatus]
    vectors: Annotated[int, "samples compared"]
    mismatches: Annotated[int, "elements that differ"]
    cycles_per_vector: Annotated[
        float | None,
        "from the last beat of the first result to that of the last, over the others; None for one",
    ]
    cycles: Annotated[int, "all"]
    first: Annotated[FirstMismatch | None, "{output, vector, element, expected, got} or None"]
    folder: Annotated[str, "absolute path"]
    seconds: Annotated[dict[str, float], "{build, run}"]
    log: Annotated[str, "the tool's own words, where it failed"]
    wave: Annotated[
        WaveRecord | None,
        "{file, picture, begin, cycles, column, operations}: the waveform that was asked for, and in how many of its "
        "cycles each operation works or waits; else None",
    ]


class SimulationRecord(SimulationFacts):
    """The same with its latency, None where no result came."""

    latency: Annotated[int | None, "from the first beat in to the last beat of the first result"]


def key_meanings(record: type) -> Mapping[str, str]:
    """The keys of a record with their meanings, as its declaration says them."""
    return {key: _meaning(hint) for key, hint in record.__annotations__.items()}


def _meaning(hint: Any) -> str:
    """The text of an annotation; the name of a type that has none."""
    origin: object = get_origin(hint)
    if origin is NotRequired:
        return _meaning(get_args(hint)[0])
    return str(hint.__metadata__[0]) if origin is Annotated else str(hint.__name__)
