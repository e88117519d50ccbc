"""Placeholders for packages that cannot be imported: they can be named, extended and used as decorators, not as values.

Calling one returns another placeholder, so that a program can continue with its loggers, parsers and metrics.
Wherever a value is needed (a number, a truth, a shape), and whenever a forward takes the result of calling it, it
raises `MissingPackageError`: it never invents anything that is shown.
"""

from __future__ import annotations

import ast
import re
import sys
import traceback
from abc import ABCMeta
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import Any, NoReturn, cast

from torch import nn

from mase_server.tracing.importing.handlers import find_given_up_import, walk_file
from mase_server.tracing.recording.positions import Position, is_hidden, resolve_mark


class MissingPackageError(ModuleNotFoundError):
    """A value is needed from a package that cannot be imported, or from a name that a failed statement did not bind.

    name: the module, "" for a name.  reason: why nothing is known.
    """

    def __init__(self, thing: str, name: str, reason: str) -> None:
        super().__init__(f"{thing} is needed here, but {reason}", name=name)
        self.reason = reason


class GivenUpError(MissingPackageError):
    """The same where the code goes on without the package, and has `None` or `object` for something of it."""


#: How a placeholder prints, for an error whose text quotes it.
_PRINTED = re.compile(r"<([\w.]+)[^<>]*, which is unknown: ([^<>]+)>")
#: Said by a package whose compiled part could not be loaded, such as one that was built for another torch.
_UNLOADED = re.compile(r"^Couldn't load custom C\+\+ ops")
#: Frames of an endless recursion in which a placeholder is looked for.
_DEEP = 50
#: Attributes of a placeholder itself.
_OWN = frozenset({"_absent", "_thing", "_made"})
#: Packages whose decorators turn a function into a kernel, which has other attributes and is called in another way.
_KERNEL_COMPILERS = frozenset({"triton", "tilelang", "cutlass"})
#: The classes of bases that do not mind a base of another kind.
_PLAIN_KINDS = (type, ABCMeta)
#: Values that a constant or a result of a package may be compared with.
_PLAIN = (str, bytes, int, float, complex, tuple, list, dict, set)


@dataclass(frozen=True, slots=True)
class Absent:
    """A module that cannot be imported, or "" for names that the module itself could not make.

    stand_in: a replacement for a well-known thing, by its dotted name; None for all else.
    owns: is a file one of the workspace's own?  reason: why it is absent.  bases: names of its classes that were taken
    as plain nn.Modules, because classes that extend them have a forward; None if nothing would tell of that.
    """

    name: str
    stand_in: Callable[[str], Any]
    owns: Callable[[str], bool]
    reason: str
    bases: list[str] | None = None


def stands_in(value: Any) -> bool:
    """Is this a placeholder? The check calls none of the value's own methods."""
    return issubclass(type(value), Placeholder)


def find_placeholder_error(error: BaseException) -> BaseException:
    """The placeholder's own error, if torch replaced it by one that names no package; for a part of a package that
    could not be loaded, an error that says so."""
    if isinstance(error, AttributeError) and isinstance(error.obj, Base):
        lacking = _make_missing_error(error.obj._placeholders[0], f"{type(error.obj).__name__}.{error.name}")
        return lacking.with_traceback(error.__traceback__)
    if isinstance(error, TypeError | AttributeError) and (given_up := _find_given_up(error)) is not None:
        return given_up.with_traceback(error.__traceback__)
    if not isinstance(error, TypeError | ValueError | RuntimeError):
        return error
    if (printed := _PRINTED.search(str(error))) is not None:
        thing, reason = printed.groups()
        return MissingPackageError(thing, thing.partition(".")[0], reason).with_traceback(error.__traceback__)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if frames and _UNLOADED.search(str(error)):
        package = str(frames[-1].f_globals.get("__name__", "")).partition(".")[0]
        reason = "it could not be loaded: the package may be built for another version of torch"
        return MissingPackageError(f"The compiled part of {package}", package, reason).with_traceback(
            error.__traceback__
        )
    if isinstance(error, RecursionError):  # torch walks through what a module holds
        held = [vars(held) for frame in frames[-_DEEP:] if isinstance(held := frame.f_locals.get("self"), nn.Module)]
        found = _find_first_placeholder(held)
        return error if found is None else _make_missing_error(found).with_traceback(error.__traceback__)
    inner = frames[-1:]
    # C code that got one has no frame, but its error names the type.
    named = Placeholder.__name__ in str(error)
    given = [value for frame in inner if named or is_hidden(frame.f_code) for value in frame.f_locals.values()]
    refused = _find_first_placeholder(given)
    wanted = None if refused is None else _make_missing_error(refused)
    if wanted is None and named:
        wanted = Placeholder.last_wanted
    return error if wanted is None else wanted.with_traceback(error.__traceback__)


