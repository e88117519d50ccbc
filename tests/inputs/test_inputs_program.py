"""The surroundings of a person's file: its place among packages, its arguments, and a calm process."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from mase_server.protocol.request import TraceOptions
from mase_server.tracing.execution.program import (
    Place,
    as_program,
    calm_environment,
    compile_plainly,
    execute_program,
    module_for,
    modules_kept,
)
from mase_server.tracing.inputs.comments import ClassWishes, Wishes
from mase_server.tracing.inputs.text import SpecError
from mase_server.tracing.models.constructions import Constructions


@pytest.fixture
def packages(tmp_path):
    """root/outer/inner/{__init__,model}.py and root/script.py"""
    inner = tmp_path / "outer_of_program_test" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").write_text("")
    (inner / "model.py").write_text("from . import __name__ as package\n")
    (tmp_path / "script.py").write_text("value = (__name__, __package__, __file__)\n")
    return tmp_path


def test_the_place_of_a_file_follows_its_packages(packages):
    inner = packages / "outer_of_program_test" / "inner"
    model = Place.of(str(inner / "model.py"))
    assert model == Place("outer_of_program_test.inner.model", "outer_of_program_test.inner", str(packages))
    assert Place.of(str(inner / "__init__.py")).name == "outer_of_program_test.inner"
    assert Place.of(str(packages / "script.py")) == Place("script", "", str(packages))


@pytest.mark.parametrize("name", ["random", "types", "torch"])
def test_a_file_named_like_a_library_does_not_take_its_place(tmp_path, name):
    assert Place.of(str(tmp_path / f"{name}.py")).name == f"mase_file_{name}"


def test_a_file_of_a_package_runs_inside_it(packages):
    path = str(packages / "outer_of_program_test" / "inner" / "model.py")
    before = set(sys.modules)
    try:
        with as_program(path), modules_kept("__main__"):
            module = module_for(path, "__main__")
            execute_program(compile_plainly(path), module)
        assert module.package == "outer_of_program_test.inner"
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]


def test_a_script_has_no_package(packages):
    path = str(packages / "script.py")
    with modules_kept("__main__"):
        module = module_for(path, "__main__")
        assert sys.modules["__main__"] is module
        execute_program(compile_plainly(path), module)
    assert module.value == ("__main__", None, path)
    assert sys.modules["__main__"] is not module


def test_the_surroundings_are_put_back_also_after_an_error(packages):
    before = (Path.cwd(), list(sys.path), sys.argv, dict(os.environ), torch.compile, DataLoader.__init__)
    with suppress(ZeroDivisionError), as_program(str(packages / "script.py")):
        assert (Path.cwd(), sys.argv) == (packages, [str(packages / "script.py")])
        raise ZeroDivisionError
    assert (Path.cwd(), list(sys.path), sys.argv, dict(os.environ), torch.compile, DataLoader.__init__) == before


def test_compiling_and_scripting_give_the_model_itself():
    model = nn.Linear(2, 2)
    with calm_environment():
        assert torch.compile(model) is model
        assert torch.compile(mode="reduce-overhead")(model) is model
        assert torch.jit.script(model) is model
        model.compile()
    assert model._compiled_call_impl is None


def test_distributions_do_not_ask_for_values(monkeypatch):
    # torch.compile switches the checks off for the rest of its process.
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    with calm_environment():
        torch.distributions.Categorical(logits=torch.empty(3, 4, device="meta"))
    with pytest.raises(ValueError, match="constraint"):
        torch.distributions.Categorical(probs=torch.tensor([-1.0, 2.0]))


@pytest.mark.parametrize("positional", [True, False])
def test_a_loader_loads_in_the_process_whatever_was_asked(positional):
    data = TensorDataset(torch.arange(6))
    with calm_environment():
        if positional:
            loader = DataLoader(data, 2, False, None, None, 4)
        else:
            loader = DataLoader(
                data, batch_size=2, num_workers=4, persistent_workers=True, prefetch_factor=8, timeout=5
            )
        assert [batch.tolist() for (batch,) in loader] == [[0, 1], [2, 3], [4, 5]]
    assert (loader.num_workers, loader.persistent_workers) == (0, False)


def test_nested_recordings_hear_only_their_own_constructions():
    outer, inner = Constructions(), Constructions()
    with outer.recording():
        first = nn.Linear(1, 2)
        with inner.recording():
            second = nn.Linear(3, 4)
        third = nn.Sequential(first)
    assert [made.model for made in outer] == [first, third]
    assert [made.model for made in inner] == [second]
    assert outer.children() == {id(first)}


def test_options_become_a_constructor_call():
    wishes = Wishes(TraceOptions(arguments={"width": "3", "name": "'a'"}), [])
    assert wishes.of("Net").constructor("Net") == "Net(width=3, name='a')"
    assert ClassWishes().constructor("Net") is None
    assert not ClassWishes().any()


def test_options_that_cannot_be_read_are_an_error_at_their_place():
    with pytest.raises(SpecError) as caught:
        Wishes(TraceOptions(inputs=("x: f32[1]", "y: f32[")), [])
    assert caught.value.line == 2
