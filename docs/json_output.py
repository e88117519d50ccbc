"""Pages on what the command line prints as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from docs.library import grid
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
}  # fmt: skip
LAYER_KEYS = {
    "name": "of the node", "path": "of the layer that it calls, else of the module it stands in",
    "mase_op": "MASE's operator", "family": "of operators: conv, matmul, shape, ...",
    "format": "number format of its result, else null", "bits": "of an element in this format, else null",
    "sqnr": "as above, of its result", "max_error": "as above, of its result",
    "note": "what became of a node that is gone, else null",
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