#: Errors of using `None` or `object` for something else; some name the class that extends `object`.
_GIVEN_UP = re.compile(
    r"'NoneType' object (?:is not callable|has no attribute)|(\w+)(?:\.__init__)?\(\) takes no arguments"
    r"|takes exactly one argument \(the instance|(\w+) is not a Module subclass"
    r"|'(\w+)' object (?:is not callable|has no)"
)
#: A file, a name in it, and the package of the file.
_NamePlace = tuple[str, str, str]


def _find_given_up(error: Exception) -> GivenUpError | None:
    """The error of a package that is missing, if a file goes on with `None` or `object` for something of it."""
    match = _GIVEN_UP.search(str(error))
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if not is_hidden(frame.f_code)]
    for frame in reversed(frames[-3:]) if match is not None else ():
        kinds = [*map(frame.f_globals.get, match.groups()), type(frame.f_locals.get("self"))] if match else []
        bases = (base for kind in kinds if isinstance(kind, type) for base in _iterate_written_bases(kind))
        for file, name, package in (*_iterate_names_of_none(frame), *bases):
            if (found := find_given_up_import(file, name, package)) is not None:
                module, at = found[0].lstrip("."), found[1]
                return GivenUpError(name, module, f"the import of {module} failed ({at})")
    return None


def _iterate_names_of_none(frame: FrameType) -> Iterator[_NamePlace]:
    """The names in the line that runs in a frame of which the module has `None`."""
    line, file = resolve_mark((frame.f_code, frame.f_lasti)).line, frame.f_code.co_filename
    for node in walk_file(file):
        if isinstance(node, ast.Name) and node.lineno == line and frame.f_globals.get(node.id, ...) is None:
            yield file, node.id, str(frame.f_globals.get("__package__") or "")


def _iterate_written_bases(kind: type) -> Iterator[_NamePlace]:
    """The names of the bases of a class that extends `object` under another name."""
    space = vars(sys.modules[kind.__module__]) if kind.__module__ in sys.modules else {}
    home = str(space.get("__file__", ""))
    for node in walk_file(home) if object in kind.__bases__ else ():
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            names = (base.id for base in node.bases if isinstance(base, ast.Name))
            yield from ((home, name, str(space.get("__package__") or "")) for name in names)


