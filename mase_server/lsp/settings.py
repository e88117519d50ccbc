"""What the editor says about how to trace and what to show: initialization options and the `mase` section."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mase_server.daemon.status import FolderSettings
from mase_server.observe.logs import LEVELS
from mase_server.steps import Step

SECTION = "mase"
_GIB = 1 << 30
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one workspace folder: what the daemon needs, and what is shown."""

    daemon: FolderSettings = field(default_factory=FolderSettings)
    expressions: bool = False
    log_level: str = "warning"


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ValueError("expected a number above 0")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a text")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("expected a whole number from 1")
    return value


def _level(value: Any) -> str:
    if value not in LEVELS:
        raise ValueError(f"expected one of {', '.join(LEVELS)}")
    return str(value)


def _path(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError("expected the path of a Python interpreter")
    return value or None


def _inputs(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise ValueError("expected a map from a model or a file pattern to input texts")
    return {str(key): (texts,) if isinstance(texts, str) else tuple(map(str, texts)) for key, texts in value.items()}


def _pipelines(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict) or not all(isinstance(texts, list) for texts in value.values()):
        raise ValueError("expected a map from a model or a file pattern to a list of passes")
    return {str(key): tuple(str(Step.parse(str(text))) for text in texts) for key, texts in value.items()}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its key inside the `mase` section, the part and field where it goes, and how its value is read."""

    key: str
    name: str
    read: Callable[[Any], Any]
    part: str = "daemon"


#: Every setting of the server; the editor's schema names the same keys.
SETTINGS = (
    Setting("interpreter", "interpreter", _path),
    Setting("runMain", "run_main", _boolean),
    Setting("inputs", "inputs", _inputs),
    Setting("limits.seconds", "time_limit", _number),
    Setting("limits.memory", "memory_limit", lambda value: int(_number(value) * _GIB)),
    Setting("pipelines", "pipelines", _pipelines),
    Setting("passes.seconds", "pass_seconds", _number),
    Setting("hints.library", "library_hints", _boolean),
    Setting("hints.expressions", "expressions", _boolean, part="shown"),
    Setting("log.level", "log_level", _level, part="shown"),
    Setting("verilog.precision", "precision", _text, part="build"),
    Setting("verilog.data", "data", _text, part="build"),
    Setting("verilog.multipliers", "multipliers", _count, part="build"),
    Setting("verilog.interval", "interval", _count, part="build"),
    Setting("verilog.maxMultipliers", "max_multipliers", _count, part="build"),
    Setting("verilog.maxMemoryBits", "max_memory_bits", _count, part="build"),
)


def parse(section: Any, base: Settings) -> Settings:
    """`base` with what `section`, a folder's `mase` section, says; a value of the wrong kind is logged and left."""
    found: dict[str, dict[str, Any]] = {"daemon": {}, "shown": {}, "build": {}}
    for setting in SETTINGS:
        value = _lookup(section, setting.key)
        if value is None:
            continue
        try:
            found[setting.part][setting.name] = setting.read(value)
        except ValueError as error:
            _LOG.warning("setting %s.%s is %r: %s; it is ignored", SECTION, setting.key, value, error)
    daemon = found["daemon"]
    if daemon.get("interpreter", "") is None:
        del daemon["interpreter"]
    if found["build"]:
        daemon["build"] = replace(base.daemon.build, **found["build"])
    return replace(base, daemon=replace(base.daemon, **daemon), **found["shown"])


def _lookup(section: Any, key: str) -> Any:
    if isinstance(section, Mapping) and key in section:
        return section[key]
    for part in key.split("."):
        if not isinstance(section, Mapping):
            return None
        section = section.get(part)
    return section
