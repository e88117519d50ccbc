"""The promised API in `docs/api.json`: `python -m docs.api` adds new parts, and refuses changes that break it.

What exists stays, unless a published version named another one, later than itself, in `until`: then that version may
lack it. Words of an `enum` and keys of results may be added.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mase_server import __version__
from mase_server.daemon.api import API
from mase_server.daemon.methods import parameters_schema, schema_of
from mase_server.protocol.answers.files import CONNECTION, NOTIFICATIONS
from mase_server.protocol.codes import ERRORS
from mase_server.protocol.records import PROTOCOL, VALUE_SCHEMA

FILE = Path(__file__).parent / "api.json"

Told = dict[str, Any]
#: Keys of a schema that hold other schemas, which are compared one by one.
_INNER = frozenset({"properties", "required", "items", "additionalProperties", "anyOf", "enum"})
#: Keys that tell of the end of a parameter or a key.
_END = frozenset({"until", "deprecated"})


def promised() -> Told:
    """Every method and notification as last promised."""
    told: Told = json.loads(FILE.read_text(encoding="utf-8"))
    return dict(told["methods"])


def present() -> Told:
    """Every present method and notification: {"since", "until", "params", "result"} by its name.

    The last two are JSON schemas; of a notification, `params` is what it holds, and there is no `result`.
    """
    found: Told = {
        name: {"since": "0.1", "until": None, "params": parameters_schema(params), "result": schema_of(gives)}
        for name, (params, gives, _) in CONNECTION.items()
    }
    for method in API:
        told: Told = {**method.described()}
        told["result"].pop("$defs", None)
        found[method.name] = {key: told[key] for key in ("since", "until", "params", "result")}
    return found


def notifications() -> Told:
    """The schemas of what each notification may hold, by its name."""
    return {name: {"anyOf": [schema_of(kind) for kind in kinds]} for name, kinds in NOTIFICATIONS.items()}


def breakages(before: Told, now: Told, version: str = __version__) -> list[str]:
    """The parts of `before` that are missing or changed in `now`, in words; [] if `version` keeps every promise."""
    found = [f"{name} is gone" for name in before if name not in now and not _is_over(before[name], version)]
    for name in before.keys() & now.keys():
        old, new = before[name], now[name]
        if old["since"] != new["since"]:
            found.append(f"{name}: since was {old['since']}, now {new['since']}")
        if new.get("until") != old.get("until") and _is_over(new, version):
            found.append(f"{name}: until is {new['until']}, which is not later than {version}")
        for key in set(new["params"]["required"]) - set(old["params"]["required"]):
            found.append(f"{name}: the parameter {key} has to be given now")
        found += [f"{name}: params{text}" for text in _lost(old["params"], new["params"], version, required=False)]
        found += [f"{name}: result{text}" for text in _lost(old["result"], new["result"], version, required=True)]
    return sorted(found)


def _is_over(told: Told, version: str) -> bool:
    """May this version lack it?"""
    return bool(told.get("until")) and _numbers(version) >= _numbers(told["until"])


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _lost(old: Any, new: Any, version: str, *, required: bool, at: str = "") -> Iterator[str]:
    """List the breaking changes of a schema. required: is it a result, of which less may not be told?"""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        if old != new:
            yield f"{at} was {json.dumps(old)}, now {json.dumps(new)}"
        return
    if required and (old == {} or (old == {"type": "string"} and "enum" in new)):
        return  # more is told than was promised
    if _own(old) != _own(new):
        yield f"{at} was {_kind(old)}, now {_kind(new)}"
        return
    if gone := [word for word in old.get("enum", []) if word not in new.get("enum", [])]:
        yield f"{at} is never {gone[0]!r} now"
    now = new.get("properties", {})
    for key, schema in old.get("properties", {}).items():
        if key not in now:
            if not _is_over(schema, version):
                yield f"{at}.{key} is gone"
            continue
        if required and key in old["required"] and key not in new["required"]:
            yield f"{at}.{key} may be missing now"
        yield from _lost(schema, now[key], version, required=required, at=f"{at}.{key}")
    for key in ("items", "additionalProperties"):
        if key in old or key in new:
            yield from _lost(old.get(key), new.get(key), version, required=required, at=f"{at}[]")
    choices = (old.get("anyOf", []), new.get("anyOf", []))
    yield from _lost_choices(*choices, version, required=required, at=at)


def _lost_choices(old: list[Any], new: list[Any], version: str, *, required: bool, at: str) -> Iterator[str]:
    if len(old) != len(new):
        yield f"{at} was one of {len(old)} types, now of {len(new)}"
        return
    for one, other in zip(old, new, strict=True):
        yield from _lost(one, other, version, required=required, at=at)


def _own(schema: Mapping[str, Any]) -> Told:
    """What a schema says of itself."""
    return {key: told for key, told in schema.items() if key not in _INNER | _END}


def _kind(schema: Mapping[str, Any]) -> str:
    return str(schema.get("type", "anything"))


def written(api: Told) -> str:
    """The text of the file: a line for each method, notification and error."""
    errors = {code: {"meaning": meaning, "next": step} for code, (meaning, step) in ERRORS.items()}
    parts = {"methods": api, "notifications": notifications(), "errors": errors, "$defs": {"Value": VALUE_SCHEMA}}
    texts = [f'"protocol": {PROTOCOL}']
    for title, part in parts.items():
        lines = [f"{json.dumps(name)}: {json.dumps(told, sort_keys=True)}" for name, told in sorted(part.items())]
        texts.append(f"{json.dumps(title)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(texts) + "\n}\n"


def main() -> None:
    """Write the file, unless the present API breaks a promise."""
    now = present()
    if found := breakages(promised() if FILE.exists() else {}, now):
        sys.exit("the API only grows; not written:\n" + "\n".join(found))
    FILE.write_text(written(now), encoding="utf-8")


if __name__ == "__main__":
    main()
