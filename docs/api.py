"""The promised API in `docs/api.json`: `python -m docs.api` adds new parts, and refuses changes that break it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mase_server.daemon.api import API

FILE = Path(__file__).parent / "api.json"

Told = dict[str, Any]
#: Keys of a schema that hold other schemas, which are compared one by one.
_INNER = frozenset({"properties", "required", "items", "additionalProperties", "anyOf"})


def promised() -> Told:
    """Every method as last promised."""
    told: Told = json.loads(FILE.read_text(encoding="utf-8"))
    return told


def present() -> Told:
    """Every present method: {"since", "params", "result"} by its name; the last two are JSON schemas."""
    described = [method.described() for method in API]
    return {each["name"]: {key: each[key] for key in ("since", "params", "result")} for each in described}


def breakages(before: Told, now: Told) -> list[str]:
    """The parts of `before` that are missing or changed in `now`, in words; [] if the API has only grown."""
    found = [f"{name} is gone" for name in before if name not in now]
    for name in before.keys() & now.keys():
        old, new = before[name], now[name]
        if old["since"] != new["since"]:
            found.append(f"{name}: since was {old['since']}, now {new['since']}")
        for key in set(new["params"]["required"]) - set(old["params"]["required"]):
            found.append(f"{name}: the parameter {key} has to be given now")
        found += [f"{name}: params{text}" for text in _lost(old["params"], new["params"], required=False)]
        found += [f"{name}: result{text}" for text in _lost(old["result"], new["result"], required=True)]
    return sorted(found)


def _lost(old: Any, new: Any, *, required: bool, at: str = "") -> Iterator[str]:
    """List the breaking changes of a schema. required: does a key break the promise if it is now optional?"""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        if old != new:
            yield f"{at} was {json.dumps(old)}, now {json.dumps(new)}"
        return
    if {key: old[key] for key in old if key not in _INNER} != {key: new[key] for key in new if key not in _INNER}:
        yield f"{at} was {_kind(old)}, now {_kind(new)}"
        return
    now = new.get("properties", {})
    for key, schema in old.get("properties", {}).items():
        if key not in now:
            yield f"{at}.{key} is gone"
            continue
        if required and key in old["required"] and key not in new["required"]:
            yield f"{at}.{key} may be missing now"
        yield from _lost(schema, now[key], required=required, at=f"{at}.{key}")
    for key in ("items", "additionalProperties"):
        if key in old or key in new:
            yield from _lost(old.get(key), new.get(key), required=required, at=f"{at}[]")
    yield from _lost_choices(old.get("anyOf", []), new.get("anyOf", []), required=required, at=at)


def _lost_choices(old: list[Any], new: list[Any], *, required: bool, at: str) -> Iterator[str]:
    if len(old) != len(new):
        yield f"{at} was one of {len(old)} types, now of {len(new)}"
        return
    for one, other in zip(old, new, strict=True):
        yield from _lost(one, other, required=required, at=at)


def _kind(schema: Mapping[str, Any]) -> str:
    return str(schema.get("type", "anything"))


def written(api: Told) -> str:
    """The text of the file: a line for each method."""
    lines = [f"{json.dumps(name)}: {json.dumps(told, sort_keys=True)}" for name, told in sorted(api.items())]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Write the file, unless the present API breaks a promise."""
    now = present()
    if found := breakages(promised() if FILE.exists() else {}, now):
        sys.exit("the API only grows; not written:\n" + "\n".join(found))
    FILE.write_text(written(now), encoding="utf-8")


if __name__ == "__main__":
    main()
