"""Constructor calls as they were written, whatever stands between the call and nn.Module."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
from torch import nn

from mase_server.tracing.models.constructions import Constructions, construction_of, places_of


class Keeping:
    """As hub mixins do: keeps the configuration in `__new__`, and hands nothing on."""

    def __new__(cls, *args, **kwargs):
        made = super().__new__(cls)
        made.kept = args, kwargs
        return made


class Named(nn.Module):
    """A `__new__` with parameters of its own."""

    def __new__(cls, width, *, bias=True):
        return super().__new__(cls)

    def __init__(self, width, *, bias=True):
        super().__init__()
        self.fc = nn.Linear(width, 3, bias=bias)


class Mixed(Keeping, nn.Module):
    def __init__(self, width, bias=True):
        super().__init__()
        self.fc = nn.Linear(width, 3, bias=bias)


class Meta(type):
    """As fastcore does: makes the object first, and hands the arguments to `__init__` alone."""

    def __call__(cls, *args, **kwargs):
        made = cls.__new__(cls)
        made.__init__(*args, **kwargs)
        return made


class OfMeta(nn.Module, metaclass=Meta):
    def __init__(self, width, bias=True):
        super().__init__()
        self.fc = nn.Linear(width, 3, bias=bias)


class Plain(nn.Module):
    def __init__(self, width, bias=True):
        super().__init__()
        self.fc = nn.Linear(width, 3, bias=bias)


@pytest.mark.parametrize("kind", [Plain, Mixed, Named, OfMeta])
def test_a_model_is_made_again_with_the_arguments_of_the_call(kind):
    constructions = Constructions()
    with constructions.recording():
        model = kind(5, bias=False)
    made = constructions.of(model)
    assert made.bound() == {"width": 5, "bias": False}
    again = made.rebuild()()
    assert (again.fc.in_features, again.fc.bias) == (5, None)


@pytest.mark.parametrize("kind", [Plain, Mixed, Named, OfMeta])
def test_the_place_of_a_construction_is_that_of_the_call(kind):
    with Constructions().recording():
        model = nn.Sequential(kind(5))
    file, line, *_ = places_of(model)[id(model[0])]
    assert file == __file__
    assert "nn.Sequential(kind(5))" in Path(__file__).read_text().splitlines()[line - 1]


def test_a_model_that_nobody_needs_is_freed_with_its_construction():
    with Constructions().recording():
        model = Plain(5)
    part, whole = weakref.ref(model.fc), weakref.ref(model)
    assert construction_of(model).args == (5,)
    del model
    gc.collect()
    assert (part(), whole()) == (None, None)
