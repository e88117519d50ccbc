"""Which modules were constructed, and with which arguments.

`type.__call__` hands the arguments of a constructor call to `__new__` first, so one `__new__` on nn.Module sees them
all, before any `__init__` can change them. Once set it stays: CPython cannot take a `__new__` back cleanly.
"""

from __future__ import annotations

import copyreg
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from torch import nn

from mase_server.inputs.execution.distributed import is_wrapper
from mase_server.tracing.positions import Mark, is_hidden, resolve


@dataclass(frozen=True, slots=True)
class Construction:
    """One constructor call."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def bound(self) -> dict[str, Any]:
        """The arguments that were given, by parameter name; positions as names where there is no signature."""
        try:
            return dict(signature_of(type(self.model)).bind(*self.args, **self.kwargs).arguments)
        except (TypeError, ValueError):
            return {str(index): value for index, value in enumerate(self.args)} | self.kwargs

    def rebuild(self) -> Callable[[], nn.Module]:
        """A function that makes the same call again."""
        kind, args, kwargs = type(self.model), self.args, self.kwargs
        return lambda: kind(*args, **kwargs)


def signature_of(kind: type[nn.Module]) -> inspect.Signature:
    """A constructor's own; the `__call__` of a metaclass hides it behind `*args`."""
    if type(kind).__call__ is type.__call__ or hasattr(kind, "__signature__"):
        return inspect.signature(kind)
    own = inspect.signature(kind.__init__)
    return own.replace(parameters=list(own.parameters.values())[1:])


class Constructions:
    """Every constructor call of a module while `recording`, in order; the modules stay alive, so ids are unique."""

    def __init__(self) -> None:
        self._by_id: dict[int, Construction] = {}

    def add(self, construction: Construction) -> None:
        """Remember one call."""
        self._by_id[id(construction.model)] = construction

    def of(self, model: nn.Module) -> Construction | None:
        """The call that made `model`, None for copies and for what was made outside."""
        return self._by_id.get(id(model))

    def __iter__(self) -> Iterator[Construction]:
        return iter(self._by_id.values())

    def children(self) -> set[int]:
        """Ids of the modules that are part of another one; what wraps a whole model does not count."""
        # An `__init__` that failed leaves a module without its tables.
        wholes = (made.model for made in self if not is_wrapper(made.model))
        tables = (vars(model).get("_modules", {}) for model in wholes)
        return {id(child) for table in tables for child in table.values()}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the constructor calls made inside."""
        global _current
        _install()
        before, _current = _current, self
        try:
            yield
        finally:
            _current = before


_current: Constructions | None = None


#: id -> (the constructor call, the frame that made it), for every module made while anything recorded.
_marks: dict[int, tuple[Construction, Mark]] = {}


def construction_of(model: nn.Module) -> Construction | None:
    """The call that made `model`, whoever recorded it; None for copies and for what was made unseen."""
    entry = _marks.get(id(model))
    return None if entry is None else entry[0]


def caller_of(model: nn.Module) -> str:
    """The name of the function that called the constructor of `model`; "" where nobody saw it."""
    entry = _marks.get(id(model))
    return "" if entry is None else entry[1][0].co_name


def places_of(model: nn.Module) -> dict[int, tuple[str, int, int, int, int]]:
    """Where each part of `model` was made, by its id: (file, line, end line, column, end column), columns in UTF-8."""
    found = {}
    for part in model.modules():
        if (entry := _marks.get(id(part))) is not None and not is_hidden(entry[1][0]):
            at = resolve(entry[1])
            found[id(part)] = (at.file, at.line, at.end_line, at.column, at.end_column)
    return found


def arguments_of(model: nn.Module) -> dict[str, Any]:
    """What the constructor of `model` was given or takes by default, by name; {} where nobody saw it made."""
    made = construction_of(model)
    if made is None:
        return {}
    try:
        bound = signature_of(type(model)).bind(*made.args, **made.kwargs)
    except (TypeError, ValueError):
        return {}
    bound.apply_defaults()
    return dict(bound.arguments)


def rebuild_of(model: nn.Module) -> Callable[[], nn.Module] | None:
    """How to make `model` again, while its construction is being recorded."""
    made = None if _current is None else _current.of(model)
    return None if made is None else made.rebuild()


def _new(cls: type[nn.Module], /, *args: Any, **kwargs: Any) -> Any:
    make = super(nn.Module, cls).__new__
    made = make(cls) if make is object.__new__ else make(cls, *args, **kwargs)
    frame = sys._getframe(1)
    while frame.f_back is not None and _makes(frame, cls):
        # A `__new__`, or a metaclass's `__call__`, may hand on less than it was given.
        args, kwargs = _given(frame)
        frame = frame.f_back
    copied = frame.f_code is copyreg.__newobj__.__code__  # type: ignore[attr-defined]
    if _current is not None and not copied:
        construction = Construction(made, args, kwargs)
        _current.add(construction)
        _marks[id(made)] = (construction, (frame.f_code, frame.f_lasti))
    return made


def _makes(frame: FrameType, cls: type[nn.Module]) -> bool:
    code = frame.f_code
    return (
        code.co_name in ("__new__", "__call__")
        and code.co_argcount > 0
        and frame.f_locals.get(code.co_varnames[0]) is cls
    )


def _given(frame: FrameType) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a running function after its first, positional and by keyword."""
    names, rest, extra, held = inspect.getargvalues(frame)
    count = frame.f_code.co_argcount  # keyword-only parameters follow
    args = (*(held[name] for name in names[1:count]), *(held[rest] if rest else ()))
    return args, {**{name: held[name] for name in names[count:]}, **(held[extra] if extra else {})}


def _install() -> None:
    if nn.Module.__new__ is not _new:
        nn.Module.__new__ = staticmethod(_new)  # type: ignore[assignment]


def origin(kind: type, folder: str, modules: Mapping[str, ModuleType] | None = None) -> str:
    """Where a class was defined: "workspace" (in a file below `folder`), "torch" or "library"."""
    if kind.__module__.partition(".")[0] == "torch":
        return "torch"
    module = (modules if modules is not None else sys.modules).get(kind.__module__)
    file = getattr(module, "__file__", None)
    if kind.__module__ == "__main__":
        return "workspace"
    if file is None:
        return "library"
    path = Path(file)
    inside = path.is_relative_to(folder) and not {"site-packages", "dist-packages"} & set(path.parts)
    return "workspace" if inside else "library"
