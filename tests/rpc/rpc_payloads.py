"""Graphs that nobody traced: a chain of blocks, each a module with two layers, as a trace child would send them."""

import hashlib

from mase_server.protocol.snapshot import COLUMNS, HEAD_KEYS
from mase_server.protocol.wire import pack

#: One block: (operator, family, FLOPs, leaf module or "").
BLOCK = (("linear", "matmul", 200, "fc"), ("relu", "activation", 10, ""), ("linear", "matmul", 300, "out"))


def payload_of(path, blocks=2, text="", generation=1, names=("Net",), problems=()):
    payload = {key: [] for key in HEAD_KEYS} | {table: {c: [] for c in columns} for table, columns in COLUMNS.items()}
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    payload |= {"schema": 1, "file": path, "sha256": sha256, "generation": generation, "python": "3", "torch": "2"}
    payload |= {"seconds": 0.01, "complete": True, "fit": b""}
    payload["files"] = [{"path": path, "sha256": sha256, "library": False}]
    payload["models"] = [model(name, 1 + 3 * blocks) for name in names]
    payload["values"] = [["f32", [2, 10], ["B", "10"]], ["f32", [2, 20], ["B", "20"]]]
    payload["problems"] = [problem(path, *each) for each in problems]
    for index in range(len(names)):
        _graph(payload, index, blocks)
    return payload


def model(name, nodes):
    place = {"file_index": 0, "line": 1, "column": 6, "end_line": 1, "end_column": 6 + len(name)}
    facts = {"name": name, "arguments": {}, "inputs": {"x": ["f32", [2, 10], ["B", "10"]]}, "inputs_from": "main"}
    numbers = {"nodes": nodes, "parameters": 410, "parameter_bytes": 1640, "flops": 510 * (nodes - 1) // 3}
    told = {"arguments_from": "default", "found": "as the file calls it", "mode": "eval", "rung": "meta"}
    comment = {"text": "mase: x: f32[B=2, 10]", "inputs": "mase: x: f32[B=2, 10]", "why": "", "line": 1, "column": 0}
    rest = {
        "generic": True,
        "complete": True,
        "symbols": {"B": 2},
        "fixed": [],
        "guards": [],
        "seconds": 0.01,
        "rest": False,
        "comment": comment,
    }
    return {**place, **facts, **numbers, **told, **rest, "sets": [], "set": "", "builders": [], "builder": ""}


def problem(path, line, severity, message):
    place = {"file": path, "line": line, "column": 0, "end_line": line, "end_column": 4}
    return {**place, "severity": severity, "code": "shape-mismatch", "message": message, "related": [], "fixes": []}


def _graph(payload, index, blocks):
    scopes = payload["scopes"]
    root = len(scopes)
    scopes.append([index, "", "Net"])
    first = len(payload["nodes"]["name"])
    _node(payload, index, ("x", "placeholder", "x", "placeholder", "other", 0, root, 0), [], 1)
    for block in range(blocks):
        scope = len(scopes)
        scopes.append([index, f"blocks.{block}", "Block"])
        for place, (operator, family, flops, leaf) in enumerate(BLOCK):
            last = len(payload["nodes"]["name"]) - 1
            target = f"blocks.{block}.{leaf}" if leaf else operator
            row = (f"{operator}_{block}_{place}", "call_module" if leaf else "call_function", target, operator, family)
            _node(payload, index, (*row, flops, scope, 1 if leaf == "fc" else 0), [last], 2 + 3 * block + place)
    assert len(payload["nodes"]["name"]) == first + 1 + 3 * blocks


def _node(payload, model_index, row, inputs, line):
    name, op, target, mase_op, family, flops, scope, value = row
    place = {"file": 0, "line": line, "column": 4, "end_line": line, "end_column": 9}
    facts = {"name": name, "op": op, "target": target, "mase_op": mase_op, "mase_type": "module", "family": family}
    blob = pack({"input_nodes": inputs, "bytes": 8, "args": [["data_in_0", "f32[2, 10]"]]})
    cells = {**facts, **place, "model": model_index, "scope": scope, "value": value, "flops": flops, "blob": blob}
    for column, cells_of in payload["nodes"].items():
        cells_of.append(cells[column])
    if name != "x":
        sites, rows = payload["sites"], payload["rows"]
        site = (0, line, 0, line, 1, name, 1, "Net.forward")
        for column, cell in zip(sites, site, strict=True):
            sites[column].append(cell)
        number = len(payload["nodes"]["name"]) - 1
        row_cells = (len(sites["file"]) - 1, value, model_index, 1, [scope], number)
        for column, cell in zip(rows, row_cells, strict=True):
            rows[column].append(cell)
