"""The data that passes run a graph on: files, user functions, anything that gives batches, or random inputs."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from pickle import UnpicklingError
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from mase_server.ir.allowed import CheckpointError
from mase_server.ir.feeding import feed_placeholders, flatten_arguments
from mase_server.ir.graph import MaseGraph
from mase_server.ir.tensors_file import read_tensors
from mase_server.protocol.arguments import Argument
from mase_server.tracing.inputs.spec import InputValues
from mase_server.tracing.recording.values import Rebuild, fields_of, holds_tensor

#: The default number of batches.
MOST = 32


@dataclass(frozen=True, slots=True)
class Data:
    """batches: forward's arguments by name.  words: their source, e.g. "4 batches of calibration.pt"."""

    batches: tuple[InputValues, ...]
    words: str

    def feeds(self, graph: MaseGraph) -> Iterator[list[Any]]:
        """The values of the graph's placeholders, batch by batch."""
        for batch in self.batches:
            yield feed_placeholders(graph.fx_graph, flatten_arguments(batch, graph.root))


def load(graph: MaseGraph, data: Any = None, samples: int | None = None) -> Data:
    """Batches to run a graph on.

    data: a path of tensors, "module:function" or "file.py:function", a function, anything that gives batches, or one
    batch; None for `graph.data`, else the example inputs that the graph was made with, or random ones if none were
    given.  A batch is a map by the names of forward's parameters, a tensor, or a tuple whose first items are taken.
    Files hold a batch, a list of them, or many rows, which are cut into batches of the example's size. Inputs that a
    batch lacks are the example's. samples: the most batches; None for 32, and for 1 without data. ValueError if
    there is none, or if one does not fit the graph.
    """
    data = graph.data or None if data is None else data
    if data is None or data == "random":
        return _example_data(graph, samples or 1)
    named = isinstance(data, str)
    given = raw_batches(data)
    fitting = (batch for each in given for batch in _fit_and_cut(graph, each))
    batches = tuple(islice(fitting, samples or MOST))
    if not batches:
        raise ValueError(f"data: {data if named else type(data).__name__} has no batch")
    of = f" of {data}" if named else ""
    return Data(batches, f"{len(batches)} batch{'es' if len(batches) > 1 else ''}{of}")


def raw_batches(data: Any) -> Iterable[Any]:
    """The batches that `data` means, unchanged, including targets."""
    return _batches_of_text(data) if isinstance(data, str) else batches_of(data)


def _batches_of_text(text: str) -> Iterable[Any]:
    """The batches that a text means: a text with a colon before an identifier names a function, any other a file."""
    place, colon, function = text.rpartition(":")
    return batches_of(text) if colon and function.isidentifier() and place else read_batches(text)


def _example_data(graph: MaseGraph, count: int) -> Data:
    first = dict(graph.arguments)
    others = [random_inputs_like(first, seed) for seed in range(1, count)]
    if any(holds_tensor(value) for value in graph.given.values()):
        more = f" and {count - 1} random like them" if others else ""
        words = f"the example inputs{more}"
    else:
        words = f"{count} batches of random inputs" if others else "random inputs"
    return Data((first, *others), words)


def _fit_and_cut(graph: MaseGraph, batch: Any) -> Iterator[InputValues]:
    """A batch by the names of the graph's inputs; split into several if it has that many times the rows."""
    yield from _cut_batch(fit_batch(graph, batch), flatten_arguments(graph.arguments, graph.root))


def fit_batch(graph: MaseGraph, batch: Any) -> InputValues:
    """A batch by the names of the graph's inputs, in their element types, with all of its rows. ValueError as for
    `load`."""
    example = flatten_arguments(graph.arguments, graph.root)
    named = {**_constants_of_example(example), **_by_name(graph, batch, example)}
    for name, value in named.items():
        if isinstance(value, Tensor) and isinstance(example.get(name), Tensor):
            named[name] = _cast_like_example(name, value, example[name])
    return named


def _constants_of_example(example: Mapping[str, Any]) -> InputValues:
    return {name: value for name, value in example.items() if not holds_tensor(value)}


