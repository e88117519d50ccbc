"""GPTQ for the layers of a module, by way of its graph."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from mase_server.ir.graph import MaseGraph
from mase_server.passes.data import load
from mase_server.passes.data.batches import raw_batches
from mase_server.passes.gptq.running import Chosen, choose
from mase_server.passes.gptq.solver import Options
from mase_server.passes.module.choosing import Choice
from mase_server.passes.weighted import exposed, require_values, weighted
from mase_server.suggestions import suggest
from mase_server.tracing.values import fields_of

_OPTIONS = ("damping", "block", "act_order")


def chosen_weights(network: nn.Module, choices: Sequence[Choice], given: Any) -> tuple[dict[str, Chosen], str]:
    """The weights of layers by path, and on what inputs they were chosen, in words. The network is not changed.

    given: True, or {"data", "samples", "damping", "block", "act_order"} as gptq_transform_pass has them; a first batch
    of data is the example that the network is recorded on.  ValueError for anything else, and for weights on meta.
    """
    settings: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    for key in settings:
        if key not in (known := ("data", "samples", *_OPTIONS)):
            raise ValueError(f"quantize_module: gptq has no {key!r}{suggest(key, known, 'it takes')}")
    data = settings.get("data")
    batches = None if data is None else list(raw_batches(data))
    graph = MaseGraph(network, _example(network, batches[0]) if batches else None)
    formats = {f"{choice.path}.weight": choice.config.format_of("weight") for choice in choices}
    layers = [each for each in weighted(graph.fx_graph, graph.module) if formats.get(each.path) is not None]
    for layer in layers:
        require_values("gptq", layer, layer.weight(graph.module))
    opened = [exposed(layer, graph.module) for layer in layers]
    wanted = {layer.node: format for layer in opened if (format := formats[layer.path]) is not None}
    options = Options(**{key: settings[key] for key in _OPTIONS if settings.get(key) is not None})
    loaded = load(graph, batches, settings.get("samples"))
    return choose(graph, wanted, opened, loaded, options), loaded.words


def _example(network: nn.Module, batch: Any) -> dict[str, Any]:
    """A batch by the names of forward's parameters, without what forward does not take."""
    parameters = list(inspect.signature(network.forward).parameters)
    fields = None if isinstance(batch, Tensor | tuple | list) else fields_of(batch)
    if fields is not None:
        return {str(name): value for name, value in fields.items() if str(name) in parameters}
    items = batch if isinstance(batch, tuple | list) else (batch,)
    required = [
        name for name, each in inspect.signature(network.forward).parameters.items() if each.default is each.empty
    ]
    return dict(zip(required or parameters, items, strict=False))
