"""Functions of a person's that give batches."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from mase_server.tracing.values import fields_of


def batches_of(source: Any) -> Iterable[Any]:
    """The batches that something gives: a function (or its text), a loader, a list, or one batch itself.

    ValueError for a text that names no function, and for what gives no batches.
    """
    given = function_of(source)() if isinstance(source, str) else source() if _is_function(source) else source
    if isinstance(given, Tensor | tuple) or fields_of(given) is not None:
        return [given]
    if not isinstance(given, Iterable):
        raise ValueError(f"data: {_told(source)} gave {type(given).__name__}, no batches")
    return given


def _is_function(source: Any) -> bool:
    return callable(source) and not isinstance(source, Tensor | Mapping | list | tuple)


def _told(source: Any) -> str:
    return source if isinstance(source, str) else str(getattr(source, "__name__", type(source).__name__))


def function_of(text: str) -> Any:
    """The function that "module:name" or "file.py:name" names. ValueError where there is none."""
    place, _, name = text.rpartition(":")
    found = getattr(_module(place), name, None)
    if not callable(found):
        raise ValueError(f"data: {place} has no function {name!r}")
    return found


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name != place.split(".")[0]:
                raise
            raise ValueError(f"data: there is no module {place!r}; a file is written with .py") from None
    path = Path(place).expanduser().absolute()
    spec = importlib.util.spec_from_file_location(f"data_of_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ValueError(f"data: there is no file {path}")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