def _by_name(graph: MaseGraph, batch: Any, example: Mapping[str, Any]) -> InputValues:
    """Inputs by name, without labels and others that the graph does not use; missing masks or targets come from the
    example."""
    inputs = [str(node.target).lstrip("*") for node in graph.fx_graph.nodes if node.op == "placeholder"]
    fields = None if isinstance(batch, Tensor | tuple | list) else fields_of(batch)
    if fields is not None:
        found = {str(name): _tensor_from_numpy(value) for name, value in fields.items() if str(name) in inputs}
    else:
        items = batch if isinstance(batch, tuple | list) else (batch,)
        found = {name: _tensor_from_numpy(value) for name, value in zip(inputs, items, strict=False)}
    missing = [name for name in inputs if name not in found and holds_tensor(example.get(name))]
    if missing and not found:
        has = ", ".join(map(str, fields)) if fields is not None else f"{len(items)} values"
        raise ValueError(f"data: a batch has {has or 'nothing'}, but no {missing[0]}, which the model takes")
    return found | {name: example[name] for name in missing}


def _tensor_from_numpy(value: Any) -> Any:
    """Convert numpy's arrays to tensors."""
    return torch.from_numpy(value) if type(value).__module__ == "numpy" and hasattr(value, "dtype") else value


def _cast_like_example(name: str, value: Tensor, example: Tensor) -> Tensor:
    """Convert to the example's element type if both are of one kind."""
    if value.layout is not torch.strided:
        raise ValueError(f"data: {name} is of layout {value.layout}; save it dense, with tensor.to_dense()")
    if value.dtype == example.dtype:
        return value
    if value.is_floating_point() != example.is_floating_point() or value.is_complex() != example.is_complex():
        raise ValueError(f"data: {name} is {value.dtype}, but the model takes {example.dtype}")
    return value.to(example.dtype)


def _cut_batch(named: InputValues, example: Mapping[str, Any]) -> Iterator[InputValues]:
    given = {name: value for name, value in named.items() if value is not example.get(name)}
    rows, size = _count_rows(given), _count_rows({name: value for name, value in example.items() if name in given})
    if rows is None or size is None or rows <= size:
        yield named
        return
    for start in range(0, rows - size + 1, size):
        yield {name: _slice_rows(value, rows, start, size) for name, value in named.items()}


def _count_rows(named: Mapping[str, Any]) -> int | None:
    """The number of rows that all tensors have; None if they differ."""
    counts = {len(value) for value in named.values() if isinstance(value, Tensor) and value.dim()}
    return counts.pop() if len(counts) == 1 else None


def _slice_rows(value: Any, rows: int, start: int, size: int) -> Any:
    return value[start : start + size] if isinstance(value, Tensor) and value.dim() and len(value) == rows else value


# Random inputs like an example.


def random_inputs_like(example: Mapping[str, Any], seed: int) -> InputValues:
    """The same inputs with other values.

    Floats are normal with the example's mean and deviation; integers are drawn from those of the example, so that
    each is meaningful; ones and zeros, which are masks, stay.
    """
    generator = torch.Generator(device="cpu").manual_seed(seed)

    def change(tensor: Tensor) -> Tensor:
        return _draw_like(tensor, generator)

    return {
        name: Rebuild.of(value).changed(change) if holds_tensor(value) else value for name, value in example.items()
    }


def _draw_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    if tensor.is_meta or tensor.numel() < 2 or tensor.is_complex():
        return tensor
    if tensor.is_floating_point():
        finite = tensor.double()
        if not bool(finite.isfinite().all()) or _is_mask(tensor):
            return tensor
        mean, deviation = float(finite.mean()), float(finite.std())
        return (torch.randn(tensor.shape, generator=generator) * deviation + mean).to(tensor.dtype)
    if _is_mask(tensor):
        return tensor
    places = torch.randint(tensor.numel(), tensor.shape, generator=generator)
    return tensor.reshape(-1)[places]


def _is_mask(tensor: Tensor) -> bool:
    return bool(((tensor == 0) | (tensor == 1)).all())


# The two arguments of every pass on data.

DATA = Argument(
    "data",
    "text",
    "data to run the model on: a file of tensors (.pt, .npz, .npy, .safetensors), or a function that gives batches, "
    'written "module:function" or "file.py:function"; the example inputs, or random ones, without it',
)
SAMPLES = Argument("samples", "integer", "the maximum number of batches; 1 without data", minimum=1)


# Batches in files: tensors, and nothing that runs code.

#: The size in memory that a compressed file may have: this many bytes in any case, more only up to this many times its
#: own size.
INFLATED, TIMES = 256 << 20, 100
_MORE_THAN_TENSORS = "it holds more than tensors in lists and maps, which is made by running code, or it is damaged"


def read_batches(path: str) -> list[Any]:
    """The batches of a file: its list, or the one batch that it holds. ValueError as for `read_content`."""
    found = read_content(path, "data")
    return list(found) if isinstance(found, list) else [found]


def read_content(path: str, argument: str) -> Any:
    """The content of the file that a pass's `argument` names.

    ValueError for a missing file, another kind of file, or one that cannot be read without running code from it.
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
        raise ValueError(f"{argument}: {path} cannot be read ({_one_line_error(error)})") from error


def _one_line_error(error: Exception) -> str:
    """An error of numpy or torch in one line, without their advice to run the file's code."""
    told = str(error).strip().partition("\n")[0]
    if "allow_pickle" in told:  # numpy's words for any file that it does not know
        told = "it holds Python objects, or is no file of arrays"
    if isinstance(error, UnpicklingError):
        told = _MORE_THAN_TENSORS
    return f"{type(error).__name__}: {told}" if told else type(error).__name__


def _require_size(file: Path) -> None:
    """Raise ValueError for an archive that would take far more memory than a file of its size should."""
    if not zipfile.is_zipfile(file):
        return
    with zipfile.ZipFile(file) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > max(INFLATED, TIMES * file.stat().st_size):
        told = f"it has {file.stat().st_size} bytes and would take {size} in memory"
        raise ValueError(f"{told}; if that is meant, save it uncompressed")


def _read_torch_file(file: Path) -> Any:
    return torch.load(file, map_location="cpu", weights_only=True)


def _read_numpy_file(file: Path) -> Any:
    import numpy

    loaded = numpy.load(file, allow_pickle=False)
    if isinstance(loaded, numpy.ndarray):
        return torch.from_numpy(loaded)
    with loaded:
        return {name: torch.from_numpy(loaded[name]) for name in loaded}


_READERS: Mapping[str, Callable[[Path], Any]] = {
    ".pt": _read_torch_file, ".pth": _read_torch_file, ".bin": _read_torch_file, ".ckpt": _read_torch_file,
    ".npz": _read_numpy_file, ".npy": _read_numpy_file, ".safetensors": read_tensors,
}  # fmt: skip


# User functions that give batches.


def batches_of(source: Any) -> Iterable[Any]:
    """The batches from a function (or its text), a loader, a list, or one batch itself.

    ValueError for a text that names no function, and for a source without batches.
    """
    given = function_of(source)() if isinstance(source, str) else source() if _is_function(source) else source
    if isinstance(given, Tensor | tuple) or fields_of(given) is not None:
        return [given]
    if not isinstance(given, Iterable):
        raise ValueError(f"data: {_source_name(source)} gave {type(given).__name__}, no batches")
    return given


def _is_function(source: Any) -> bool:
    return callable(source) and not isinstance(source, Tensor | Mapping | list | tuple)


def _source_name(source: Any) -> str:
    return source if isinstance(source, str) else str(getattr(source, "__name__", type(source).__name__))


def function_of(text: str) -> Any:
    """The function that "module:name" or "file.py:name" names. ValueError if there is none."""
    place, _, name = text.rpartition(":")
    found = getattr(_import_place(place), name, None)
    if not callable(found):
        raise ValueError(f"data: {place} has no function {name!r}")
    return found


def _import_place(place: str) -> ModuleType:
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
