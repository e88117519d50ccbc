"""Pages about the JSON output of the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from docs.library import grid
from mase_server.building import EMISSION_KEYS, OPERATION_KEYS, SIMULATION_KEYS
from mase_server.cli import showing
from mase_server.protocol.snapshot import KINDS, MODEL_KEYS

#: The keys of the JSON of `mase-server shapes` for each file.
FILE_KEYS = {
    "file": "the path as it was given",
    "python": "version of the interpreter that ran it; null if nothing was traced",
    "torch": "version of its torch; null if nothing was traced",
    "seconds": "how long importing and tracing took",
    "complete": "false if a model is missing, or a forward did not run to its end",
    "models": "a list, see below",
    "tensors": "a list, see below",
    "problems": "a list, see below",
    "unshown": "the models without shapes: `name`, `why` it is not shown and the `step` that would help, and the place "
    "of its class (`line`, `column`, `end_line`, `end_column`)",
}
TENSOR_KEYS = {
    "line": "from 1", "column": "from 0, in Unicode code points",
    "end_line": "of the end", "end_column": "of the end, exclusive",
    "name": 'the bound name; "" for returned values and expressions',
    "kind": f"{', '.join(KINDS[:-1])}; {KINDS[-1]} with `--all`",
    "function": 'qualified name of the function around it; "" at module level',
    "values": "each distinct value seen there, see below",
}  # fmt: skip
VALUE_KEYS = {
    "dtype": "short name of the element type",
    "shape": "sizes in this run",
    "symbols": 'the meaning of each dimension, e.g. `["B", "T", "768"]`; null if sizes were not varied',
    "model": "index into `models`",
    "count": "how often it was seen",
    "scopes": "paths of the modules in which it was seen",
}
#: The keys of the JSON of `mase-server apply`.
APPLIED_KEYS = {
    "file": "the path as it was given",
    "model": "the title of the model; null if there is none",
    "steps": "the applied steps, in order, see below",
    "failure": "why the next step was not applied; null if all were",
    "warning": "why errors were not measured; null if they were",
    "inputs": 'the inputs on which the errors were measured; "" if they were not',
    "weights": 'the origin of the weights; "" if nothing was measured',
    "summary": "of the whole model, see below; empty if nothing was applied",
    "layers": "the nodes that passes changed or measured, in order of execution, see below",
    "problems": "diagnostics of the file, as in [the JSON of `shapes`](shapes-json.md)",
    "code": "the transformed graph as Python; only with `--show code`",
}
STEP_KEYS = {
    "text": "the step as in pipelines", "title": "the pass's title", "seconds": "its duration",
    "info": "its result, in words", "report": "the text of a pass that writes a report, else null",
}  # fmt: skip
SUMMARY_KEYS = {
    "nodes": "of the graph: [before, after]", "parameters": "their number: [before, after]",
    "parameter_bytes": "their size: [before, after]", "data_bits": "bits of a value on average: [before, after]",
    "weight_bits": "bits of a weight on average: [before, after]",
    "sqnr": 'signal to quantisation noise of the output in dB; "inf" if it is unchanged, null if not measured',
    "max_error": "the largest absolute difference of the output; null if not measured",
    "saturated": "the share of all rounded values outside their formats, 0 to 1; null if not measured",
    "trainable": "parameters that learn: [before, after]; absent if all learn",
    "ranks": "of LoRA adapters, each once; absent without any",
    "sparsity": "share of the weights of linear and convolution layers that pruning took away; absent if none",
}  # fmt: skip
LAYER_KEYS = {
    "name": "of the node", "path": "of the layer that it calls, else of the module around it",
    "mase_op": "MASE's operator", "family": "of operators: conv, matmul, shape, ...",
    "format": "number format of its result, else null", "bits": "of an element in this format, else null",
    "sqnr": "as above, of its result", "max_error": "as above, of its result",
    "saturated": "as above, of its parameters and its result",
    "note": "what passes did to it, in words, or why they left it as it was; else null",
}  # fmt: skip
#: The keys of the JSON of `mase-server verilog` besides EMISSION_KEYS, which are missing if nothing could be emitted.
VERILOG_KEYS = {
    "file": "the path as it was given",
    "simulation": "see below; null if none was requested",
    "synthesis": "see below; null if none was requested, or if it failed",
    "results": "with `--vectors`, the .npz file with the hardware's integers; else null",
    "problems": "diagnostics of the file, as in [the JSON of `shapes`](shapes-json.md)",
    "failure": "why there is no emission, or no synthesis; else null",
}

#: Entries of the program's own tables, reworded for readers of JSON.
_IN_WORDS = {
    "build": "the request: precision, data, multipliers, interval, scope, and the maxima",
    "folder": "the absolute path of the written folder; null if nothing was written",
    "operations": "a list in the order of the data, see below",
    "accuracy": 'the loss of accuracy: `sqnr` (dB, "inf" if nothing differs), `max_error`, `saturated` (the share of '
    "values outside their formats, 0 to 1), `inputs` (of the measurement), `calibrated` (the data that calibrated "
    "formats), `problem`; unknown ones are null; {} if nothing is emitted",
    "totals": "the estimates of the nodes with hardware, see below; {} if the request allows none",
    "unsupported": "the nodes without hardware, which are not in `text`: a list of maps with `node`, `operator`, `why` "
    "and the `nodes` that it stands for",
    "refusal": "why nothing was emitted (no node has hardware, a budget, a maximum); else null",
    "kind": "its operation: linear, conv2d, ...",
    "rows": "rows of its nodes in the table of the trace",
    "lines": "its place in `text`: a list of [first, last], from 1, inclusive",
    "estimate": "see below; {} if the request allows no hardware",
}
_SIMULATION_IN_WORDS = {
    "status": '"equal", "different", "stood still" (nothing moved any more), or "failed" (there was no comparison)',
    "cycles_per_vector": "from the first result's last beat to the last result's, per further result; null for one",
    "cycles": "from the end of reset to the last beat",
    "first": "the first mismatch: `output`, `vector`, `element` (row-major, from 0), `expected` and `got`; else null",
    "folder": "the folder of the run; null if it was temporary",
    "seconds": "`build` and `run`",
    "log": "faults other than wrong integers; the tool's own message, if it failed",
}
#: An operation has no `interval` and `bottlenecks`, the whole has no `cycles`.
ESTIMATE_MEANINGS = {
    "multipliers": "of 18 x 18 bits", "luts": "look-up tables of four inputs",
    "memory_bits": "of weights, buffers and tables", "cycles": "of one operation, from one sample to the next",
    "interval": "of the whole, cycles from one sample to the next, on average",
    "latency": "of the whole, cycles from the first beat of a sample to the last of its result; of an operation, to its"
    " own first beat",
    "utilisation": "of an operation, the share of the whole's interval in which it works",
    "bottlenecks": "of the whole, the names of the slowest operations",
    "reads": "cycles of a sample in which weights are read from a memory outside; 0 for weights on the chip",
    "waits": "of an operation, whether it waits for its weights from outside",
    "waiting": "of the whole, the names of the operations that do",
    "clock": "of the whole with `--target`, cycles a second",
    "samples": "of the whole with `--target`, samples a second",
    "rams": "of a chip: the memories that are written, each size as [words, bits of a word, number of them]",
    "copies": "of the whole, the number of copies that take samples in turn; missing for one",
}  # fmt: skip
SYNTHESIS_KEYS = {
    "luts": "look-up tables of four inputs, with those in carries and small memories", "flip_flops": "registers",
    "multipliers": "blocks of 18 x 18 bits", "memories": "blocks of 16 kbit", "cells": "all cells of ECP5 by kind",
}  # fmt: skip
PROBLEM_KEYS = {
    "line": "from 1", "column": "from 0, in Unicode code points",
    "end_line": "of the end", "end_column": "of the end, exclusive",
    "severity": "error, warning, information or hint",
    "code": "one of the [codes](diagnostics.md)",
    "message": "what happened, and what to do next",
}  # fmt: skip


def apply() -> Iterator[str]:
    """The page on the JSON of `mase-server apply`."""
    yield (
        "# The JSON of `mase-server apply --format json`\n\nOne object. [The command](cli.md); "
        "[the passes](passes.md).\n"
    )
    tables = (
        ("The object", APPLIED_KEYS), ("One of `steps`", STEP_KEYS), ("`summary`", SUMMARY_KEYS),
        ("One of `layers`", LAYER_KEYS),
    )  # fmt: skip
    for title, meanings in tables:
        rows = ((f"`{key}`", told) for key, told in meanings.items())
        yield f"## {title}\n\n{grid(('key', 'meaning'), rows)}"


def verilog() -> Iterator[str]:
    """The page on the JSON of `mase-server verilog`."""
    yield (
        "# The JSON of `mase-server verilog --format json`\n\nOne object. [The command](cli.md); "
        "[hardware](../hardware.md).\n"
    )
    tables = (
        ("The object", _worded(EMISSION_KEYS, _IN_WORDS) | VERILOG_KEYS),
        ("One of `operations`", _worded(OPERATION_KEYS, _IN_WORDS)),
        ("`totals`, and `estimate` of an operation", ESTIMATE_MEANINGS),
        ("`simulation`", _worded(SIMULATION_KEYS, _SIMULATION_IN_WORDS)),
        ("`synthesis`", SYNTHESIS_KEYS),
    )  # fmt: skip
    for title, meanings in tables:
        rows = ((f"`{key}`", told) for key, told in meanings.items())
        yield f"## {title}\n\n{grid(('key', 'meaning'), rows)}"
    yield (
        "The file of `results` has for each output an array of int64, [samples, ...], and its format: value = integer "
        "/ 2^fraction_width. Its keys are `data_out_0`, `data_out_0_width`, `data_out_0_fraction_width`, and so on.\n"
    )


def _worded(meanings: Mapping[str, str], words: Mapping[str, str]) -> dict[str, str]:
    return {key: words.get(key, told) for key, told in meanings.items()}


def shapes() -> Iterator[str]:
    """The page on the JSON of `mase-server shapes`."""
    yield (
        "# The JSON of `mase-server shapes --format json`\n\nOne object for each file, one file a line. "
        "[The command](cli.md).\n"
    )
    models = {key: MODEL_KEYS[key] for key in showing._MODEL}
    tables = (
        ("A file", FILE_KEYS), ("One of `models`", models), ("One of `tensors`", TENSOR_KEYS),
        ("One of `values`", VALUE_KEYS), ("One of `problems`", PROBLEM_KEYS),
    )  # fmt: skip
    for title, meanings in tables:
        rows = ((f"`{key}`", told) for key, told in meanings.items())
        yield f"## {title}\n\n{grid(('key', 'meaning'), rows)}"
    yield (
        'A value that holds several tensors is `{"tuple": [...]}` or `{"dict": {...}}` with `model`, `count` and '
        "`scopes` beside it, nested as in the code.\n"
    )
