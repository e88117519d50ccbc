"""JSON schemas of declared types, so that any client can read what a function takes and gives."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

Schema = dict[str, Any]

_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"}, int: {"type": "integer"}, float: {"type": "number"}, bool: {"type": "boolean"},
    bytes: {"type": "string", "contentEncoding": "binary"}, type(None): {"type": "null"}, None: {"type": "null"},
    dict: {"type": "object"}, list: {"type": "array"}, tuple: {"type": "array"}, Any: {}, object: {},
}  # fmt: skip


def schema_of(kind: Any) -> Schema:
    """The JSON schema of a type: plain ones, list, dict, tuple, unions, Literal and TypedDict. TypeError for others."""
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if is_typeddict(kind):
        return _record(kind)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(one) for one in inner]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (list, tuple, Sequence):
        return {"type": "array", "items": schema_of(inner[0])}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": schema_of(inner[1])}
    if origin in (NotRequired, Required):
        return schema_of(inner[0])
    raise TypeError(f"{kind!r} has no JSON schema; declare it as a plain type, a list, a dict or a TypedDict")


def parameters_schema(params: Mapping[str, Any]) -> Schema:
    """The schema of a map of parameters; optional ones end in "?"."""
    properties = {key.removesuffix("?"): schema_of(kind) for key, kind in params.items()}
    required = [key for key in params if not key.endswith("?")]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _record(kind: Any) -> Schema:
    hints = get_type_hints(kind, include_extras=True)
    # Where annotations are texts, the class itself does not see what they say of single keys.
    required = [key for key in kind.__required_keys__ if get_origin(hints[key]) is not NotRequired]
    properties = {key: schema_of(one) for key, one in hints.items()}
    return {"type": "object", "properties": properties, "required": sorted(required)}
