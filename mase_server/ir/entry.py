"""The entry of one tensor in the metadata: a dict whose values are computed only when they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Lazy = Mapping[str, Callable[[], Any]]


class TensorEntry(dict[str, Any]):
    """type, precision, shape (and torch_dtype) of one tensor; `lazy` keys are computed at each read.

    Iterating, comparing and saving see the plain keys alone, so an entry equals the dictionary that MASE prints.

    >>> entry = TensorEntry({"shape": [2, 3]}, {"value": lambda: 7})
    >>> entry == {"shape": [2, 3]}, "value" in entry, entry["value"]
    (True, True, 7)
    """

    __slots__ = ("lazy",)

    def __init__(self, fields: Mapping[str, Any], lazy: Lazy | None = None) -> None:
        super().__init__(fields)
        self.lazy: Lazy = lazy or {}

    def __missing__(self, key: str) -> Any:
        if key in self.lazy:
            return self.lazy[key]()
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self.lazy

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, computed where it is lazy; `default` where there is none."""
        try:
            return self[key]
        except KeyError:
            return default

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorEntry:
        plain = {key: list(value) if isinstance(value, list) else value for key, value in self.items()}
        return TensorEntry(plain, self.lazy)

    def __copy__(self) -> TensorEntry:
        return TensorEntry(self, self.lazy)

    def __reduce__(self) -> tuple[Any, ...]:
        return (dict, (dict(self),))
