"""The types of answers about files: the state of their traces, their inputs, their problems; and about the daemon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from mase_server.protocol.codes import ErrorCode
from mase_server.protocol.records import Plain, ProblemRecord, UnshownModel, Value

#: A JSON schema.
Schema = dict[str, Any]


#: How a generation ends.
EndState = Literal["ready", "failed", "crashed", "superseded", "untrusted", "no_model", "no_environment"]
#: The states of a generation.
TraceState = Literal["queued", "starting", "tracing", EndState]


class TraceStatus(TypedDict):
    """The state of one trace of one text of a file. A trace has exactly one end state.

    sha256: of the requested text.  shown_sha256: of the text whose shapes are shown; stale: is that an older one?
    live: does a process still hold the graphs?  seconds: since the trace was requested.  generation: counts the
    requested texts.  message: one sentence for people.  models: the newest text's models that are shown; unshown:
    those that are not.  unsaved: is what is shown, or is being traced, of a text that is not saved?
    """

    state: Annotated[str, TraceState]
    generation: int
    sha256: str
    shown_sha256: str | None
    stale: bool
    live: bool
    seconds: float
    message: str
    models: list[str]
    unshown: list[UnshownModel]
    unsaved: bool


class Status(TraceStatus):
    """The state of one trace of a file."""

    path: str


class FileStatus(TypedDict, total=False):
    """The same; empty before the first trace begins."""

    path: str
    state: Annotated[str, TraceState]
    generation: int
    sha256: str
    shown_sha256: str | None
    stale: bool
    live: bool
    seconds: float
    message: str
    models: list[str]
    unshown: list[UnshownModel]
    unsaved: bool


class File(TypedDict):
    """A file that is or was open."""

    path: str
    folder: str
    open: bool
    status: Status | None


class Closed(TypedDict):
    """open: does another client have it open?"""

    path: str
    open: bool


class Problem(ProblemRecord):
    """A diagnostic. code: one of those that the reference lists.  fixes: edits that mend it."""


class Inputs(TypedDict):
    """The inputs that a model is traced with. text: the comment that asks for the same ones.

    sets: the named sets from comments; set: the one in use, "" for none.  builders: calls of functions of the file
    that build the model; builder: the one that built it, "" if none did.
    """

    model: str
    inputs: dict[str, Value]
    inputs_from: str
    found: str
    text: str | None
    sets: list[str]
    set: str
    builders: list[str]
    builder: str


class Root(TypedDict):
    """A model that shows shapes in a file."""

    root: str
    path: str
    inputs_from: str
    found: str
    picked: bool


# Sets of inputs: what users may change, the result of a change, and the difference between two sets.


class InputField(TypedDict):
    """An input or an argument as a text. text: "" if none is given, or if it cannot be written; then `why` says why."""

    name: str
    text: str
    why: str
    required: bool
    default: str


class InputForm(TypedDict):
    """The inputs and arguments of a model for editing. call: creates the model; "" if no comment can express it."""

    call: str
    arguments: list[InputField]
    inputs: list[InputField]


class InputProblem(TypedDict):
    """A problem of a set of inputs. field: e.g. "inputs.x", "" if it belongs to no field."""

    severity: str
    field: str
    message: str


class InputFigures(TypedDict):
    """A model with a set of inputs. bytes: read and written by its operators.  seconds: that its trace took.

    outputs, flops, bytes: None if the forward does not reach its end.
    """

    set: str
    inputs: dict[str, Value] | None
    inputs_from: str
    arguments_from: str
    found: str
    outputs: Value
    parameters: int | None
    parameter_bytes: int | None
    flops: int | None
    bytes: int | None
    nodes: int | None
    seconds: float | None
    form: InputForm | None


class InputTrial(InputFigures):
    """The result of trying a set of inputs. comment: the comment that would be written, "" for none."""

    comment: str
    problems: list[InputProblem]


class InputRow(TypedDict):
    """A place with tensors and its values with both sets; None if it was not reached."""

    line: int
    column: int
    name: str
    kind: str
    function: str
    before: list[Value] | None
    after: list[Value] | None
    differs: bool


class InputComparison(TypedDict):
    """The difference of a model with two sets of inputs."""

    path: str
    model: str
    before: InputFigures | None
    after: InputFigures | None
    rows: list[InputRow]
    problems: list[InputProblem]


# The daemon itself: its files, processes and connections.


class Method(TypedDict):
    """One function of the API. params, result: JSON schemas.

    since: the first version that has it.  until: the first version that may lack it, None while none is planned.
    """

    name: str
    since: str
    until: str | None
    description: str
    params: Schema
    result: Schema


class Info(TypedDict):
    """The daemon. files: the traced ones.  protocols: the versions of the API that it speaks."""

    name: str
    protocols: list[int]
    version: str
    pid: int
    files: list[str]
    methods: NotRequired[list[Method]]


class Worker(TypedDict):
    """A live trace child. memory: bytes.  idle: seconds."""

    path: str
    folder: str
    pid: int
    memory: int
    generation: int
    idle: float


class Restarted(TypedDict):
    """The folders whose workers were restarted."""

    folders: list[str]


class Timing(TypedDict):
    """How often something happened and failed, and how many seconds it took; quantiles are at most 19 % too high."""

    count: int
    errors: int
    p50: float
    p95: float
    max: float


class Counted(TypedDict):
    """The counters of a daemon's requests, traces and processes, see `Statistics`."""

    seconds: float
    methods: dict[str, Timing]
    traces: dict[str, Timing]
    unchanged: int
    running: int
    waiting: int
    subscribers: int
    booted: int
    forked: int


