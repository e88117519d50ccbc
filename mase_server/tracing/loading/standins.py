"""Classes of packages that are often missing, and whose part in a model is well known: nothing that changes a shape."""

from __future__ import annotations

import inspect
import sys
from types import FrameType
from typing import Any

import torch
from torch import nn

#: Packages -> names in them, wherever they are defined inside -> what stands in.
_LIGHTNING = ("pytorch_lightning", "lightning", "lightning_fabric")
_OPENMMLAB = ("mmcv", "mmengine")


def stand_in(thing: str) -> Any:
    """What stands for something of a missing package, by its dotted name; None where nothing does."""
    top, name = thing.partition(".")[0], thing.rpartition(".")[2]
    return _KNOWN.get((top, name))


def assumed(module: str) -> str:
    """The sentence that says what is stood in for, with a space before it; "" where nothing is."""
    names = [name for top, name in _KNOWN if top == module.partition(".")[0]]
    return f" A {names[0]} of it is taken for a plain nn.Module." if names else ""


class Hyperparameters(dict[str, Any]):
    """A dict whose keys are attributes too, as Lightning's `self.hparams` is."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no hyperparameter {name!r}; there are {', '.join(self) or 'none'}") from None


class LightningModule(nn.Module):
    """An nn.Module with what constructors and forwards use of Lightning's."""

    trainer = logger = example_input_array = None
    automatic_optimization = True
    current_epoch = global_step = global_rank = local_rank = 0

    @property
    def device(self) -> torch.device:
        """Where every tensor of the program seems to live."""
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """The element type of its weights."""
        return next((each.dtype for each in self.parameters()), torch.get_default_dtype())

    @property
    def hparams(self) -> Hyperparameters:
        """What `save_hyperparameters` kept."""
        kept: Hyperparameters = vars(self).setdefault("_hparams", Hyperparameters())
        return kept

    def save_hyperparameters(self, *args: Any, ignore: Any = (), frame: FrameType | None = None, **_: Any) -> None:
        """Keep the constructor's arguments in `hparams`, or those named, or what a mapping holds."""
        ignored = {ignore} if isinstance(ignore, str) else set(ignore or ())
        given = _constructor_arguments(self, frame or sys._getframe(1))
        for each in args:
            if not isinstance(each, str):
                self.hparams.update(each if isinstance(each, dict) else vars(each))
        names = [each for each in args if isinstance(each, str)] or ([] if args else list(given))
        self.hparams.update({name: given[name] for name in names if name in given and name not in ignored})

    def log(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is logged."""

    log_dict = manual_backward = toggle_optimizer = untoggle_optimizer = print = log

    def freeze(self) -> None:
        """No gradients, and eval mode."""
        self.requires_grad_(False).eval()

    def unfreeze(self) -> None:
        """Gradients, and train mode."""
        self.requires_grad_(True).train()

    def all_gather(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """Of one process there is nothing to gather."""
        return data


def _constructor_arguments(model: nn.Module, frame: FrameType | None) -> dict[str, Any]:
    """The arguments of the constructors that run for `model`, the outermost class's first."""
    found: list[dict[str, Any]] = []
    while frame is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is model:
        names, _, keywords, values = inspect.getargvalues(frame)
        given = {name: values[name] for name in names[1:]} | (values.get(keywords) or {} if keywords else {})
        found.append(given)
        frame = frame.f_back
    return {name: value for given in found for name, value in given.items() if not name.startswith("__")}


class BaseModule(nn.Module):
    """OpenMMLab's: an nn.Module that is told how to initialise its weights."""

    def __init__(self, init_cfg: Any = None) -> None:
        super().__init__()
        self.init_cfg = init_cfg

    def init_weights(self) -> None:
        """Weights have no values here."""


_KNOWN: dict[tuple[str, str], Any] = {
    **{(package, "LightningModule"): LightningModule for package in _LIGHTNING},
    **{(package, "BaseModule"): BaseModule for package in _OPENMMLAB},
}
