"""What an API function is: its name, parameters and result, all described by the declared types themselves."""

from __future__ import annotations

import dis
import inspect
import reprlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Protocol, get_args, get_origin

from mase_server.daemon.schemas import parameters_schema, schema_of
from mase_server.paths import canonical_of_absolute
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.daemon.daemon import Daemon

Params = Mapping[str, Any]

#: The parameters that name a model: of a file that has one alone, the file is enough.
MODEL = {"path": str, "model?": str}

#: Parameters that are titles of models.
_NAMES = frozenset({"model", "root"})
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 120


class ApiError(ValueError):
    """A refusal with a stable code, e.g. "not-open", and the text for a person. data: plain values that explain it."""

    def __init__(self, code: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Session(Protocol):
    """One connection that may open files and hear of events.

    ident: names it as an opener.  opened: files.  errors: how it is told of errors, "map" or "pair".
    """

    ident: str
    opened: set[str]
    errors: str

    def subscribe(self, topics: frozenset[str], path: str | None) -> int:
        """Hear of these topics, of one file or of all; the subscription's number."""

    def unsubscribe(self, number: int) -> bool:
        """Hear no more; was there such a subscription?"""

    def statistics(self) -> dict[str, Any]:
        """What the front that holds this session counted."""


@dataclass(frozen=True, slots=True)
class Api:
    """What an API function works on. session: who asks; None for the editor, which is told by notifications."""

    daemon: Daemon
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class ApiMethod:
    """One function: its name on the wire, its parameters with their types (optional ones end in "?"), and itself.

    gives: the type of its result, see `answers`.  since: the version that it came with.  answer: the name that a
    result which is no map has where results must be maps.  executes: does it have code of the file `path` run, so that
    its folder must be trusted?
    """

    name: str
    params: Mapping[str, Any]
    function: Callable[[Api, Params], Awaitable[Any]]
    gives: Any
    since: str = "0.1"
    answer: str = ""
    executes: bool = False
    _known: Mapping[str, Any] = field(init=False)
    _required: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        # Every request looks at these.
        object.__setattr__(self, "_known", {key.removesuffix("?"): kind for key, kind in self.params.items()})
        object.__setattr__(self, "_required", tuple(key for key in self.params if not key.endswith("?")))

    @property
    def waits(self) -> bool:
        """Can the function wait for anything? If not, it is answered without a task."""
        return _waits(self.function)

    async def call(self, api: Api, params: Params) -> Any:
        """Check the parameters and run; ValueError says which parameter is missing, unknown or of another type."""
        return await self.function(api, self.checked(api, params))

    def run_at_once(self, api: Api, params: Params) -> Any:
        """Run a function that waits for nothing, with parameters that were checked."""
        try:
            self.function(api, params).__await__().send(None)
        except StopIteration as end:
            return end.value
        raise RuntimeError(f"{self.name} waits")

    def checked(self, api: Api, params: Params) -> Params:
        """The parameters with the canonical `path`, and a model's name as it is shown; ValueError as of `call`."""
        for key, value in params.items():
            if key not in self._known:
                raise ValueError(f"{self.name} has no parameter {key!r}; it takes {_listed(self.params)}")
            if not _fits(value, kind := self._known[key]):
                raise ValueError(f"{self.name}: {key} is {_SHORT.repr(value)}, expected {_named(kind)}")
        for key in self._required:
            if key not in params:
                raise ValueError(f"{self.name}: parameter {key!r} is missing; it takes {_listed(self.params)}")
        for key in _NAMES & params.keys():
            if isinstance(name := params[key], str) and name != (title := reveal(name)):
                params = {**params, key: title}
        if "path" not in params or api.daemon.file(params["path"]) is not None:
            return params  # the daemon has files under their canonical paths
        try:
            return {**params, "path": canonical_of_absolute(params["path"])}
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None

    def described(self) -> dict[str, Any]:
        """{"name", "since", "description", "params", "result"}; params and result are JSON schemas."""
        result = schema_of(self.gives)
        if self.answer:
            result = {"type": "object", "properties": {self.answer: result}, "required": [self.answer]}
        told = {"name": self.name, "since": self.since, "description": inspect.getdoc(self.function) or ""}
        return {**told, "params": parameters_schema(self.params), "result": result}

    def as_map(self, result: Any) -> dict[str, Any]:
        """The result where every result must be a map."""
        return {self.answer: result} if self.answer else dict(result or {})


@cache
def _waits(function: Callable[..., Awaitable[Any]]) -> bool:
    """A coroutine function without an instruction that hands over to something awaited runs through in one go."""
    return not inspect.iscoroutinefunction(function) or any(each.opname == "SEND" for each in dis.Bytecode(function))


def _fits(value: Any, kind: Any) -> bool:
    if kind is dict:
        return isinstance(value, dict) and all(isinstance(key, str) for key in value)
    if type(value) is kind:
        return True
    inner = get_args(kind)
    if isinstance(kind, UnionType):
        return any(_fits(value, one) for one in inner)
    if inner:
        return isinstance(value, get_origin(kind)) and all(_fits(each, inner[0]) for each in value)
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def _named(kind: Any) -> str:
    return str(kind) if get_args(kind) else str(getattr(kind, "__name__", kind))


def _listed(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}: {_named(kind)}" for key, kind in params.items()) or "none"
