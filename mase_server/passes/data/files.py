"""Batches in files: tensors, and nothing that runs code."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from mase_server.ir.errors import CheckpointError
from mase_server.ir.tensors_file import read_tensors

#: What a compressed file may grow to in memory: so many bytes anyway, more than that only so many times its size.
INFLATED, TIMES = 256 << 20, 100
_MORE_THAN_TENSORS = "it holds more than tensors in lists and maps, which is made by running code, or it is damaged"


def read(path: str) -> list[Any]:
    """The batches of a file: its list, or the one batch that it holds. ValueError as for `content`."""
    found = content(path, "data")
    return list(found) if isinstance(found, list) else [found]


def content(path: str, argument: str) -> Any:
    """What a file that a pass's `argument` names holds.

    ValueError for a file that is not there, of another kind, or that cannot be read without running code from it.
    """
    file = Path(path).expanduser()
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        kinds = ", ".join(_READERS)
        raise ValueError(f"{argument}: {path} is no file of tensors ({kinds}) and no function (module:name)")
    if not file.is_file():
        raise ValueError(f"{argument}: there is no file {file.absolute()}")
    try:
        _require_size(file)
        return reader(file)
    except ImportError:
        raise ValueError(f"{argument}: {path} is read with numpy, which this environment does not have") from None
    except CheckpointError as error:
        raise ValueError(f"{argument}: {error}") from None
    except Exception as error:
        raise ValueError(f"{argument}: {path} cannot be read ({_told(error)})") from error


def _told(error: Exception) -> str:
    """An error of numpy's or torch's in one line, without their advice to run what the file says."""
    told = str(error).strip().partition("\n")[0]
    if "allow_pickle" in told:  # what numpy says of any file that it does not know
        told = "it holds Python objects, or is no file of arrays"
    if isinstance(error, UnpicklingError):
        told = _MORE_THAN_TENSORS
    return f"{type(error).__name__}: {told}" if told else type(error).__name__


def _require_size(file: Path) -> None:
    """ValueError for an archive that would take far more memory than a file of its size has a reason to."""
    if not zipfile.is_zipfile(file):
        return
    with zipfile.ZipFile(file) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > max(INFLATED, TIMES * file.stat().st_size):
        told = f"it has {file.stat().st_size} bytes and would take {size} in memory"
        raise ValueError(f"{told}; if that is meant, save it uncompressed")


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
    ".pt": _torch, ".pth": _torch, ".bin": _torch, ".ckpt": _torch,
    ".npz": _numpy, ".npy": _numpy, ".safetensors": read_tensors,
}  # fmt: skip
