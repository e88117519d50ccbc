"""The names that a checkpoint may use: tensor functions, torch.nn's classes, result classes, and those the caller
allows.

Names are looked up in tables made from torch itself; a name in a file is never imported or evaluated. This module
also refuses graphs with names that torch.fx cannot write as code.
"""

from __future__ import annotations

import builtins
import importlib
import keyword
import math
import operator
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import fx, nn
from torch.nn.utils import parametrizations, parametrize
from torch.overrides import get_overridable_functions

from mase_server import formats
from mase_server.ops.paths import is_writable
from mase_server.tracing import guards
from mase_server.tracing.recording.calling import CONSTRUCTORS, FROM_DATA

# The error that reading and writing checkpoints raises.


class CheckpointError(ValueError):
    """A checkpoint that cannot be written or read. The text names the file, the fault and a remedy.

    >>> from pathlib import Path
    >>> _ = Path("broken.pt").write_bytes(b""), Path("broken.mz").write_bytes(b"no checkpoint")
    >>> try:
    ...     MaseGraph.from_checkpoint("broken")
    ... except CheckpointError as error:
    ...     print("broken.mz" in str(error))
    True
    """


_NAMESPACES: Mapping[str, object] = {
    "torch": torch,
    "torch.nn.functional": nn.functional,
    "torch.special": torch.special,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
    "torch._C._nn": torch._C._nn,
    "torch._VF": torch._C._VariableFunctions,
    "torch.Tensor": torch.Tensor,
    "torch.nn.utils.rnn": nn.utils.rnn,
    "operator": operator,
    "math": math,
    "builtins": builtins,
    "mase_server.formats": formats,
    "mase_server.tracing.guards": guards,
}
#: Tensor functions that are missing from torch's own list.
_ALSO = FROM_DATA | CONSTRUCTORS | {
    torch.rand_like, torch.randn_like, torch.randint_like, torch.broadcast_shapes, torch._pack_padded_sequence,
    torch._pad_packed_sequence, nn.utils.rnn.PackedSequence,
    formats.quantise, formats.round_gradient, formats.with_parameters, guards.check_value,
}  # fmt: skip
#: Functions that read or write files, or call their arguments.
_NEVER = frozenset(
    {"from_file", "call", "methodcaller", "attrgetter", "apply_", "map_", "map2_", "compile", "load", "module_load"}
)
_BUILTINS = frozenset({"getattr", "abs", "int", "float", "bool", "len", "max", "min", "round", "slice", "sum", "tuple"})
_DUNDER_METHODS = re.compile(
    r"__(r?(add|sub|mul|truediv|floordiv|mod|pow|matmul|and|or|xor|lshift|rshift|div)|i(add|sub|mul|truediv|floordiv|"
    r"mod|pow|and|or|xor|lshift|rshift|div)|neg|pos|abs|invert|eq|ne|lt|le|gt|ge|getitem|setitem|len|bool|int|float|"
    r"index|contains)__"
)
#: Methods of the other objects that graphs hold: sizes, dicts, lists.
_OTHER_METHODS = frozenset({"get", "items", "keys", "values", "index", "count", "numel", "append", "copy"})

#: Result classes of libraries: patterns of their modules -> names of the base classes that they must have.
_MODELS = re.compile(r"transformers\.models\.\w+\.(modeling|modular)_\w+")
_RESULTS = (
    (re.compile(r"transformers\.modeling_outputs"), "ModelOutput"),
    (_MODELS, "ModelOutput"),
    (_MODELS, "MambaCache"),  # before transformers 5
    (re.compile(r"transformers\.cache_utils"), "Cache"),
    (re.compile(r"transformers\.cache_utils"), "CacheLayerMixin"),
    (re.compile(r"transformers\.cache_utils"), "LinearAttentionCacheLayerMixin"),
)
_FUNCTIONS = ((_MODELS, "Function"), (re.compile(r"transformers\.activations"), "Function"))


def dotted_name(value: Any) -> str:
    """The module and qualified name of a class or function, joined by a dot."""
    return f"{value.__module__}.{value.__qualname__}"


