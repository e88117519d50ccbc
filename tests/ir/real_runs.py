"""Real runs of models, inference or a step of training, and what PyTorch's own allocator says of them."""

import gc

import torch
from torch.profiler import ProfilerActivity, profile

from mase_server.ir.run_costs import OPTIMIZERS, find_loss


def make_step(model, args, kwargs, train, foreach=False):
    """A function that runs the model once, and the state of its optimizer; the first run is over."""
    free = [each for each in model.parameters() if each.requires_grad]
    optimizer = OPTIMIZERS[train](free, lr=1e-4, foreach=foreach) if train else None

    def step():
        if optimizer is None:
            with torch.no_grad():
                model(*args, **kwargs)
            return
        result = model(*args, **kwargs)
        loss, _ = find_loss(result)
        loss.backward()
        del result, loss
        optimizer.step()
        optimizer.zero_grad()

    step()
    gc.collect()
    states = [] if optimizer is None else optimizer.state.values()
    return step, [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]


def measure_allocations(step):
    """The most bytes that a call holds beside what was there, from the events of the CPU's allocator."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak
