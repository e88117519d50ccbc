"""`torch.vmap` in a forward: one node, whose function is run anew wherever the graph is.

What the function holds from outside comes in as arguments of the node, so that no tensor of the recording stays in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._functorch import apis
from torch.overrides import TorchFunctionMode

from mase_server.tracing.calling import leaves, map_leaves

#: Called in place of torch's own: (original, function, in_dims, out_dims, randomness, chunk_size, *args).
Hook = Callable[..., Any]


@contextmanager
def vmap_through(hook: Hook) -> Iterator[None]:
    """While inside, functions made by `torch.vmap` call `hook`."""
    before = vars(apis)["vmap_impl"]
    vars(apis)["vmap_impl"] = functools.partial(hook, before)
    try:
        yield
    finally:
        vars(apis)["vmap_impl"] = before


class Vmapped:
    """A vmapped function as the target of a node: called with its arguments and with what it holds from outside."""

    __name__ = "vmap"

    def __init__(self, run: Callable[..., Any], held: Sequence[torch.Tensor]) -> None:
        self._run, self._held = run, tuple(held)

    def __call__(self, args: Sequence[Any], kwargs: dict[str, Any], held: Sequence[torch.Tensor], state: str) -> Any:
        """The function's result; `state` only says what else it was made with."""
        replacing = Replacing(dict(zip(map(id, self._held), held, strict=True)))
        with replacing, vmap_through(replacing.nested):
            return self._run(*args, **kwargs)


class Replacing(TorchFunctionMode):
    """While active, calls take other tensors in place of some, by identity."""

    def __init__(self, others: dict[int, torch.Tensor]) -> None:
        super().__init__()
        self._others = others

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*self.replaced(tuple(args)), **self.replaced(kwargs or {}))

    def nested(self, original: Callable[..., Any], function: Callable[..., Any], *rest: Any, **kwargs: Any) -> Any:
        """A vmap inside of the function: its arguments pass by the mode."""
        return original(function, *self.replaced(rest), **kwargs)

    def replaced(self, value: Any) -> Any:
        """Nested arguments with the other tensors."""

        def change(item: Any) -> Any:
            return self._others.get(id(item), item) if isinstance(item, torch.Tensor) else item

        return map_leaves(value, change)


class Held:
    """Collects the tensors that a function uses and that `is_known` from before it ran."""

    def __init__(self, is_known: Callable[[torch.Tensor], bool]) -> None:
        self._is_known = is_known
        self.tensors: dict[int, torch.Tensor] = {}

    def look(self, arguments: Any) -> None:
        """Take note of one call's arguments."""
        for tensor in leaves(arguments):
            if id(tensor) not in self.tensors and self._is_known(tensor):
                self.tensors[id(tensor)] = tensor


def state_of(function: Any, depth: int = 0) -> str:
    """The plain numbers that a function has been made with, as text: where they vary, it is not generic."""
    if isinstance(function, bool | int | float | str | torch.Size):
        return repr(function)
    if depth > 4:
        return ""
    parts: list[Any] = []
    if isinstance(function, functools.partial):
        parts = [function.func, *function.args, *function.keywords.values()]
    elif isinstance(function, list | tuple):
        parts = list(function)
    else:
        parts = [*_cells(function), *(getattr(function, "__defaults__", None) or ())]
    return f"({','.join(state_of(part, depth + 1) for part in parts)})"


def _cells(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue
