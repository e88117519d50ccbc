"""A model with values: made again by the calls that made it on meta, with the weights that its file loads.

Each tensor that `load_state_dict` put into a model is known, so a part that was exchanged afterwards is not
given the weights of the old one. Weights that nobody gave are random with one seed, and inputs whose values are not
all known are random too; `weights` and `inputs` say which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mase_server.ops.paths import attribute, named_modules, named_parameters, named_tensors
from mase_server.tracing.execution.substitutes import LOADED, Loading
from mase_server.tracing.inputs.spec import outside_modes
from mase_server.tracing.models.constructions import Construction, caller_of, construction_of
from mase_server.tracing.recording.rungs import OnCpu, empty_copy
from mase_server.tracing.recording.shadow import Shadows
from mase_server.tracing.recording.state import SEED, put_in_mode


@dataclass(frozen=True, slots=True)
class Real:
    """A model whose parameters have values. how: their source, in words.  given: the tensors whose values are no random
    ones."""

    model: nn.Module
    how: str
    given: frozenset[str]


def real_model(model: nn.Module, shadows: Shadows, construct: Callable[[], nn.Module] | None) -> Real:
    """The same model with values: loaded ones if its file loaded any, else random ones with a fixed seed.

    construct: makes it again, if no constructor call of it was seen.  Raises whatever its constructor raises.
    """
    tensors = dict(named_tensors(model))
    loaded = any(map(pretrained_folder, model.modules()))
    if not loaded and not any(tensor.is_meta for tensor in tensors.values()):
        how = "the weights that the file gave it" if tensors else "no weights: the model has none"
        return Real(model, how, frozenset(tensors))
    with outside_modes(), OnCpu():
        torch.manual_seed(SEED)
        maker = _Maker(shadows)
        made = maker.made(model, construct)
        given = set() if loaded else {name for name, tensor in tensors.items() if not tensor.is_meta}
        _copy_values({name: tensors[name] for name in given}, made)
        names: dict[int, list[str]] = {}
        for name, tensor in tensors.items():
            names.setdefault(id(tensor), []).append(name)
        files = [file for loading in LOADED for file in _load_again(loading, names, made, given)]
        for path, part in named_modules(model):
            if (folder := pretrained_folder(part)) and folder not in maker.lost:
                given.update(f"{path}.{name}" if path else name for name, _ in named_tensors(part))
                files.append(folder)
        put_in_mode(made, model.training)
    parts = set(map(id, model.modules()))
    absent = [name for loading in LOADED if id(loading.module) in parts for name in loading.absent]
    how = _describe_weights(model, given, list(dict.fromkeys(files)), list(dict.fromkeys(absent)))
    return Real(made, how, frozenset(given))


def _describe_weights(model: nn.Module, given: set[str], files: Sequence[str], absent: Sequence[str]) -> str:
    told = " and ".join(Path(file).name for file in files)
    source = f"weights of {told}" if files else "the file's own weights"
    names = [name for name, _ in named_parameters(model)]
    random = [name for name in names if name not in given]
    why = f": {' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not on this disk" if absent else ""
    if not given or len(random) == len(names):
        return f"random weights (seed {SEED}{why})"
    if not random:
        return source
    return f"{source}; {len(random)} of {len(names)} parameters random (seed {SEED}{why}), such as {random[0]}"


@dataclass(slots=True)
class _Maker:
    """Makes modules again. made: id of the one on meta -> the one with values."""

    shadows: Shadows
    again: dict[int, nn.Module] = field(default_factory=dict)
    #: Folders whose weights could not be loaded again.
    lost: list[str] = field(default_factory=list)

    def made(self, model: nn.Module, construct: Callable[[], nn.Module] | None) -> nn.Module:
        """The model anew; if it was changed after it was made, a copy with the values of newly made parts."""
        seen = construction_of(model) is not None
        found = self.module(model) if seen or construct is None else construct()
        return found if _have_same_tensors(model, found) else self._copy_with_values(model, found)

    def module(self, module: nn.Module) -> nn.Module:
        """A module made by the same call; a copy without values if that call was not seen."""
        if id(module) not in self.again:
            call = construction_of(module)
            if call is None:
                self.again[id(module)] = empty_copy(module)
            else:
                self.again[id(module)] = self._call_constructor(module, call)
        return self.again[id(module)]

    def _call_constructor(self, module: nn.Module, call: Construction) -> nn.Module:
        folder = pretrained_folder(module)
        if folder:
            try:
                made: nn.Module = type(module).from_pretrained(folder, config=module.config)  # type: ignore[attr-defined]
                return made
            except Exception:  # noqa: BLE001 - the file's own call may have said more than is known; random ones then
                self.lost.append(folder)
        args, kwargs = self.value(call.args), self.value(call.kwargs)
        return type(module)(*args, **kwargs)

    def value(self, value: Any) -> Any:
        """An argument of a constructor with modules and tensors that have values."""
        if isinstance(value, nn.Module):
            return self.module(value)
        if isinstance(value, torch.Tensor):
            return self._make_real_tensor(value)
        if type(value) in (list, tuple):
            return type(value)(self.value(item) for item in value)
        return {key: self.value(item) for key, item in value.items()} if type(value) is dict else value

    def _make_real_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_meta:
            return tensor
        real = self.shadows.get(tensor)
        if real is None:
            real = torch.randn(tensor.shape).to(tensor.dtype)
        return nn.Parameter(real) if isinstance(tensor, nn.Parameter) else real

    def _copy_with_values(self, model: nn.Module, found: nn.Module) -> nn.Module:
        """A copy of the model with values from `found`, else from its parts made one by one, else random."""
        made = empty_copy(model)
        sources = dict(named_tensors(found))
        for name, tensor in named_tensors(made):
            value = sources.get(name)
            if value is None or value.shape != tensor.shape:
                value = self._of_part(model, name)
            with torch.no_grad():
                if value is not None and value.shape == tensor.shape and not value.is_meta:
                    tensor.copy_(value)
                elif tensor.is_floating_point():
                    tensor.normal_(0.0, 0.02)
                else:
                    tensor.zero_()
        return made

    def _of_part(self, model: nn.Module, name: str) -> torch.Tensor | None:
        """The value of a tensor in the innermost part whose construction was seen, or its known value."""
        path, _, last = name.rpartition(".")
        part = attribute(model, path)
        known = self.shadows.get(getattr(part, last))
        if known is not None or construction_of(part) is None:
            return known
        return dict(named_tensors(self.module(part))).get(last)


def pretrained_folder(module: nn.Module) -> str:
    """The source from which `from_pretrained` loaded a module; "" for any other."""
    name = getattr(getattr(module, "config", None), "_name_or_path", "")
    return str(name) if caller_of(module) == "from_pretrained" and name else ""


def _have_same_tensors(model: nn.Module, other: nn.Module) -> bool:
    """Have two models the same tensors under the same names, with the same sharing?"""
    return _outline_tensors(model) == _outline_tensors(other)


def _outline_tensors(model: nn.Module) -> Mapping[str, Any]:
    first: dict[int, str] = {}
    return {name: (tuple(t.shape), t.dtype, first.setdefault(id(t), name)) for name, t in named_tensors(model)}


def _copy_values(values: Mapping[str, torch.Tensor], made: nn.Module) -> None:
    targets = dict(named_tensors(made))
    with torch.no_grad():
        for name, value in values.items():
            if name in targets and targets[name].shape == value.shape:
                targets[name].copy_(value)


def _load_again(loading: Loading, names: Mapping[int, list[str]], made: nn.Module, given: set[str]) -> tuple[str, ...]:
    """Load the same values again. names: of the model's tensors by id.  Adds the restored ones; returns the files."""
    values = {name: value for tensor, value in loading.values for name in names.get(id(tensor), ())}
    _copy_values(values, made)
    given.update(values)
    return loading.files if values else ()
