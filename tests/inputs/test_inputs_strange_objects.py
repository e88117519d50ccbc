"""Objects that do something when they are looked at: properties that raise, modules that import themselves."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("text", [PROPERTY, LAZY], ids=["a property that raises", "a module that imports itself"])
def test_nothing_of_a_file_is_lost_because_it_was_looked_at(tmp_path, text):
    job = Job(tmp_path, text)
    (model,) = job.payload["models"]
    assert (model["name"], job.payload["problems"]) == ("Net", [])