@lru_cache(maxsize=1)
def _tensor_functions() -> tuple[dict[str, Callable[..., Any]], dict[Any, str]]:
    """Every function of tensors that torch lists: name -> callable, and callable -> name."""
    known: set[Any] = set(_ALSO)
    for functions in get_overridable_functions().values():
        known.update(functions)
    by_name: dict[str, Callable[..., Any]] = {}
    by_callable: dict[Any, str] = {}
    for space, name, value in _iterate_callables():
        if value in known or space in ("operator", "math", "builtins"):
            by_name[f"{space}.{name}"] = value
            by_callable.setdefault(value, f"{space}.{name}")
    return by_name, by_callable


def _iterate_callables() -> Iterator[tuple[str, str, Any]]:
    for space, holder in _NAMESPACES.items():
        for name in dir(holder):
            value = vars(holder).get(name) if isinstance(holder, type(math)) else getattr(holder, name, None)
            if name in _NEVER or not callable(value) or (name.startswith("_") and space in ("operator", "math")):
                continue
            if (space == "builtins" and name not in _BUILTINS) or getattr(value, "__hash__", None) is None:
                continue
            yield space, name, value


def is_public(name: Any) -> bool:
    """Does an attribute of this name lead to data and no further?"""
    return isinstance(name, str) and name.isidentifier() and not name.startswith("_") and not keyword.iskeyword(name)


def is_method(name: Any) -> bool:
    """May a graph call a method of this name?"""
    if not isinstance(name, str) or name in _NEVER or not name.isidentifier():
        return False
    if name.startswith("_"):
        return _DUNDER_METHODS.fullmatch(name) is not None
    return name in _OTHER_METHODS or callable(getattr(torch.Tensor, name, None))


class Allowed:
    """The callables and classes that one checkpoint may name.

    more: further classes of modules and results, and functions, that the caller trusts.
    """

    def __init__(self, more: Iterable[Any] = ()) -> None:
        self._more = {dotted_name(one): one for one in more}
        self._names = {one: name for name, one in self._more.items()}

    def name_of(self, function: Callable[..., Any]) -> str | None:
        """The name under which a loader that allows it finds a callable again; None for a callable without such a
        name."""
        try:
            found = self._names.get(function) or _tensor_functions()[1].get(function)
        except TypeError:
            return None
        if found is None and isinstance(function, torch._ops.OpOverload):
            return f"torch.ops.{function}"
        name = f"torch.{getattr(function, '__name__', '')}"
        return found or (name if _native_function(name) is function else _importable_name(function))

    def function(self, name: Any) -> Callable[..., Any]:
        """The callable of a name."""
        if isinstance(name, str):
            found = self._more.get(name) or _tensor_functions()[0].get(name) or _native_function(name)
            if found is None and name.startswith("torch.ops.aten."):
                found = _aten_overload(name.removeprefix("torch.ops.aten."))
            if callable(found):
                return found
        raise CheckpointError(f"it names the callable {name!r:.120}, which is not a tensor function; {_HINT}")

    def module_class(self, name: Any) -> type[nn.Module]:
        """The module class of a name: torch.nn's own, or one that the caller allows."""
        found = self._more.get(name) if isinstance(name, str) else None
        if found is None and isinstance(name, str):
            found = _nn_classes().get(name)
        if isinstance(found, type) and issubclass(found, nn.Module):
            return found
        raise CheckpointError(f"it names the module class {name!r:.120}, which is not torch.nn's; {_HINT}")

    def result_class(self, name: Any) -> type:
        """The class of a result: one that the caller allows, or a model output or cache of transformers."""
        found = self._more.get(name) if isinstance(name, str) else None
        if found is None and isinstance(name, str):
            found = _library_class(name, _RESULTS)
        if isinstance(found, type):
            return found
        raise CheckpointError(f"it names the class {name!r:.120}, which is no known class of results; {_HINT}")

    def autograd_function(self, name: str) -> type[torch.autograd.Function]:
        """The autograd.Function of a name: one that the caller allows, or one of a model of transformers."""
        found = self._more.get(name) or _library_class(name, _FUNCTIONS)
        if isinstance(found, type) and issubclass(found, torch.autograd.Function):
            return found
        raise CheckpointError(f"it names the autograd.Function {name!r:.120}; {_HINT}")

    def label(self, name: Any) -> Any:
        """The class that a label names: the class itself if it is loaded already, else its name. It is never
        instantiated."""
        if not isinstance(name, str):
            raise CheckpointError(f"a class is named by {name!r:.120}")
        if name in self._more:
            return self._more[name]
        module, _, kind = name.rpartition(".")
        found = vars(sys.modules.get(module, builtins)).get(kind)
        return found if isinstance(found, type) and dotted_name(found) == name else name


