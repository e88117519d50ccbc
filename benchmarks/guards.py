"""What the guards of a graph cost: a forward with them and one without, in pairs of one run.

    python benchmarks/guards.py [pairs]

Prints the median of the ratios for a BERT-like and a Llama-like model; at most 1.02 is promised.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time

import torch
import transformers
from torch import fx, nn

from mase_server import MaseGraph
from mase_server.tracing.guards import check_value

SIZES = {"vocab_size": 1000, "hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4}


def bert() -> nn.Module:
    return transformers.BertModel(transformers.BertConfig(**SIZES, num_hidden_layers=4)).eval()


def llama() -> nn.Module:
    return transformers.LlamaModel(transformers.LlamaConfig(**SIZES, num_hidden_layers=4, use_cache=False)).eval()


def without_guards(module: fx.GraphModule) -> fx.GraphModule:
    """A copy of a graph that checks nothing."""
    bare = copy.deepcopy(module)
    for node in list(bare.graph.nodes):
        if node.target is check_value:
            bare.graph.erase_node(node)
    bare.graph.set_codegen(fx.graph.CodeGen())
    bare.recompile()
    return bare


def seconds(module: nn.Module, values: tuple[torch.Tensor, ...]) -> float:
    started = time.perf_counter()
    module(*values)
    return time.perf_counter() - started


def main(pairs: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for make in (bert, llama):
        ids = torch.randint(0, 1000, (2, 64))
        graph = MaseGraph(make(), {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
        guarded, bare, values = graph.model, without_guards(graph.model), (ids, torch.ones_like(ids))
        ratios = []
        with torch.inference_mode():
            for turn in range(pairs + 3):
                order = (guarded, bare) if turn % 2 else (bare, guarded)
                took = {id(each): seconds(each, values) for each in order}
                if turn >= 3:
                    ratios.append(took[id(guarded)] / took[id(bare)])
        print(f"{make.__name__}: {len(graph.guards)} guards, median ratio {statistics.median(ratios):.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
