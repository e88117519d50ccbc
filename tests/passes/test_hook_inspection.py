"""Hooks that a test puts on modules are the ones that are found."""

import functools

import torch
from torch import nn

from mase_server import MaseGraph, passes


def inspected(model):
    graph = MaseGraph(model, {"input": torch.randn(1, 4)})
    return passes.hook_inspection_analysis_pass(graph)[1]


def nested():
    return nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.ReLU())


def test_every_kind_of_hook_is_found_on_its_module():
    model = nested()

    def hook(*args):
        return None

    placed = {
        "forward": (model[0][0].register_forward_hook(hook), "0.0"),
        "forward_pre": (model[0].register_forward_pre_hook(hook), "0"),
        "backward": (model[1].register_full_backward_hook(hook), "1"),
        "backward_pre": (model.register_full_backward_pre_hook(hook), ""),
        "state_dict": (model[0]._register_state_dict_hook(hook), "0"),
        "load_state_dict": (model[1].register_load_state_dict_post_hook(hook), "1"),
    }
    found = inspected(model)
    expected = {f"{path}_{handle.id}": kind for kind, (handle, path) in placed.items()}
    assert found["kinds"] == expected
    for key, (number, function) in found["hooks"].items():
        assert key.endswith(f"_{number}")
        assert getattr(function, "hook", function) is hook
    assert found["hooked_forwards"] == {}


def test_two_hooks_on_one_module_are_two_and_removed_ones_are_gone():
    model = nested()
    handles = [model[1].register_forward_hook(lambda *args: None) for _ in range(2)]
    assert set(inspected(model)["hooks"]) == {f"1_{handle.id}" for handle in handles}
    handles[0].remove()
    assert set(inspected(model)["hooks"]) == {f"1_{handles[1].id}"}


def test_a_hook_on_every_module_is_told_by_itself():
    def everywhere(module, args):
        return None

    handle = nn.modules.module.register_module_forward_pre_hook(everywhere)
    try:
        found = inspected(nested())
    finally:
        handle.remove()
    assert found["everywhere"] == {f"_{handle.id}": (handle.id, everywhere)}
    assert "every module" in found["report"]
    assert inspected(nested())["everywhere"] == {}


def test_a_forward_that_was_exchanged_is_told():
    """As accelerate does it: the old forward is kept, and one of the instance's own calls it."""
    model = nested()
    layer = model[0][0]
    layer._old_forward = layer.forward

    @functools.wraps(layer.forward)
    def forward(*args, **kwargs):
        return layer._old_forward(*args, **kwargs)

    layer.forward = forward
    found = inspected(model)
    assert found["hooked_forwards"] == {"0.0": forward}
    assert "Linear.forward" in found["report"]


def test_a_model_without_hooks_has_none():
    assert inspected(nested())["hooks"] == {}
