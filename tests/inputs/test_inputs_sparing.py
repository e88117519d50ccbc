"""A guess that takes all memory is one that failed: the next is tried, and the process goes on.

Ground truth: the kernel's own limit, and a model that plain Python can only make with the sizes that are found.
"""

import resource
import sys
import textwrap

import pytest
from searching import problems_in

from mase_server.protocol.request import TraceRequest
from mase_server.tracing.models.find import find_models
from mase_server.tracing.models.found import Found, plain_hooks
from mase_server.tracing.recording.rungs import limit_memory
from mase_server.tracing.recording.shadow import Shadows

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process' memory by setrlimit")

GREEDY = """
    import torch
    from torch import nn


    class Tower(nn.Module):
        def __init__(self, levels, heads):
            super().__init__()
            many = [levels * (1 << 36), heads]
            assert isinstance(heads, tuple) and len(heads) == 3, "heads must be a tuple of 3"
            self.layer = nn.Linear(4, sum(heads))

        def forward(self, x):
            return self.layer(x)
"""


def test_more_than_the_room_is_a_memory_error_that_says_how_much():
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(MemoryError, match=r"^it takes more than 0\.25 GiB of memory$"), limit_memory(1 << 28):
        bytearray(1 << 32)  # far more than what earlier tests freed and the allocator kept: that needs no new memory
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    with limit_memory(1 << 28):
        assert len(bytearray(1 << 20)) == 1 << 20


def test_what_a_person_says_in_a_memory_error_stays():
    with pytest.raises(MemoryError, match="no room for the table"), limit_memory():
        raise MemoryError("no room for the table")


def test_a_limit_that_was_there_is_kept():
    before, most = resource.getrlimit(resource.RLIMIT_AS)
    with limit_memory(1 << 28):
        outer = resource.getrlimit(resource.RLIMIT_AS)[0]
        with limit_memory(1 << 40):
            assert resource.getrlimit(resource.RLIMIT_AS)[0] == outer
        assert resource.getrlimit(resource.RLIMIT_AS)[0] == outer
    assert resource.getrlimit(resource.RLIMIT_AS) == (before, most)


@pytest.mark.parametrize("lists", ["levels", "heads"])
def test_a_greedy_guess_is_told_as_a_failed_one_and_ends_nothing(tmp_path, lists):
    text = textwrap.dedent(GREEDY.replace("levels * (1 << 36)", "[0] * (1 << 36)" if lists == "heads" else "levels"))
    path = tmp_path / "net.py"
    path.write_text(text)
    request = TraceRequest(str(path), str(tmp_path), "", 1)
    found = list(find_models(request, text, plain_hooks(Shadows())))
    if lists == "levels":
        (model,) = found
        assert isinstance(model, Found)
        assert len(model.arguments["heads"]) == 3
    else:
        (problem,) = problems_in(found)
        assert problem.code == "no-arguments"
        assert "MemoryError: it takes more than 2 GiB of memory" in problem.message
