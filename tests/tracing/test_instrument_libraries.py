"""Library functions that exist already start to report, and compute what they did before."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from mase_server.protocol.snapshot import KINDS
from mase_server.tracing.importing.importer import reinstrument_libraries
from mase_server.tracing.importing.rewrite import Site
from tests.ground_truth.record import Recorder

LIBRARY = '''
import functools

def wrapped(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)
    return call

def hidden(function):
    def call(*args):
        return function(*args)
    return call

class Base:
    def go(self, x): return x

class Layer(Base):
    """Doc."""
    @wrapped
    def forward(self, x):
        y = x
        return y
    @hidden
    def other(self, x):
        z = x
        return z
    @property
    def size(self):
        w = list((1,))
        return w
    @classmethod
    def make(cls, x): return x
    @staticmethod
    def plain(x): return x
    def go(self, x): return super().go(x)

def pair():
    f, g = (lambda x: x), (lambda x: x)
    return f, g

def closed(k):
    def inner(x):
        t = x, k
        return t
    return inner

made = closed([3])
first, second = pair()
table = {"k": [lambda v: v]}
'''


class Reports:
    def __init__(self) -> None:
        self.seen: list[tuple[Site, Any]] = []
        self.sites: dict[str, tuple[Site, ...]] = {}

    def __call__(self, path: str, sites: tuple[Site, ...]) -> Callable[[int, Any], Any]:
        self.sites[path] = sites

        def report(index: int, value: Any) -> Any:
            self.seen.append((sites[index], value))
            return value

        return report

    @property
    def names(self) -> list[tuple[str, str]]:
        return [(site.function, site.name) for site, _ in self.seen if site.name]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "somelibrary.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("somelibrary")
    del sys.modules["somelibrary"]


def use(library: ModuleType) -> list[Any]:
    layer = library.Layer()
    value = [1]
    return [
        layer.forward(value), layer.other(value), layer.size, layer.make(value), layer.plain(value), layer.go(value),
        library.made(value), library.closed(value)(value), library.first(value), library.second(value),
        library.table["k"][0](value), library.pair()[1](value),
    ]  # fmt: skip


@pytest.mark.parametrize("frozen", [False, True])
def test_functions_methods_and_closures_report_and_return_the_same(library: ModuleType, frozen: bool) -> None:
    before = use(library)
    reports = Reports()
    if frozen:  # what a warm parent does before it forks: gc.get_objects no longer tells
        gc.freeze()
    try:
        reinstrument_libraries([str(library.__file__)], reports)
    finally:
        gc.unfreeze()
    assert use(library) == before
    functions = {name for name, _ in reports.names}
    assert functions >= {
        "wrapped.<locals>.call", "hidden.<locals>.call", "Base.go", "Layer.forward", "Layer.other", "Layer.size",
        "Layer.make", "Layer.plain", "Layer.go", "pair", "pair.<locals>.<lambda>", "closed", "closed.<locals>.inner",
        "<lambda>",
    }  # fmt: skip
    columns = {site.column for site, _ in reports.seen if site.function == "pair.<locals>.<lambda>"}
    assert len(columns) == 4


def test_a_file_that_changed_since_it_was_imported_is_left_alone(library: ModuleType) -> None:
    path = Path(str(library.__file__))
    path.write_text(LIBRARY.replace("y = x\n", "y = x, x\n"))
    reports = Reports()
    reinstrument_libraries([str(path)], reports)
    assert library.Layer().forward([1]) == [1]
    assert ("Layer.forward", "y") not in reports.names


def test_a_file_that_nobody_imported_does_nothing(tmp_path: Path) -> None:
    path = tmp_path / "unused.py"
    path.write_text("def f(x): return x\n")
    reports = Reports()
    reinstrument_libraries([str(path)], reports)
    assert reports.sites == {}


transformers = pytest.importorskip("transformers")


def bert() -> tuple[str, Any]:
    import transformers.models.bert.modeling_bert as modeling

    config = transformers.BertConfig(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=2, intermediate_size=32, vocab_size=50
    )
    return modeling.__file__, modeling.BertForMaskedLM(config).eval()


def llama() -> tuple[str, Any]:
    import transformers.models.llama.modeling_llama as modeling

    config = transformers.LlamaConfig(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=2, intermediate_size=32, vocab_size=50
    )
    return modeling.__file__, modeling.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("build", [bert, llama])
def test_every_tensor_that_a_transformers_forward_binds_is_reported(build: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    path, model = build()
    ids = torch.randint(0, 50, (2, 7))
    truth = Recorder(Path(path))
    with torch.no_grad(), truth.recording():
        before = model(ids).logits
    reports = Reports()
    reinstrument_libraries([path], reports, str(tmp_path / "cache"))
    with torch.no_grad():
        after = model(ids).logits
    assert torch.equal(before, after)
    reported = {
        (site.line, site.column, site.end_column, KINDS[site.kind], site.name, tuple(value.shape))
        for site, value in reports.seen
        if isinstance(value, torch.Tensor) and KINDS[site.kind] != "expression"
    }
    expected = {
        (place.line, place.column, place.end_column, place.kind, place.name, shape[1])
        for place, values in truth.truth.items()
        for shape in values
        if isinstance(shape, tuple) and shape[0] not in ("tuple", "dict", "python")
    }
    assert len(expected) > 40
    assert expected <= reported
