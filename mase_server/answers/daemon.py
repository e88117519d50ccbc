"""The daemon itself: what it serves, its processes, its connections."""

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


class Timing(TypedDict):
    """How often something happened, how often it failed, and its seconds: quantiles are at most 19 % too high."""

    count: int
    errors: int
    p50: float
    p95: float
    max: float


class Statistics(TypedDict):
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
    seconds: float
    methods: dict[str, Timing]
    traces: dict[str, Timing]
    running: int
    waiting: int
    unchanged: int
    booted: int
    forked: int
    workers: int
    subscribers: int


class Session(TypedDict):
    """The form in which a connection receives errors."""

    errors: str


class Subscription(TypedDict):
    """Its number."""

    subscription: int
    topics: list[str]


class Unsubscribed(TypedDict):
    """ended: was there such a subscription?"""

    ended: bool