_HINT = "where you trust it, pass it: mase_server.ir.checkpoint.load(path, allow=[...])"


@lru_cache(maxsize=1)
def _nn_classes() -> dict[str, type[nn.Module]]:
    homes = [module for name, module in sys.modules.items() if name.startswith("torch.nn.modules.") and module]
    found = [
        value
        for home in (nn, *homes, parametrize, parametrizations)
        for value in vars(home).values()
        if isinstance(value, type)
    ]
    return {dotted_name(kind): kind for kind in found if issubclass(kind, nn.Module)}


def _library_class(name: str, rows: Iterable[tuple[re.Pattern[str], str]]) -> type | None:
    """A class of transformers, imported here if that is installed; the file's own code plays no part.

    rows: which modules may hold it, and the name of a class that it must extend.
    """
    module, _, kind = name.rpartition(".")
    for pattern, base in rows:
        if pattern.fullmatch(module) and is_public(kind):
            try:
                found = vars(importlib.import_module(module)).get(kind)
            except ImportError:
                return None
            if isinstance(found, type) and base in {parent.__name__ for parent in found.__mro__}:
                return found
    return None


def _importable_name(function: Any) -> str | None:
    """The name of a function defined at the top level of a module; None for any other."""
    home, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    found = getattr(sys.modules.get(str(home)), str(name), None)
    return dotted_name(function) if found is function and not isinstance(function, type) else None


def _native_function(name: str) -> Any:
    """The native function torch.NAME if its schemas say that it takes tensors and returns only tensors; else None.

    torch's list of functions has neither private names nor functions that work in place.
    """
    short = name.removeprefix("torch.")
    packet = None if short in _NEVER or not short.isidentifier() else getattr(torch.ops.aten, short, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return None
    overloads = packet.overloads()  # type: ignore[no-untyped-call]
    for schema in (getattr(packet, overload)._schema for overload in overloads):
        taken, given = ([str(each.type) for each in side] for side in (schema.arguments, schema.returns))
        if not any("Tensor" in kind for kind in taken) or not given or not all("Tensor" in kind for kind in given):
            return None
    return getattr(torch._C._VariableFunctions, short, None)


def _aten_overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    if not re.fullmatch(r"[a-z_]\w*", packet) or not re.fullmatch(r"[A-Za-z_]\w*", overload) or packet in _NEVER:
        return None
    found = getattr(getattr(torch.ops.aten, packet, None), overload, None)
    return found if isinstance(found, torch._ops.OpOverload) else None


# Graphs from outside may have layer names that torch.fx cannot write as code: it writes them unchanged.

#: Nested getattr calls: fx writes one for each number in a path, and Python's parser takes at most 200.
_MOST_CALLS = 190


class UnwritableName(ValueError):
    """A layer or parameter has a name that torch.fx cannot write. The text gives the name and a remedy."""


def require_writable(graph: fx.Graph) -> None:
    """Raise UnwritableName for a graph whose code cannot be written, or would mean something else."""
    for node in graph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        names = str(node.target).split(".")
        name = f"{str(node.target)!r:.120}"
        if sum(not name.isidentifier() for name in names) > _MOST_CALLS:
            raise UnwritableName(
                f"the layer {name} is {len(names)} deep in containers, and Python takes no code nested so deep, so "
                f"the graph cannot be run; nest at most {_MOST_CALLS} of them, e.g. put all into one nn.Sequential"
            )
        if not all(map(is_writable, names)):
            raise UnwritableName(
                f"the name {name} cannot be written in Python code as torch.fx does it, so the graph cannot be run; "
                "give that layer or parameter a name of letters, digits and _ that is no word of Python's"
            )
