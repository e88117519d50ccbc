"""API functions as data: name, parameters and result, all described by declared types, and their JSON schemas."""

from __future__ import annotations

import dis
import inspect
import reprlib
import types
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NotRequired,
    Protocol,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from mase_server.paths import canonical_of_absolute
from mase_server.protocol import answers
from mase_server.protocol.answers.files import ErrorForm, EventForm, Schema
from mase_server.protocol.codes import ErrorCode
from mase_server.protocol.records import VALUE_SCHEMA, Answer, Life, Value
from mase_server.protocol.records import Params as Params
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.daemon.daemon import Daemon


#: The parameters that select a model; `path` is enough for a file with a single one.
MODEL = {"path": str, "model?": str}

#: Parameters whose values are titles of models.
_NAMES = frozenset({"model", "root"})
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 120


class ApiError(ValueError):
    """A refusal with a code of `ERRORS`, and a text for users. data: plain values that explain it."""

    def __init__(self, code: ErrorCode, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Session(Protocol):
    """One connection that may open files and subscribe to events.

    ident: its name as an opener.  opened: files.  errors, events: the forms of these.
    """

    ident: str
    opened: set[str]
    errors: ErrorForm
    events: EventForm

    def subscribe(self, topics: frozenset[str], path: str | None) -> int:
        """Subscribe to these topics, of one file or of all; returns the subscription's number."""

    def unsubscribe(self, number: int) -> bool:
        """End a subscription; returns whether there was one."""

    def statistics(self) -> dict[str, float]:
        """The counters of the front that holds this session."""


@dataclass(frozen=True, slots=True)
class Api:
    """The context of an API function. session: the asking connection; None for the editor, which gets notifications."""

    daemon: Daemon
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class ApiMethod:
    """One function: its name on the wire, its parameters with their types (optional ones end in "?"), and itself.

    gives: the type of its result, see `answers`.  since, until: as in `Life`; parameters and keys of results have a
    `Life` of their own.  answer: the key that holds a result which is not a map where results must be maps.
    executes: does it run code of the file `path`, so that its folder must be trusted?
    """

    name: str
    params: Mapping[str, Any]
    function: Callable[[Api, Params], Awaitable[Any]]
    gives: Any
    since: str = "0.1"
    until: str = ""
    answer: str = ""
    executes: bool = False
    _known: Mapping[str, Any] = field(init=False)
    _required: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        # Every request looks these up.
        known = {key.removesuffix("?"): bare_type(kind) for key, kind in self.params.items()}
        object.__setattr__(self, "_known", known)
        object.__setattr__(self, "_required", tuple(key for key in self.params if not key.endswith("?")))

    @property
    def waits(self) -> bool:
        """Can the function wait for anything? If not, it is answered without a task."""
        return _can_wait(self.function)

    async def call(self, api: Api, params: Params) -> Any:
        """Check the parameters and run; ValueError says which one is missing, unknown or of the wrong type."""
        return await self.function(api, self.checked(api, params))

    def run_at_once(self, api: Api, params: Params) -> Any:
        """Run a function that never waits, with checked parameters."""
        try:
            self.function(api, params).__await__().send(None)
        except StopIteration as end:
            return end.value
        raise RuntimeError(f"{self.name} waits")

    def checked(self, api: Api, params: Params) -> Params:
        """The parameters with the canonical `path` and the shown title of a model; ValueError as in `call`."""
        for key, value in params.items():
            if key not in self._known:
                raise ValueError(f"{self.name} has no parameter {key!r}; it takes {_format_parameters(self.params)}")
            if not _is_fitting(value, kind := self._known[key]):
                raise ValueError(f"{self.name}: {key} is {_SHORT.repr(value)}, expected {_format_kind(kind)}")
        for key in self._required:
            if key not in params:
                raise ValueError(
                    f"{self.name}: parameter {key!r} is missing; it takes {_format_parameters(self.params)}"
                )
        for key in _NAMES & params.keys():
            if isinstance(name := params[key], str) and name != (title := reveal(name)):
                params = {**params, key: title}
        if "path" not in params or api.daemon.file(params["path"]) is not None:
            return params  # the daemon keys files by their canonical paths
        try:
            return {**params, "path": canonical_of_absolute(params["path"])}
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None

    def described(self) -> answers.Method:
        """The method with JSON schemas of its parameters and its result; see `answers.Method`."""
        result = schema_of(self.gives)
        if self.answer:
            result = {"type": "object", "properties": {self.answer: result}, "required": [self.answer]}
        return {
            "name": self.name,
            "since": self.since,
            "until": self.until or None,
            "description": inspect.getdoc(self.function) or "",
            "params": parameters_schema(self.params),
            "result": whole_schema(result),
        }

    def as_map(self, result: Any) -> Answer:
        """Wrap a result for clients that need a map."""
        return {self.answer: result} if self.answer else dict(result or {})


@cache
def _can_wait(function: Callable[..., Awaitable[Any]]) -> bool:
    """Does the coroutine function contain an instruction that awaits? If not, it runs through in one go."""
    return not inspect.iscoroutinefunction(function) or any(each.opname == "SEND" for each in dis.Bytecode(function))


def precise_type(kind: Any) -> Any:
    """The most precise form of an `Annotated` type: its words or its tuples, if it names them."""
    plain, *more = get_args(kind)
    return next((each for each in more if get_origin(each) is not None), plain)


def bare_type(kind: Any) -> Any:
    """A type of a parameter without what `Annotated` adds to it: its words, and its `Life`."""
    inner = get_args(kind)
    if get_origin(kind) is Annotated:
        return bare_type(inner[0])
    return list[bare_type(inner[0])] if get_origin(kind) is list else kind  # type: ignore[misc]


def _is_fitting(value: Any, kind: Any) -> bool:
    if kind is dict:
        return isinstance(value, dict) and all(isinstance(key, str) for key in value)
    if type(value) is kind:
        return True
    inner = get_args(kind)
    if isinstance(kind, UnionType):
        return any(_is_fitting(value, one) for one in inner)
    if inner:
        return isinstance(value, get_origin(kind)) and all(_is_fitting(each, inner[0]) for each in value)
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def _format_kind(kind: Any) -> str:
    return str(kind) if get_args(kind) else str(getattr(kind, "__name__", kind))


def _format_parameters(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}: {_format_kind(bare_type(kind))}" for key, kind in params.items()) or "none"


# JSON schemas of declared types, so that any client can read what a function takes and returns.

_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"}, int: {"type": "integer"}, float: {"type": "number"}, bool: {"type": "boolean"},
    bytes: {"type": "string", "contentEncoding": "binary"}, type(None): {"type": "null"}, None: {"type": "null"},
    dict: {"type": "object"}, list: {"type": "array"}, tuple: {"type": "array"}, Any: {}, object: {},
}  # fmt: skip


