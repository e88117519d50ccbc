"""`[tool.mase]` in a project's pyproject.toml: rules, paths, inputs and limits for every command and every client.

```toml
[tool.mase]
exclude = ["third_party", "legacy/*.py"]     # files that `check` leaves out

[tool.mase.rules]
missing-package = "off"                      # off, information, warning or error, for `check`

[tool.mase.inputs]
Net = "x: f32[1, 784]"                       # as the setting mase.inputs

[tool.mase.limits]
seconds = 60                                 # of each file's trace
memory = 8                                   # GiB

[tool.mase.devices.board]                    # for `costs`: bytes, and bytes and operations a second
memory = 8e9
bandwidth = 68e9
rates = { f16 = 10e12, i8 = 20e12 }

[tool.mase.parts.half]                       # for `verilog --target half`
luts = 40_000
multipliers = 78
memory_bits = 1_900_000
clock = 75e6
```
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from mase_server.daemon.status import FolderSettings
from mase_server.protocol.codes import CODES
from mase_server.reading import read_file
from mase_server.suggestions import suggest

#: What a rule may be: the severity of its problems, or "off".
RULES = ("off", "information", "warning", "error")
_KEYS = ("exclude", "rules", "inputs", "limits", "devices", "parts")
_LIMITS = ("seconds", "memory")
_DEFAULT = FolderSettings()


class ProjectError(Exception):
    """The table cannot be used; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Project:
    """The table of one project, at its root. rules: code -> severity or "off".  inputs: as in `FolderSettings`.

    exclude: patterns of paths relative to the root.  seconds, memory: limits of a trace; memory in bytes.
    devices, parts: as in `devices.toml` and `parts.toml`.
    """

    root: str = ""
    rules: Mapping[str, str] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    seconds: float | None = None
    memory: int | None = None
    devices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def excludes(self, file: str) -> bool:
        """Is a file, or a folder that it is in, left out?"""
        path = Path(file)
        if not self.exclude or not path.is_relative_to(self.root):
            return False
        parts = path.relative_to(self.root).parts
        places = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        return any(fnmatch.fnmatch(place, each.rstrip("/")) for place in places for each in self.exclude)


def read_project(folder: str) -> Project:
    """The table of the project in a folder, empty if it has none; ProjectError."""
    path = Path(folder, "pyproject.toml")
    try:
        found = path.stat()
    except OSError:
        return Project(folder)
    return _read_project(folder, path, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=64)
def _read_project(folder: str, path: Path, changed: int, size: int) -> Project:
    try:
        whole = tomllib.loads(read_file(str(path)).decode())
    except OSError:
        return Project(folder)
    except ValueError as error:
        raise ProjectError(f"{path}: {error}") from error
    tool = whole.get("tool", {})
    table = tool.get("mase", {}) if isinstance(tool, dict) else {}
    try:
        return _make_project(folder, table)
    except ProjectError as error:
        raise ProjectError(f"{path}: [tool.mase] {error}") from error


def apply_project(settings: FolderSettings, folder: str) -> FolderSettings:
    """The settings of a folder with those of its project, where the client has set nothing else."""
    try:
        project = read_project(folder)
    except ProjectError:
        return settings  # `check` reports it
    if project.seconds is not None and settings.time_limit == _DEFAULT.time_limit:
        settings = replace(settings, time_limit=project.seconds)
    if project.memory is not None and settings.memory_limit == _DEFAULT.memory_limit:
        settings = replace(settings, memory_limit=project.memory)
    return replace(settings, inputs={**project.inputs, **settings.inputs}) if project.inputs else settings


def _make_project(root: str, table: Any) -> Project:
    table = _read_table("", table, _KEYS)
    rules = _read_table("rules", table.get("rules", {}), CODES)
    for code, rule in rules.items():
        if rule not in RULES:
            raise ProjectError(f"rules.{code}: expected one of {', '.join(RULES)}, not {rule!r}")
    limits = _read_table("limits", table.get("limits", {}), _LIMITS)
    for name, value in limits.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ProjectError(f"limits.{name}: expected a number above 0, not {value!r}")
    inputs = _read_table("inputs", table.get("inputs", {}))
    texts = {name: _read_texts(f"inputs.{name}", value) for name, value in inputs.items()}
    memory = int(limits["memory"] * (1 << 30)) if "memory" in limits else None
    devices, parts = (
        {name: _read_table(f"{kind}.{name}", value) for name, value in _read_table(kind, table.get(kind, {})).items()}
        for kind in ("devices", "parts")
    )
    exclude = _read_texts("exclude", table.get("exclude", []))
    return Project(root, rules, exclude, texts, limits.get("seconds"), memory, devices, parts)


def _read_table(name: str, value: Any, known: Iterable[str] = ()) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ProjectError(f"{name}: expected a table, not {value!r}".lstrip(": "))
    for key in value if (names := list(known)) else ():
        if key not in names:
            raise ProjectError(f"has no {'.'.join(filter(None, (name, key)))!r}{suggest(key, names)}")
    return value


def _read_texts(name: str, value: Any) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ProjectError(f"{name}: expected a text or a list of texts, not {value!r}")
    return tuple(found)
