"""Every model type that transformers knows: its class, its default configuration cut to two layers, built on meta."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hf_sizes import KEPT, mend, put_inside, shorten, shrink
from torch import nn
from transformers import CONFIG_MAPPING, PretrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from mase_server.tracing.recording.shadow import MetaMode, Shadows


@dataclass(frozen=True, slots=True)
class Cut:
    """layers: how many are kept.  narrow: are widths cut too, so that the model can be run for real?

    mended: is what the defaults leave at odds with each other put right?
    """

    layers: int = 2
    narrow: bool = False
    mended: bool = False


#: More layers for models that need one of each kind; less width where the path depends on values; other defaults where
#: the library cannot run its own.
CUTS = (Cut(), Cut(layers=8), Cut(narrow=True), Cut(mended=True), Cut(layers=1, narrow=True, mended=True))


class NotBuilt(Exception):
    """A type whose model cannot be built here; the text says why."""


@dataclass(frozen=True, slots=True)
class Built:
    """A model on meta, the values that its constructor left, and whether its depth was cut."""

    model: nn.Module
    shadows: Shadows
    cut: bool
    auto: bool


def model_types() -> list[str]:
    """All of CONFIG_MAPPING, in order of name."""
    return sorted(CONFIG_MAPPING.keys())


def build(name: str, wanted: Cut = CUTS[0]) -> Built:
    """The type's model from its default configuration, on meta, in eval mode; raises NotBuilt with the reason."""
    reasons = []
    for cut in (True, False):
        try:
            config = CONFIG_MAPPING[name]()
            kind, auto = model_class(config)
            if cut:
                shorten(config, wanted.layers)
            if cut and wanted.narrow:
                shrink(config, KEPT)
            put_inside(config)
            if wanted.mended:
                mend(config)
            return _constructed(kind, config, cut, auto)
        except NotBuilt:
            raise
        except Exception as error:  # noqa: BLE001 - the library's own code; its error is the reason
            reasons.append(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    raise NotBuilt(reasons[-1])


def _constructed(kind: type[PreTrainedModel], config: Any, cut: bool, auto: bool) -> Built:
    shadows = Shadows()
    with MetaMode(shadows):
        model = kind(config)
    return Built(model.eval(), shadows, cut, auto)


def model_class(config: PretrainedConfig) -> tuple[type[PreTrainedModel], bool]:
    """The type's base model, else its first head, else what its own file defines for it; is it one of Auto's?"""
    found: list[type[PreTrainedModel]] = []
    for mapping in _mappings():
        with contextlib.suppress(KeyError):
            kinds = mapping[type(config)]
            found += kinds if isinstance(kinds, tuple | list) else [kinds]
    own = [] if found else list(_own_classes(type(config)))
    if not (found or own):
        raise NotBuilt("no model class: only a part of another type's model")
    running = [kind for kind in found + own if getattr(kind.forward, "__name__", "") != "_forward_unimplemented"]
    if not running:
        raise NotBuilt("its model has no forward of its own")
    return running[0], bool(found)


def _mappings() -> Iterator[Any]:
    yield modeling_auto.MODEL_MAPPING
    for name, value in vars(modeling_auto).items():
        if name.startswith("MODEL_") and name.endswith("_MAPPING") and name != "MODEL_MAPPING":
            yield value


def _own_classes(kind: type) -> Iterator[type[PreTrainedModel]]:
    """Model classes of the configuration's own folder that are made from just this configuration."""
    home = kind.__module__.replace(".configuration_", ".modeling_")
    try:
        module = importlib.import_module(home)
    except ModuleNotFoundError as error:
        raise NotBuilt(f"{type(error).__name__}: {error}") from None
    for value in vars(module).values():
        if not (inspect.isclass(value) and issubclass(value, PreTrainedModel) and value.__module__ == home):
            continue
        if value.config_class is kind and "forward" in vars(value):
            yield value
