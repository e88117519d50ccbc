"""What the tests of checkpoints share: graphs around one module, equality, and forged files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from mase_server import MaseGraph
from mase_server.ir.checkpoint import FORMAT, MAGIC, export
from mase_server.protocol import wire

Body = dict[str, Any]


def around(module: nn.Module, inputs: int = 1, keywords: tuple[str, ...] = ()) -> MaseGraph:
    """A graph that calls one module."""
    graph = fx.Graph()
    given = [graph.placeholder(f"x{number}") for number in range(inputs)]
    named = {name: graph.placeholder(name) for name in keywords}
    graph.output(graph.call_module("m", tuple(given), named))
    model = fx.GraphModule({"m": module}, graph)
    model.train(module.training)
    return MaseGraph(model, skip_init_metadata=True)


def small(training: bool = False) -> MaseGraph:
    """A recorded graph with a leaf of each usual sort, a parameter of its own and a buffer."""

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.GELU())
            self.scale = nn.Parameter(torch.full((6,), 0.5))
            self.register_buffer("shift", torch.arange(6.0))

        def forward(self, x):
            y = self.layers(x) * self.scale + self.shift
            return torch.softmax(y, -1), y.view(y.size(0), 2, 3).transpose(1, 2)[:, 1:]

    torch.manual_seed(3)
    return MaseGraph(Small().train(training), {"x": torch.randn(5, 4)})


def body_of(path: Path) -> Body:
    """The content of `{path}.mz`."""
    found: Body = wire.unpack(Path(f"{path}.mz").read_bytes()[len(MAGIC) + 36 :])
    return found


def write_body(path: Path, packed: bytes, version: int = FORMAT) -> None:
    """Write `{path}.mz` with a right checksum, whatever it holds."""
    head = MAGIC + version.to_bytes(4, "little") + hashlib.sha256(packed).digest()
    Path(f"{path}.mz").write_bytes(head + packed)


def forge(folder: Path, change: Callable[[Body], Any], graph: MaseGraph | None = None) -> Path:
    """A checkpoint whose content was changed by somebody who knows the format."""
    path = folder / "forged"
    export(graph or small(), path)
    body = body_of(path)
    change(body)
    write_body(path, wire.pack(body))
    return path


def write_tensors_again(path: Path, data: bytes) -> None:
    """Replace `{path}.pt`, and its digest in `{path}.mz`."""
    Path(f"{path}.pt").write_bytes(data)
    body = body_of(path)
    body["digest"] = hashlib.sha256(data).hexdigest()
    write_body(path, wire.pack(body))
