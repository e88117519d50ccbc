"""The constructor calls of modules, with their arguments, and the surroundings in which classes are made.

`type.__call__` passes the arguments of a constructor call to `__new__` first, so one `__new__` on nn.Module sees
them all, before any `__init__` can change them. It stays once it is set: CPython cannot remove a `__new__` cleanly.
"""

from __future__ import annotations

import ast
import copyreg
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from torch import nn

from mase_server.ops.types import Kwargs
from mase_server.paths import is_library
from mase_server.tracing.diagnosis.failure import RAISED
from mase_server.tracing.execution.substitutes import is_wrapper
from mase_server.tracing.importing.source import Namespace
from mase_server.tracing.models.settings import Settings
from mase_server.tracing.models.workspace import UNLIMITED, Budget, Workspace
from mase_server.tracing.recording.positions import Mark, is_hidden, resolve_mark
from mase_server.tracing.recording.shadow import Shadows


@dataclass(frozen=True, slots=True)
class Construction:
    """One constructor call."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Kwargs

    def bound(self) -> Kwargs:
        """The given arguments, by parameter name; positions as names if there is no signature."""
        try:
            return dict(signature_of(type(self.model)).bind(*self.args, **self.kwargs).arguments)
        except (TypeError, ValueError):
            return {str(index): value for index, value in enumerate(self.args)} | self.kwargs

    def rebuild(self) -> Callable[[], nn.Module]:
        """A function that makes the same call again."""
        kind, args, kwargs = type(self.model), self.args, self.kwargs
        return lambda: kind(*args, **kwargs)


def signature_of(kind: type[nn.Module]) -> inspect.Signature:
    """A constructor's own signature; the `__call__` of a metaclass hides it behind `*args`."""
    if type(kind).__call__ is type.__call__ or hasattr(kind, "__signature__"):
        return inspect.signature(kind)
    own = inspect.signature(kind.__init__)
    return own.replace(parameters=list(own.parameters.values())[1:])


def list_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a function or class; none where something else stands in the place of a constructor."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def list_required_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Parameters that have to be given."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each for each in list_parameters(function) if each.default is each.empty and each.kind not in variable]


