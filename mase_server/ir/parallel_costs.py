"""The share of one of several devices, held and sent: data parallel, fully sharded, or with tensors split; on paper.

The recording is that of one device that holds everything. Here the share of a device is laid over what it held:

- ddp: each device holds all, and the buckets of gradients once more, and sends 2 (N - 1) / N of the gradients in a
  ring (torch.nn.parallel.DistributedDataParallel without gradient_as_bucket_view).
- fsdp: parameters, gradients and the optimizer's state are shared out. Gathered are the parameters outside of the
  blocks, two blocks, and in training the gradients of one (torch.distributed.fsdp.fully_shard on each block and on the
  model). Parameters are gathered twice in training, once in inference, and gradients scattered, each (N - 1) / N.
- tp: as `autosharding_analysis_pass` splits the model over N devices, whose communication it tells for a forward; the
  backward has that of each gradient.

The batch is the one that each device gets. Nothing is hidden behind computing.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from torch import nn

from mase_server.ops.types import TensorType

if TYPE_CHECKING:
    from mase_server.ir.graph import MaseGraph
    from mase_server.ir.run_costs import Held

KINDS = ("ddp", "fsdp", "tp")


def parse_parallel(text: str) -> dict[str, int]:
    """The devices of each kind, of a text such as `tp=8,fsdp=64`; ValueError."""
    found: dict[str, int] = {}
    for part in filter(None, text.replace(" ", "").split(",")):
        read = re.fullmatch(r"([a-z]+)=([1-9]\d*)", part)
        if read is None or read[1] not in KINDS or read[1] in found:
            raise ValueError(f"{part!r} is no way to use several devices; write {', '.join(f'{k}=8' for k in KINDS)}")
        found[read[1]] = int(read[2])
    if "ddp" in found and "fsdp" in found:
        raise ValueError("ddp and fsdp are two ways to split the same batch; name one, and its number of devices")
    return found


@dataclass(slots=True)
class Parallel:
    """The way a model lies on several devices. devices: of each kind, none for one alone.  training: is it trained?

    parameters: the share of them that a device has where tensors are split.  results, work: the same of what modules
    return and compute, by path.  tp_seconds: of communication.  gathered: bytes that a device holds beside its share.
    """

    devices: Mapping[str, int]
    training: bool
    parameters: float = 1.0
    results: Mapping[str, float] = field(default_factory=dict)
    work: Mapping[str, float] = field(default_factory=dict)
    tp_seconds: float = 0.0
    gathered: int = 0

    @classmethod
    def of(cls, text: str, training: bool) -> Parallel:
        """The plan that a text names; ValueError."""
        return cls(parse_parallel(text), training)

    def split(self, graph: MaseGraph, found: Mapping[str, Any]) -> None:
        """Split tensors by the result of `autosharding_analysis_pass` on the graph of the model."""
        count = self.devices.get("tp", 1)
        total = sum({id(each): each.nbytes for each in graph.module.parameters()}.values())
        self.parameters = min(1.0, found["memory_bytes"] / total) if total else 1.0
        self.tp_seconds = found["communication_seconds"] * (2 if self.training else 1)
        results: dict[str, list[tuple[float, float]]] = {}
        work: dict[str, list[tuple[float, float]]] = {}
        for node in graph.fx_graph.nodes:
            plan, kind, scope = found["plan"].get(node.name), node.meta.get("value"), node.meta.get("scope")
            if plan is None or not isinstance(kind, TensorType) or node.op in ("placeholder", "get_attr"):
                continue
            path = str(node.target) if node.op == "call_module" else scope.module_path if scope is not None else ""
            layouts = (plan["output"], *plan["inputs"], *plan["parameters"].values())
            for shares, is_split in ((results, "S" in layouts[0]), (work, any("S" in each for each in layouts))):
                shares.setdefault(path, []).append((kind.nbytes, kind.nbytes / count if is_split else kind.nbytes))
        self.results, self.work = _sum_shares(results), _sum_shares(work)

    def gather(self, model: nn.Module, blocks: Iterable[nn.Module]) -> None:
        """Find what a device holds beside its share. blocks: the parts that are gathered one after the other."""
        total = sum({id(each): each.nbytes for each in model.parameters()}.values())
        if "fsdp" in self.devices:
            sizes = [sum(each.nbytes for each in block.parameters()) for block in blocks]
            largest = max(sizes, default=0)
            total += largest * (3 if self.training else 2) - sum(sizes)
        elif "ddp" not in self.devices or not self.training:
            total = 0
        self.gathered = round(total * self.parameters)

    def share(self, held: Iterable[Held], owned: Container[str], split: Container[str]) -> None:
        """Leave of each storage what a device has of it. owned, split: kinds that are shared out, and that are split
        where tensors are."""
        for each in held:
            if each.kind in owned:
                each.bytes = round(each.bytes * self.owned)
            elif each.kind in split:
                each.bytes = round(each.bytes * find_share(self.results, each.place.module))

    @property
    def owned(self) -> float:
        """The share of parameters, gradients and the optimizer's state that a device owns."""
        return self.parameters / self.devices.get("fsdp", 1)

    def count_sent(self, parameters: int, gradients: int) -> int:
        """Bytes that each device sends in a step, without those of split tensors. parameters, gradients: of all."""
        if "fsdp" in self.devices:
            count = self.devices["fsdp"]
            whole = self.parameters * ((2 if self.training else 1) * parameters + gradients)
        else:
            count = self.devices.get("ddp", 1)
            whole = self.parameters * 2 * gradients
        return round(whole * (count - 1) / count)


def _sum_shares(sizes: Mapping[str, list[tuple[float, float]]]) -> dict[str, float]:
    return {
        path: sum(part for _, part in each) / (sum(whole for whole, _ in each) or 1) for path, each in sizes.items()
    }


def find_share(shares: Mapping[str, float], module: str) -> float:
    """The share of a module: its own, or that of the module around it."""
    while module not in shares and module:
        module = module.rpartition(".")[0]
    return shares.get(module, 1.0)


def follow_memory(held: Iterable[Held], steps: int) -> list[int]:
    """The bytes that are held after each operator."""
    changes = [0] * (steps + 1)
    for each in held:
        changes[each.born] += each.bytes
        if each.died is not None:
            changes[each.died] -= each.bytes
    return list(accumulate(changes))[:steps]