def schema_of(kind: Any) -> Schema:
    """The JSON schema of a type: plain ones, list, dict, tuple, unions, Literal and TypedDict; else TypeError.

    A `Value` becomes a reference, which `whole_schema` makes whole.
    """
    if kind == Value:
        return {"$ref": "#/$defs/Value"}
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if is_typeddict(kind):
        return _schema_of_record(kind)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(one) for one in inner]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is tuple and Ellipsis not in inner:
        places = [schema_of(one) for one in inner]
        return {"type": "array", "prefixItems": places, "minItems": len(places), "maxItems": len(places)}
    if origin in (list, tuple, Sequence):
        return {"type": "array", "items": schema_of(inner[0])}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": schema_of(inner[1])}
    if origin is Annotated:
        life = next((each for each in inner[1:] if isinstance(each, Life)), None)
        return schema_of(precise_type(kind)) | ({} if life is None else _schema_of_life(life))
    if origin in (NotRequired, Required):
        return schema_of(inner[0])
    raise TypeError(f"{kind!r} has no JSON schema; declare it as a plain type, a list, a dict or a TypedDict")


def _schema_of_life(life: Life) -> Schema:
    return {"since": life.since} | ({"deprecated": True, "until": life.until} if life.until else {})


def whole_schema(schema: Schema) -> Schema:
    """The schema with the definition of what it refers to."""
    refers = "#/$defs/Value" in str(schema)
    return {**schema, "$defs": {"Value": VALUE_SCHEMA}} if refers else schema


def parameters_schema(params: Mapping[str, Any]) -> Schema:
    """The schema of a map of parameters; the names of optional ones end in "?"."""
    properties = {key.removesuffix("?"): schema_of(kind) for key, kind in params.items()}
    required = [key for key in params if not key.endswith("?")]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema_of_record(kind: Any) -> Schema:
    hints = get_type_hints(kind, include_extras=True)
    # With annotations as texts, the class itself does not know which keys are NotRequired.
    required = [key for key in kind.__required_keys__ if get_origin(hints[key]) is not NotRequired]
    properties = {key: schema_of(one) for key, one in hints.items()}
    return {"type": "object", "properties": properties, "required": sorted(required)}