class Placeholder:
    """Something of a module that cannot be imported.

    thing: its dotted name.  made: is it the unknown result of a call?
    """

    last_wanted: MissingPackageError | None = None

    def __init__(self, absent: Absent, thing: str, *, made: bool = False) -> None:
        vars(self).update(_absent=absent, _thing=thing, _made=made, __name__=thing.rpartition(".")[2])

    # ------------------------------------------------------------------------------------------------- always allowed

    def __getattr__(self, name: str) -> Any:
        thing = f"{self._thing}.{name}"
        found = None if self._made or name in _OWN else self._absent.stand_in(thing)
        if found is None:
            if name == "__version__":
                self._raise_missing(thing)
            if name in _OWN or (name.startswith("__") and name.endswith("__")):
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}", name=name, obj=self)
            found = Placeholder(self._absent, thing, made=self._made)
        vars(self)[name] = found
        return found

    def __repr__(self) -> str:
        return f"<{self._thing}, which is unknown: {self._absent.reason}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Placeholder:
        return self

    def __copy__(self) -> Placeholder:
        return self

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        node = _find_class(sys._getframe(1))
        known = [each for each in bases if not isinstance(each, Placeholder)]
        named = node is None or bool(node.keywords) or any(type(each) not in _PLAIN_KINDS for each in known)
        own: tuple[type, ...] = (Base,)
        taken: list[str] | None = self._absent.bases
        is_model = node is not None and _has_forward(node)
        if taken is not None and is_model and not any(issubclass(each, nn.Module) for each in known):
            own = (Base, nn.Module)
            taken.append(self.__name__)
        return ((type if named else _BaseKind)(self.__name__, own, {"_placeholders": (self,)}),)

    def __getitem__(self, key: Any) -> Placeholder:
        return Placeholder(self._absent, f"{self._thing}[...]", made=True) if self._made else self

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __or__(self, other: Any) -> Placeholder:
        return _Either(self, self, other)

    def __ror__(self, other: Any) -> Placeholder:
        return _Either(self, other, self)

    def __instancecheck__(self, value: Any) -> bool:
        return self in getattr(type(value), "_placeholders", ())

    def __subclasscheck__(self, kind: type) -> bool:
        return self in getattr(kind, "_placeholders", ())

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _PLAIN) and not _is_ours(sys._getframe(1)):
            self._raise_missing()
        return self is other

    # ----------------------------------------------------------------------------------------- allowed outside forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return a decorated function or class unchanged; for any other call, a placeholder for the unknown result.

        A compiler of kernels would make something of a function that is unknown, too.
        """
        frame = sys._getframe(1)
        compiled = self._absent.name.partition(".")[0] in _KERNEL_COMPILERS
        if _in_forward(frame) and (compiled or not _is_discarded(frame)):
            self._raise_missing()
        if (
            not compiled
            and len(args) == 1
            and not kwargs
            and isinstance(args[0], FunctionType | type)
            and _is_decorating(frame)
        ):
            return args[0]
        return Placeholder(self._absent, f"{self._thing}(...)", made=True)

    def __enter__(self) -> Any:
        if _in_forward(sys._getframe(1)):
            self._raise_missing()
        return Placeholder(self._absent, self._thing, made=True)

    def __exit__(self, *raised: object) -> None:
        pass

    # ---------------------------------------------------------------------------------------------------- never known

    def __bool__(self) -> bool:
        # Modules, functions and classes are true; the truth of a constant or a result is unknown.
        if (self._made or self.__name__.isupper()) and not _is_ours(sys._getframe(1)):
            self._raise_missing()
        return True

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class that the user's `isinstance` sees for a result."""
        if vars(self)["_made"] and self._absent.owns(sys._getframe(1).f_code.co_filename):
            self._raise_missing()
        return Placeholder

    def _raise_missing(self, thing: str = "") -> NoReturn:
        Placeholder.last_wanted = _make_missing_error(self, thing)
        raise Placeholder.last_wanted

    def _wanted(self, *_: Any, **__: Any) -> NoReturn:
        self._raise_missing()

    __iter__ = __len__ = __contains__ = __int__ = __float__ = __index__ = __complex__ = _wanted
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __pos__ = __abs__ = __invert__ = __next__ = __fspath__ = _wanted
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __matmul__ = __and__ = _wanted
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __rmatmul__ = _wanted
    __rand__ = __array__ = _wanted

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        """Raise for a torch function that got one."""
        given = _find_first_placeholder([args, kwargs])
        assert given is not None
        given._raise_missing()


def _find_first_placeholder(value: Any) -> Placeholder | None:
    if stands_in(value):
        return cast("Placeholder", value)
    if isinstance(value, dict):
        value = list(value.values())
    parts = value if isinstance(value, list | tuple) else ()
    return next((found for part in parts if (found := _find_first_placeholder(part)) is not None), None)