class Constructions:
    """Every constructor call of a module while `recording`, in order; the modules stay alive, so ids are unique.

    on_class: is called with the class of each module that is made.
    """

    def __init__(self) -> None:
        self._by_id: dict[int, Construction] = {}
        self.on_class: Callable[[type[nn.Module]], None] = lambda kind: None

    def add(self, construction: Construction) -> None:
        """Remember one call."""
        self._by_id[id(construction.model)] = construction
        self.on_class(type(construction.model))

    def of(self, model: nn.Module) -> Construction | None:
        """The call that made `model`, None for copies and for modules made outside."""
        return self._by_id.get(id(model))

    def __iter__(self) -> Iterator[Construction]:
        return iter(self._by_id.values())

    def children(self) -> set[int]:
        """Ids of the modules that are part of another one; a wrapper around a whole model does not count."""
        # An `__init__` that failed leaves a module without its tables.
        wholes = (made.model for made in self if not is_wrapper(made.model))
        tables = (vars(model).get("_modules", {}) for model in wholes)
        return {id(child) for table in tables for child in table.values()}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the constructor calls made inside."""
        global _current
        _install_recorder()
        before, _current = _current, self
        try:
            yield
        finally:
            _current = before


_current: Constructions | None = None


#: id -> (the module, the arguments of its constructor, the frame that called it), for every module that was made while
#: anything recorded, as long as it is alive.
_marks: dict[int, tuple[weakref.ref[nn.Module], tuple[Any, ...], Kwargs, Mark]] = {}


def construction_of(model: nn.Module) -> Construction | None:
    """The call that made `model`, whoever recorded it; None for copies and for unrecorded calls."""
    entry = _marks.get(id(model))
    return None if entry is None else Construction(model, entry[1], entry[2])


def caller_of(model: nn.Module) -> str:
    """The name of the function that called the constructor of `model`; "" if unknown."""
    entry = _marks.get(id(model))
    return "" if entry is None else entry[3][0].co_name


def places_of(model: nn.Module) -> dict[int, tuple[str, int, int, int, int]]:
    """The place where each part of `model` was made, by its id: (file, line, end line, column, end column), columns in
    UTF-8."""
    found = {}
    for part in model.modules():
        if (entry := _marks.get(id(part))) is not None and not is_hidden(entry[3][0]):
            at = resolve_mark(entry[3])
            found[id(part)] = (at.file, at.line, at.end_line, at.column, at.end_column)
    return found


def arguments_of(model: nn.Module) -> Kwargs:
    """The constructor arguments of `model`, including defaults, by name; {} if its construction was not seen."""
    made = construction_of(model)
    if made is None:
        return {}
    try:
        bound = signature_of(type(model)).bind(*made.args, **made.kwargs)
    except (TypeError, ValueError):
        return {}
    bound.apply_defaults()
    return dict(bound.arguments)


def key_of_arguments(arguments: Mapping[str, Any]) -> str:
    """A text that is equal for equal arguments; an object whose own `repr` fails counts by its identity."""
    return ", ".join(f"{name}={_key_of_value(value)}" for name, value in arguments.items())


def _key_of_value(value: Any) -> str:
    try:
        return repr(value)
    except RAISED:  # the border to the user's and libraries' classes
        return f"{type(value).__name__} at {id(value)}"


def rebuild_of(model: nn.Module) -> Callable[[], nn.Module] | None:
    """A function that makes `model` again, while its construction is being recorded."""
    made = None if _current is None else _current.of(model)
    return None if made is None else made.rebuild()


def _record_construction(cls: type[nn.Module], /, *args: Any, **kwargs: Any) -> Any:
    make = super(nn.Module, cls).__new__
    made = make(cls) if make is object.__new__ else make(cls, *args, **kwargs)
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_construction_frame(frame, cls):
        # A `__new__`, or a metaclass's `__call__`, may pass on fewer arguments than it was given.
        args, kwargs = _read_given_arguments(frame)
        frame = frame.f_back
    copied = frame.f_code is copyreg.__newobj__.__code__  # type: ignore[attr-defined]
    if _current is not None and not copied:
        _current.add(Construction(made, args, kwargs))
        forget = partial(_forget_construction, id(made))
        _marks[id(made)] = (weakref.ref(made, forget), args, kwargs, (frame.f_code, frame.f_lasti))
    return made


def _forget_construction(ident: int, _: object) -> None:
    _marks.pop(ident, None)


def _is_construction_frame(frame: FrameType, cls: type[nn.Module]) -> bool:
    code = frame.f_code
    return (
        code.co_name in ("__new__", "__call__")
        and code.co_argcount > 0
        and frame.f_locals.get(code.co_varnames[0]) is cls
    )


def _read_given_arguments(frame: FrameType) -> tuple[tuple[Any, ...], Kwargs]:
    """The arguments of a running function after its first, positional and by keyword."""
    names, rest, extra, held = inspect.getargvalues(frame)
    count = frame.f_code.co_argcount  # keyword-only parameters follow
    args = (*(held[name] for name in names[1:count]), *(held[rest] if rest else ()))
    return args, {**{name: held[name] for name in names[count:]}, **(held[extra] if extra else {})}


def _install_recorder() -> None:
    if nn.Module.__new__ is not _record_construction:
        nn.Module.__new__ = staticmethod(_record_construction)  # type: ignore[assignment]


def get_class_origin(kind: type, folder: str, modules: Mapping[str, ModuleType] | None = None) -> str:
    """Where a class was defined: "workspace" (in a file below `folder`), "torch" or "library"."""
    if kind.__module__.partition(".")[0] == "torch":
        return "torch"
    module = (modules if modules is not None else sys.modules).get(kind.__module__)
    file = getattr(module, "__file__", None)
    if kind.__module__ == "__main__":
        return "workspace"
    if file is None:
        return "library"
    return "workspace" if Path(file).is_relative_to(folder) and not is_library(file) else "library"


# The surroundings in which a class is made: its file, its workspace, and the available steps.

#: The deepest nesting of models that are made for other models.
MAX_DEPTH = 2


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings in which a class is made.

    workspace: an empty one if only the file counts.  budget: the steps for finding ways to make a model.
    depth: the number of models that wait for this one, as parts of each other.
    """

    namespace: Namespace
    tree: ast.Module
    shadows: Shadows
    on_trial: Callable[[], AbstractContextManager[Any]] = nullcontext
    workspace: Workspace = field(default_factory=lambda: Workspace(""))
    budget: Budget = UNLIMITED
    depth: int = 0

    def settings(self) -> Settings:
        """The settings in the file and its workspace."""
        return self.workspace.kept(("settings", id(self.tree)), lambda: Settings(self.workspace, self.tree))

    def inner(self, namespace: Namespace) -> Surroundings:
        """The surroundings of a part, which is made among the names of its own file."""
        return replace(self, namespace=namespace, depth=self.depth + 1, budget=self.budget.part(0.5))
