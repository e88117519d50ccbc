"""Batches in files: tensors, and nothing that runs code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from mase_server.ir.errors import CheckpointError
from mase_server.ir.tensors_file import read_tensors


def read(path: str) -> list[Any]:
    """The batches of a file: its list, or the one batch that it holds.

    ValueError for a file that is not there, of another kind, or that cannot be read without running code from it.
    """
    file = Path(path).expanduser()
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise ValueError(f"data: {path} is no file of tensors ({', '.join(_READERS)}) and no function (module:name)")
    if not file.is_file():
        raise ValueError(f"data: there is no file {file.absolute()}")
    try:
        content = reader(file)
    except ImportError:
        raise ValueError(f"data: {path} is read with numpy, which this environment does not have") from None
    except CheckpointError as error:
        raise ValueError(f"data: {error}") from None
    except Exception as error:
        told = str(error).strip().partition("\n")[0]
        if "allow_pickle" in told:  # what numpy says of any file that it does not know
            told = "it holds Python objects, or is no file of arrays"
        raise ValueError(f"data: {path} cannot be read ({type(error).__name__}: {told})") from error
    return list(content) if isinstance(content, list) else [content]


def _torch(file: Path) -> Any:
    return torch.load(file, map_location="cpu", weights_only=True)


def _numpy(file: Path) -> Any:
    import numpy

    loaded = numpy.load(file, allow_pickle=False)
    if isinstance(loaded, numpy.ndarray):
        return torch.from_numpy(loaded)
    with loaded:
        return {name: torch.from_numpy(loaded[name]) for name in loaded}


_READERS: Mapping[str, Callable[[Path], Any]] = {
    ".pt": _torch, ".pth": _torch, ".npz": _numpy, ".npy": _numpy, ".safetensors": read_tensors,
}  # fmt: skip