class Statistics(Counted):
    """The counters of the daemon. states: of files.  requests: of the front that was called, {} for the editor's.

    seconds: since the daemon began.  methods: requests of all fronts.  traces: by end state, measured from the request;
    errors: traces whose process died.  running, waiting: traces now.  unchanged: file events without a new text.
    booted: warm processes that the daemon started.  forked: their children.  workers: bytes of the live ones.
    subscribers: connections that are subscribed to events now.
    """

    pid: int
    memory: int
    files: int
    open: int
    states: dict[str, int]
    live: int
    nodes: int
    requests: dict[str, float]
    workers: int


#: What a client can subscribe to.
Topic = Literal["graph", "problems", "worker", "progress", "verilog"]
#: The forms of errors: a map, or [0, "code: message"] for clients that know only a number and a text.
ErrorForm = Literal["map", "pair"]

#: The forms of events: notifications `mase/event`, or autocommands `User MaseEvent` of Neovim with the event as `data`.
EventForm = Literal["notification", "autocommand"]


class ErrorMap(TypedDict):
    """An error as clients are told of it. data: plain values that explain it."""

    code: Annotated[str, ErrorCode]
    message: str
    data: NotRequired[Mapping[str, Plain]]


class Session(TypedDict):
    """How a connection is talked to: the forms of its errors and events, and the version of the API."""

    errors: Annotated[str, ErrorForm]
    events: Annotated[str, EventForm]
    protocol: int


class Subscription(TypedDict):
    """The number of a subscription."""

    subscription: int
    topics: list[Annotated[str, Topic]]


class Unsubscribed(TypedDict):
    """ended: was there such a subscription?"""

    ended: bool


class Authenticated(TypedDict):
    """The token is right."""

    authenticated: Literal[True]


class Cancelled(TypedDict):
    """cancelled: was the request still running?"""

    cancelled: bool


#: Requests that every connection answers by itself: parameters, the type of the answer, and what they do.
CONNECTION: dict[str, tuple[dict[str, type], type, str]] = {
    "mase/authenticate": ({"token": str}, Authenticated, "Send the daemon's token, first of all, on TCP."),
    "mase/cancel": ({"id": int}, Cancelled, "Cancel the request with this id; it then ends with `cancelled`."),
}


# News for who subscribed.


class EventHead(TypedDict):
    """One event about a file. subscriptions: the numbers of those that it belongs to.  coalesced: it stands for several
    of which a client that reads slowly gets only the newest."""

    path: str
    subscriptions: list[int]
    coalesced: NotRequired[bool]


class GraphEvent(EventHead):
    """The shapes of a file changed. sha256: of the text that they belong to, "" if nothing is shown.  complete: did the
    trace end?"""

    topic: Literal["graph"]
    sha256: str
    stale: bool
    models: list[str]
    complete: bool


class ProblemsEvent(EventHead):
    """The problems of a file changed; how many there are of each severity."""

    topic: Literal["problems"]
    error: int
    warning: int
    information: int


class WorkerEvent(EventHead, TraceStatus):
    """A trace entered a state, or the process that holds its graphs ended."""

    topic: Literal["worker"]


class ProgressEvent(EventHead):
    """A trace, passes or hardware go on. model: "" for a trace.  message: one line, "" at the end.  fraction: the part
    that is done, 0 to 1, None if unknown."""

    topic: Literal["progress"]
    model: str
    of: Literal["trace", "passes", "verilog"]
    message: str
    fraction: float | None
    ended: bool


class VerilogEvent(EventHead):
    """The hardware of a model changed: ask `mase/verilog`."""

    topic: Literal["verilog"]
    model: str


#: What each notification of the server holds. An event's type is told by its topic.
NOTIFICATIONS: dict[str, tuple[type, ...]] = {
    "mase/event": (GraphEvent, ProblemsEvent, WorkerEvent, ProgressEvent, VerilogEvent),
    "mase/error": (ErrorMap,),
    "mase/dropped": (ErrorMap,),
}
