"""Pages on what the command line prints as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from docs.library import grid
from mase_server.building import EMISSION_KEYS, OPERATION_KEYS, SIMULATION_KEYS
from mase_server.cli import report
from mase_server.snapshot import KINDS, MODEL_KEYS

#: What the JSON of `mase-server shapes` has for each file.
FILE_KEYS = {
    "file": "the path as it was given",
    "python": "version of the interpreter that ran it; null where nothing was traced",
    "torch": "version of its torch; null where nothing was traced",
    "seconds": "how long importing and tracing took",
    "models": "a list, see below",
    "tensors": "a list, see below",
    "problems": "a list, see below",
}
TENSOR_KEYS = {
    "line": "from 1", "column": "from 0, in Unicode code points",
    "end_line": "of the end", "end_column": "of the end, exclusive",
    "name": 'the bound name; "" for returned values and expressions',
    "kind": f"{', '.join(KINDS[:-1])}; {KINDS[-1]} with `--all`",
    "function": 'qualified name of the function around it; "" at module level',
    "values": "each distinct value that was seen there, see below",
}  # fmt: skip
VALUE_KEYS = {
    "dtype": "short name of the element type",
    "shape": "sizes in this run",
    "symbols": 'what each dimension is, e.g. `["B", "T", "768"]`; null where sizes were not varied',
    "model": "index into `models`",
    "count": "how often it was seen",
    "scopes": "paths of the modules in which it was seen",
}
#: What the JSON of `mase-server apply` has.
APPLIED_KEYS = {
    "file": "the path as it was given",
    "model": "the title of the model; null where there is none",
    "steps": "what was applied, in order, see below",
    "failure": "why the next step was not applied; null where all were",
    "warning": "why errors were not measured; null where they were",
    "inputs": 'on which inputs the errors were measured; "" where they were not',
    "weights": 'whose weights they were; "" where nothing was measured',
    "summary": "of the whole model, see below; empty where nothing was applied",
    "layers": "the nodes that passes did something to, in order of execution, see below",
    "problems": "diagnostics of the file, as in [the JSON of `shapes`](shapes-json.md)",
    "code": "the transformed graph as Python, with `--show code` alone",
}
STEP_KEYS = {
    "text": "the step as pipelines have it", "title": "the pass's title", "seconds": "that it took",
    "info": "what it did, in words", "report": "the text that a report writes, else null",
}  # fmt: skip
SUMMARY_KEYS = {
    "nodes": "of the graph: [before, after]", "parameters": "how many: [before, after]",
    "parameter_bytes": "their size: [before, after]", "data_bits": "bits of a value on average: [before, after]",
    "weight_bits": "bits of a weight on average: [before, after]",
    "sqnr": 'signal to quantisation noise of the output in dB; "inf" where it is unchanged, null where not measured',
    "max_error": "the largest absolute difference of the output; null where not measured",
    "saturated": "the share of all rounded values that their formats do not hold, 0 to 1; null where not measured",
}  # fmt: skip
LAYER_KEYS = {
    "name": "of the node", "path": "of the layer that it calls, else of the module it stands in",
    "mase_op": "MASE's operator", "family": "of operators: conv, matmul, shape, ...",
    "format": "number format of its result, else null", "bits": "of an element in this format, else null",
    "sqnr": "as above, of its result", "max_error": "as above, of its result",
    "saturated": "as above, of its parameters and its result",
    "note": "what became of a node that is gone, else null",
}  # fmt: skip
#: What the JSON of `mase-server verilog` has beside EMISSION_KEYS, which are missing where nothing could be emitted.
VERILOG_KEYS = {
    "file": "the path as it was given",
    "simulation": "see below; null where none was asked for",
    "synthesis": "see below; null where none was asked for, or where it failed",
    "results": "with `--vectors`, the .npz file with the integers that the hardware gave; else null",
    "problems": "diagnostics of the file, as in [the JSON of `shapes`](shapes-json.md)",
    "failure": "why there is no emission, or no synthesis; else null",
}

#: What tables of the program say in the program's own words.
_IN_WORDS = {
    "build": "what was asked for: precision, data, multipliers, interval, scope, and the ceilings",
    "folder": "the absolute path that it was written to; null where that was nowhere",
    "operations": "a list in the order of the data, see below",
    "accuracy": 'what the hardware loses: `sqnr` (dB, "inf" where nothing differs), `max_error`, `saturated` (the '
    "share of values that their formats do not hold, 0 to 1), `inputs` (on what), `calibrated` (on what open formats "
    "were chosen), `problem`; null each where it is not known; {} where nothing is emitted",
    "totals": "the estimates of what has hardware, see below; {} where there is none as it was asked for",
    "unsupported": "what is without hardware, and so not in `text`: a list of maps with `node`, `operator`, `why` and "
    "the `nodes` that it stands for",
    "refusal": "why nothing was emitted (nothing has hardware, a budget, a ceiling); else null",
    "kind": "what it computes: linear, conv2d, ...",
    "rows": "rows of its nodes in the table of the trace",
    "lines": "where it is in `text`: a list of [first, last], from 1, both included",
    "estimate": "see below; {} where there is no hardware as it was asked for",
}
_SIMULATION_IN_WORDS = {
    "status": '"equal", "different", "stood still" (nothing moved any more), or "failed" (there was no comparison)',
    "cycles_per_vector": "from the last beat of the first result to that of the last, over the others; null for one",
    "cycles": "from the end of reset to the last beat",
    "first": "the first mismatch: `output`, `vector`, `element` (row-major, from 0), `expected` and `got`; else null",
    "folder": "where it ran; null where that is thrown away",
    "seconds": "`build` and `run`",
    "log": "what is wrong beside integers; the tool's own words, where it failed",
}
#: Of an operation without `interval` and `bottlenecks`, of the whole without `cycles`.
ESTIMATE_MEANINGS = {
    "multipliers": "of 18 x 18 bits", "luts": "look-up tables of four inputs",
    "memory_bits": "of weights, buffers and tables", "cycles": "of one operation, from one sample to the next",
    "interval": "of the whole, cycles from one sample to the next",
    "latency": "of the whole, cycles from the first beat of a sample to the last of its result; of an operation, to its"
    " own first beat",
    "bottlenecks": "of the whole, the names of the slowest operations",
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
    models = {key: MODEL_KEYS[key] for key in report._MODEL}
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