def _is_ours(frame: FrameType) -> bool:
    """Is the tracer itself looking at it?"""
    return str(frame.f_globals.get("__name__")).startswith("mase_server.")


def _make_missing_error(placeholder: Placeholder, thing: str = "") -> MissingPackageError:
    absent: Absent = placeholder._absent
    return MissingPackageError(thing or placeholder._thing, absent.name, absent.reason)


class _Either(Placeholder):
    """`X | None` where X is missing."""

    def __init__(self, missing: Placeholder, *options: Any) -> None:
        super().__init__(missing._absent, missing._thing)
        vars(self)["_options"] = options

    def __instancecheck__(self, value: Any) -> bool:
        return any(isinstance(value, type(None) if each is None else each) for each in vars(self)["_options"])


class _BaseKind(ABCMeta):
    """The class of such base classes: an attribute that they lack may come from the missing base."""

    def __getattr__(cls, name: str) -> Any:
        frame = sys._getframe(1)
        if not name.startswith("_") and not is_hidden(frame.f_code) and not _is_ours(frame):
            missing: Placeholder = cls._placeholders[0]
            return Placeholder(missing._absent, f"{cls.__name__}.{name}")
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}", name=name, obj=cls)


class Base:
    """The base class that replaces a missing base: it is empty, and nothing is known of its instances."""

    _placeholders: tuple[Placeholder, ...] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Nobody knows what the missing base would make of arguments.
        if not isinstance(self, nn.Module) and (args or kwargs):
            self._placeholders[0]._raise_missing()
        order = type(self).__mro__
        if order[order.index(Base) + 1] is nn.Module:
            args, kwargs = (), {}
        super().__init__(*args, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Accept keywords of a class statement, which are for the real base."""

    def __getattr__(self, name: str) -> Any:
        if isinstance(self, nn.Module):
            return nn.Module.__getattr__(self, name)
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        return self._placeholders[0]._raise_missing()

    @classmethod
    def missing(cls) -> MissingPackageError:
        """The error about the missing real base."""
        return _make_missing_error(cls._placeholders[0])


def _in_forward(frame: FrameType | None) -> bool:
    """Does a model compute, here or further out? Then a call's result is needed."""
    while frame is not None:
        if frame.f_code.co_name == "forward" and isinstance(frame.f_locals.get("self"), nn.Module):
            return True
        frame = frame.f_back
    return False


def _is_discarded(frame: FrameType) -> bool:
    """Is the call that runs in this frame a whole statement? Then it only logs something."""
    at = _find_call(frame)
    statements = (node.value for node in walk_file(at.file) if isinstance(node, ast.Expr))
    return any(
        (each.lineno, each.col_offset, each.end_lineno, each.end_col_offset)
        == (at.line, at.column, at.end_line, at.end_column)
        for each in statements
    )


def _is_decorating(frame: FrameType) -> bool:
    """Is the call that runs in this frame the application of a decorator?"""
    at = _find_call(frame)
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    decorators = (each for node in walk_file(at.file) if isinstance(node, kinds) for each in node.decorator_list)
    return any((each.lineno, each.col_offset) == (at.line, at.column) for each in decorators)


def _find_class(frame: FrameType) -> ast.ClassDef | None:
    """The class statement that runs in a frame."""
    at = _find_call(frame)
    classes = (node for node in walk_file(at.file) if isinstance(node, ast.ClassDef))
    return next((node for node in classes if node.lineno <= at.line <= node.body[0].lineno), None)


def _has_forward(node: ast.ClassDef) -> bool:
    """Does a class have a forward like that of a model, rather than that of an autograd function?"""
    forwards = (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "forward")
    return any("staticmethod" not in map(ast.unparse, each.decorator_list) for each in forwards)


def _find_call(frame: FrameType) -> Position:
    """Where the call that runs in a frame stands in the person's code."""
    while is_hidden(frame.f_code) and frame.f_back is not None:
        frame = frame.f_back
    return resolve_mark((frame.f_code, frame.f_lasti))
