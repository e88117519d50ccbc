"""Objects that do something when they are looked at or compared, and functions of PyTorch that a file replaces."""

from __future__ import annotations

import pytest
import torch

from tests.worker.jobs import Job

PROPERTY = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    @property
    def trainer(self):
        raise RuntimeError("Net is not attached to a trainer")

    def forward(self, x, mask=None):
        if self.training:
            scale = self.trainer.scale
            x = x * scale
        return self.fc(x)
"""

LAZY = """
import sys
from types import ModuleType


class Lazy(ModuleType):
    def __getattr__(self, name):
        raise ImportError("the compiled half of this module is missing")


sys.modules["lazy_half"] = Lazy("lazy_half")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x)
"""

EQUALITY = """
class Config:
    def __init__(self, width=8):
        self.width = width

    def __eq__(self, other):
        return self.__dict__ == other.__dict__


class Net(nn.Module):
    def __init__(self, config: Config, groups):
        super().__init__()
        if groups != 0:
            raise ValueError("groups are not supported")
        self.fc = nn.Linear(config.width, 4)

    def forward(self, x):
        return self.fc(x)
"""

#: A layer that is made of the module around it, of which only assignments are known where the layer is searched alone.
MADE_OF_SELF = """
class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.width = width
        self.layers = nn.ModuleList([Layer(self) for _ in range(2)])
        raise ValueError("this net is not ready")

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Layer(nn.Module):
    def __init__(self, parent):
        super().__init__()
        self.fc = nn.Linear(parent.width, parent.width)

    def forward(self, x):
        return self.fc(x)
"""

OPEN = """
class Settings:
    def __getattr__(self, name):
        raise RuntimeError("settings are loaded first")


class Net(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x)


def build():
    return Net(Settings())
"""

REPLACED = """
import functools

import torch.nn.functional as F


class Counter:
    def __init__(self, inner):
        self.inner, self.count = inner, 0

    def __call__(self, *args, **kwargs):
        self.count += 1
        return self.inner(*args, **kwargs)


def watched(inner):
    @functools.wraps(inner)
    def watch(*args, **kwargs):
        return inner(*args, **kwargs)
    return watch


F.relu = Counter(F.relu)
F.softmax = watched(F.softmax)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return F.softmax(F.relu(self.fc(x)), dim=-1)
"""


@pytest.mark.parametrize(
    "text",
    [PROPERTY, LAZY, EQUALITY, OPEN],
    ids=["a property that raises", "a module that imports itself", "a comparison that raises", "any attribute raises"],
)
def test_nothing_of_a_file_is_lost_because_it_was_looked_at(tmp_path, text):
    job = Job(tmp_path, text)
    (model,) = job.payload["models"]
    assert (model["name"], job.payload["problems"]) == ("Net", [])


def test_a_layer_that_is_made_of_the_module_around_it_is_searched_alone(tmp_path):
    job = Job(tmp_path, MADE_OF_SELF)
    assert "Layer" in [model["name"] for model in job.payload["models"]]


def test_a_function_of_pytorch_that_a_file_replaced_is_shown_under_its_own_name(tmp_path, monkeypatch):
    for name in ("relu", "softmax"):  # the job runs in this process, where later tests want PyTorch's again
        monkeypatch.setattr(torch.nn.functional, name, getattr(torch.nn.functional, name))
    job = Job(tmp_path, REPLACED)
    (model,) = job.payload["models"]
    assert (model["name"], job.payload["problems"]) == ("Net", [])
    assert job.payload["nodes"]["name"] == ["x", "fc", "relu", "softmax", "output"]
