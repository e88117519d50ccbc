"""A stand-in for the tracing job: runs the file, and makes a payload from lines `name  # shape f32[2, 3]` in it."""

import hashlib
import json
import re
import sys
from pathlib import Path

MARK = re.compile(r"^(?P<indent> *)(?P<name>\w+) = .*# shape (?P<dtype>\w+)\[(?P<shape>[\d, ]*)\]", re.MULTILINE)
EMPTY = {
    "sites": ("file", "line", "column", "end_line", "end_column", "name", "kind", "function"),
    "rows": ("site", "value", "model", "count", "scopes", "node"),
    "nodes": ("name", "op", "target", "mase_op", "mase_type", "family", "model", "scope", "value", "flops",
              "file", "line", "column", "end_line", "end_column", "blob"),
}  # fmt: skip


def trace(request, emit):
    emit({"event": "stage", "stage": "import", "message": request.path})
    data = request.texts[request.path] if request.path in request.texts else Path(request.path).read_bytes()
    before = set(sys.modules)
    namespace = {"__name__": "__mp_main__", "__file__": request.path, "REQUEST": request}
    sys.path.insert(0, str(Path(request.path).parent))
    exec(compile(data, request.path, "exec"), namespace)
    for payload in payloads(request, data, namespace, set(sys.modules) - before):
        emit({"event": "snapshot", "payload": payload})
    return namespace


def payloads(request, data, namespace, imported):
    payload = payload_of(request.path, data, request.generation)
    payload["fit"] = json.dumps({"fits": request.generation}).encode()
    payload["dependencies"] = [
        ["content", module.__file__, sha256(Path(module.__file__).read_bytes())]
        for name in imported
        if (module := sys.modules.get(name)) is not None
        and (getattr(module, "__file__", None) or "").startswith(request.folder)
    ]
    payload["preload"] = list(namespace.get("PRELOAD", ()))
    payload["problems"] = [
        {"file": request.path, "line": 1, "column": 0, "end_line": 1, "end_column": 1, "severity": severity,
         "code": code, "message": message, "related": [], "fixes": []}
        for severity, code, message in namespace.get("PROBLEMS", ())
    ]  # fmt: skip
    for path in namespace.get("LIBRARIES", ()):
        payload["files"].append({"path": path, "sha256": sha256(Path(path).read_bytes()), "library": True})
    payload["python"] = json.dumps(list(request.instrument))
    if namespace.get("TWO_STEPS"):
        yield {**payload, "complete": False}
    yield payload


def payload_of(path, data, generation=1, complete=True):
    marks = list(MARK.finditer(data.decode()))
    payload = {table: {name: [] for name in names} for table, names in EMPTY.items()}
    payload |= {"schema": 1, "file": path, "sha256": sha256(data), "generation": generation, "python": "", "torch": "",
                "seconds": 0.0, "complete": complete, "models": [], "values": [], "scopes": [[0, "", "Net"]],
                "problems": [], "unshown": [], "dependencies": [], "preload": [], "fit": None, "classes": [],
                "weights": [], "transforms": [], "unrun": [],
                "files": [{"path": path, "sha256": sha256(data), "library": False}]}  # fmt: skip
    for index, mark in enumerate(marks):
        line = data.decode()[: mark.start("name")].count("\n") + 1
        column = len(mark["indent"])
        row = (0, line, column, line, column + len(mark["name"]), mark["name"], 1, "")
        for name, value in zip(EMPTY["sites"], row, strict=True):
            payload["sites"][name].append(value)
        for name, value in zip(EMPTY["rows"], (index, index, -1, 1, [0], -1), strict=True):
            payload["rows"][name].append(value)
        shape = [int(one) for one in mark["shape"].split(",") if one.strip()]
        payload["values"].append([mark["dtype"], shape, None])
    return payload


def sha256(data):
    return hashlib.sha256(data).hexdigest()
