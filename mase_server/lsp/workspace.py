"""Workspace folders: their settings, and whether the user trusts them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams

from mase_server.daemon import trust
from mase_server.daemon.status import FolderSettings
from mase_server.lsp.calls import ask_person
from mase_server.private import describe_os_error
from mase_server.protocol.arguments import Step
from mase_server.protocol.records import Plain
from mase_server.telemetry.logs import LEVELS

if TYPE_CHECKING:
    from mase_server.lsp.server import Server


# The editor's settings for tracing and display: initialization options and the `mase` section.

SECTION = "mase"
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one workspace folder: those for the daemon, and those for display.

    update_delay: milliseconds.
    """

    daemon: FolderSettings = field(default_factory=FolderSettings)
    expressions: bool = False
    hint_position: str = "name"
    hint_detail: str = "dtype"
    dim_not_run: bool = False
    compiled_diagnostics: bool = False
    costs: Mapping[str, str] = field(default_factory=dict)
    log_level: str = "warning"
    update: str = "onType"
    update_delay: float = 40.0
    update_runs_module: bool = False


def _read_boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _read_positive_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ValueError("expected a number above 0")
    return float(value)


def _read_text_value(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a text")
    return value


def _read_format(value: Any) -> str:
    if not _read_text_value(value):
        raise ValueError("expected a number format")
    return str(value)


def _read_count(value: Any) -> int:
    return _read_whole(value, 1)


def _read_budget(value: Any) -> int:
    return _read_whole(value, 0)


def _read_whole(value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"expected a whole number from {least}")
    return value


def _read_one_of(*known: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in known:
            raise ValueError(f"expected one of {', '.join(known)}")
        return str(value)

    return read


def _read_interpreter_path(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError("expected the path of a Python interpreter")
    return value or None


def _read_inputs(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise ValueError("expected a map from a model or a file pattern to input texts")
    return {str(key): (texts,) if isinstance(texts, str) else tuple(map(str, texts)) for key, texts in value.items()}


def _read_pipelines(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict) or not all(isinstance(texts, list) for texts in value.values()):
        raise ValueError("expected a map from a model or a file pattern to a list of passes")
    return {str(key): tuple(str(Step.parse(str(text))) for text in texts) for key, texts in value.items()}


def _read_texts(*keys: str) -> Callable[[Any], dict[str, str]]:
    def read(value: Any) -> dict[str, str]:
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            raise ValueError("expected a map of texts")
        if wrong := value.keys() - set(keys):
            raise ValueError(f"there is no {min(wrong)!r}; there are {', '.join(keys)}")
        return value

    return read


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its key in the `mase` section, the part and field it is stored in, and how its value is read."""

    key: str
    name: str
    read: Callable[[Any], Any]
    part: str = "daemon"


#: Every setting of the server; the editor's schema names the same keys.
SETTINGS = (
    Setting("interpreter", "interpreter", _read_interpreter_path),
    Setting("runMain", "run_main", _read_boolean),
    Setting("inputs", "inputs", _read_inputs),
    Setting("limits.seconds", "time_limit", _read_positive_number),
    Setting("limits.memory", "memory_limit", lambda value: int(_read_positive_number(value) * _GIB)),
    Setting("pipelines", "pipelines", _read_pipelines),
    Setting("passes.seconds", "pass_seconds", _read_positive_number),
    Setting("hints.library", "library_hints", _read_boolean),
    Setting("hints.expressions", "expressions", _read_boolean, part="shown"),
    Setting("hints.position", "hint_position", _read_one_of("name", "line"), part="shown"),
    Setting("hints.detail", "hint_detail", _read_one_of("shape", "dtype", "everything"), part="shown"),
    Setting("dimNotRun", "dim_not_run", _read_boolean, part="shown"),
    Setting("compiled.diagnostics", "compiled_diagnostics", _read_boolean, part="shown"),
    Setting("costs", "costs", _read_texts("device", "train", "dtype"), part="shown"),
    Setting("update", "update", _read_one_of("onType", "onSave"), part="shown"),
    Setting("updateDelay", "update_delay", _read_positive_number, part="shown"),
    Setting("updateRunsModule", "update_runs_module", _read_boolean, part="shown"),
    Setting("log.level", "log_level", _read_one_of(*LEVELS), part="shown"),
    Setting("verilog.precision", "precision", _read_format, part="build"),
    Setting("verilog.data", "data", _read_text_value, part="build"),
    Setting("verilog.multipliers", "multipliers", _read_budget, part="build"),
    Setting("verilog.interval", "interval", _read_count, part="build"),
    Setting("verilog.maxMultipliers", "max_multipliers", _read_count, part="build"),
    Setting("verilog.maxMemoryBits", "max_memory_bits", _read_count, part="build"),
)


def parse_settings(section: Any, base: Settings) -> Settings:
    """`base` updated with `section`, a folder's `mase` section; a value of the wrong kind is logged and ignored."""
    found: dict[str, dict[str, Any]] = {"daemon": {}, "shown": {}, "build": {}}
    for setting in SETTINGS:
        value = _lookup_setting(section, setting.key)
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


def _lookup_setting(section: Any, key: str) -> Any:
    if isinstance(section, Mapping) and key in section:
        return section[key]
    for part in key.split("."):
        if not isinstance(section, Mapping):
            return None
        section = section.get(part)
    return section


#: Maximum seconds that opened files wait for the client's settings.
_PATIENCE = 2.0
_TRUST = "Trust"
_LOG = logging.getLogger(__name__)


class Folders:
    """The workspace folders of one client, by path.

    trusted: a command-line flag says that the user trusts what this editor opens. The client's word on trust covers its
    workspace folders. Neither covers files that another client names, because the daemon serves other tools, too. If
    nothing is specified, the user is asked once per folder; the answer is kept in `state_dir`.
    """

    def __init__(self, server: Server, *, state_dir: Path, trusted: bool) -> None:
        self._server = server
        self._state_dir = state_dir
        self._opened = trusted
        #: URI -> path of earlier folders: a link among them that is changed later is not followed.
        self._paths_of_mention: dict[str, str | None] = {}
        self._told: bool | None = None
        self._interpreters: str | dict[str, str] | None = None
        self._sections: dict[str, Plain] = {}
        self._options: Any = None
        self._pushed: Any = None
        #: What was read of all this, by folder.
        self._settings: dict[str, Settings] = {}
        self._asked: set[str] = set()
        #: Folders whose trust could not be stored: it lasts until this server ends.
        self._granted: set[str] = set()
        self._known = asyncio.Event()

    def initialize(self, params: lsp.InitializeParams) -> None:
        """Read the initialization options: `trusted`, `interpreter`, and settings by their own names."""
        options = params.initialization_options
        options = options if isinstance(options, dict) else {}
        if isinstance(options.get("trusted"), bool):
            self._told = options["trusted"]
        interpreter = options.get("interpreter")
        if isinstance(interpreter, dict):
            self._interpreters = {self._server.path_of(uri): path for uri, path in interpreter.items()}
        elif isinstance(interpreter, str):
            self._interpreters = interpreter
        self._options = {key: value for key, value in options.items() if key not in {"trusted", "interpreter"}}
        self._settings.clear()

    def folder_of(self, path: str) -> str:
        """The innermost workspace folder of a file; the file's directory if it is in none."""
        homes = [folder for folder in self.paths() if Path(path).is_relative_to(folder)]
        return max(homes, key=len) if homes else str(Path(path).parent)

    @property
    def log_level(self) -> str:
        """The setting that decides which lines the log has."""
        return self.settings_of(next(iter(self.paths()), "")).log_level

    def paths(self) -> list[str]:
        """The paths of the workspace folders."""
        return list(self._by_path())

    def uri_under(self, path: str) -> str | None:
        """The URI of a file, written below the URI of its innermost workspace folder; None if no folder holds it."""
        folders = self._by_path()
        homes = [folder for folder in folders if folder != path and Path(path).is_relative_to(folder)]
        if not homes:
            return None
        home = max(homes, key=len)
        return f"{folders[home].rstrip('/')}/{quote(Path(path).relative_to(home).as_posix())}"

    def _by_path(self) -> dict[str, str]:
        """The path of each workspace folder -> its URI."""
        # pygls' keys are URIs decoded once: if they were decoded again, `%252e%252e` would become `..`.
        uris = [folder.uri for folder in self._server.workspace.folders.values()]
        for uri in uris:
            if uri not in self._paths_of_mention:
                self._paths_of_mention[uri] = self._path_of(uri)
        found = {self._paths_of_mention[uri]: uri for uri in uris}
        return {path: uri for path, uri in found.items() if path is not None}

    def _path_of(self, uri: str) -> str | None:
        try:
            return self._server.path_of(uri)
        except JsonRpcInvalidParams as error:
            _LOG.warning("a workspace folder is left out: %s", error)
            return None

    def settings_of(self, folder: str) -> Settings:
        """The settings of a folder: the client's latest, over the initialization options."""
        if folder not in self._settings:
            settings = parse_settings({"interpreter": self._interpreter_of(folder)}, Settings())
            for section in (self._options, self._pushed, self._sections.get(folder)):
                settings = parse_settings(section, settings)
            self._settings[folder] = settings
        return self._settings[folder]

    def trusts(self, path: str) -> bool:
        """May the file `path` run? Decided by the client or the command line, else by the stored answer."""
        said = self._said_of(path)
        if said is not None:
            return said
        folder = self.folder_of(path)
        return folder in self._granted or trust.is_trusted(self._state_dir, folder)

    def _said_of(self, path: str) -> bool | None:
        """The trust in a file as specified before any question; None if unspecified.

        A client that trusts its workspace does not thereby trust a file that somebody opens from elsewhere. Without any
        folder there is no workspace, and the client's word covers its open documents. The command line's word covers
        both.
        """
        own, opened = self.paths(), self._server.documents.get(path) is not None
        inside = any(Path(path).is_relative_to(each) for each in own)
        if self._opened and (inside or opened):
            return True
        return self._told if inside or not self._told or (opened and not own) else None

    async def ready(self) -> None:
        """Wait until the settings are known, or the client's time to send them is over."""
        try:
            await asyncio.wait_for(self._known.wait(), _PATIENCE)
        except TimeoutError:
            _LOG.warning("the client did not tell its settings within %s s; the defaults are used", _PATIENCE)
            self._known.set()

    async def pull(self) -> None:
        """Request the settings of every folder from the client, and act on changes."""
        before: dict[str, Settings] = {}
        if self._server.can("workspace", "configuration"):
            folders = self._by_path()
            items = [lsp.ConfigurationItem(uri, SECTION) for uri in (*folders.values(), None)]
            *sections, everywhere = await self._server.workspace_configuration_async(lsp.ConfigurationParams(items))
            if self._known.is_set():  # else the open files still wait, and begin with these settings
                before = {folder: self.settings_of(folder) for folder in self._open_folders()}
            self._pushed = _drop_open_settings(everywhere)
            self._sections = {
                folder: _drop_open_settings(section) for folder, section in zip(folders, sections, strict=True)
            }
            self._settings.clear()
        self._known.set()
        self._act_on_changes(before)

    def told(self, settings: Any) -> None:
        """Take settings that a client pushes because the server cannot request them."""
        before = {folder: self.settings_of(folder) for folder in self._open_folders()}
        self._pushed = _drop_open_settings(settings.get(SECTION) if isinstance(settings, dict) else None)
        self._settings.clear()
        self._act_on_changes(before)

    async def ask_for_trust(self, path: str) -> None:
        """Ask the user once whether to trust a file's folder, if nothing is specified and the file would run."""
        folder = self.folder_of(path)
        if self._said_of(path) is not None or folder in self._asked or self.trusts(path):
            return
        status = await self._server.daemon.wait(path)
        if status.state == "untrusted" and folder not in self._asked:
            self._asked.add(folder)
            await self._ask_for_trust(folder)

    async def _ask_for_trust(self, folder: str) -> None:
        question = " ".join(
            [
                f"To show tensor shapes, MASE runs the model files of {trust.name_folder(folder)}.",
                *trust.warn_of_folder(folder),
                "Do you trust this folder?",
            ]
        )
        if await ask_person(self._server, question, [_TRUST, "Not now"], lsp.MessageType.Warning) == _TRUST:
            self._grant_trust(folder)
            self._retrace_folder(folder)

    def _grant_trust(self, folder: str) -> None:
        try:
            trust.grant_trust(self._state_dir, folder)
        except OSError as error:
            self._granted.add(folder)
            told = f"{trust.name_folder(folder)} is trusted until this server ends: {describe_os_error(error)}"
            self._server.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Warning, told))

    def _open_folders(self) -> set[str]:
        return {self.folder_of(path) for path in self._server.documents.paths()}

    def _act_on_changes(self, before: Mapping[str, Settings]) -> None:
        """Restart a folder's workers if their interpreter changed; trace again if any other setting did."""
        level = self.log_level
        if self._server.logs is not None:
            # Without a setting, the level of the command line applies.
            self._server.logs.level(None if level == Settings().log_level else level)
        for folder, old in before.items():
            new = self.settings_of(folder)
            if new.daemon.interpreter != old.daemon.interpreter:
                self._server.daemon.environment_changed(folder)
            elif new.daemon != old.daemon:
                self._retrace_folder(folder)
            elif new != old:
                self._server.listener.refresh()
                self._server.costs.settings_changed()

    def _retrace_folder(self, folder: str) -> None:
        for path in self._server.documents.paths():
            if self.folder_of(path) == folder:
                self._server.daemon.retrace(path)

    def _interpreter_of(self, folder: str) -> str | None:
        if isinstance(self._interpreters, dict):
            return self._interpreters.get(folder)
        return self._interpreters


def _drop_open_settings(section: Plain) -> dict[str, Plain]:
    """The section without the settings that the client leaves unset."""
    return {key: value for key, value in section.items() if value is not None} if isinstance(section, dict) else {}


async def did_change_configuration(ls: Server, params: lsp.DidChangeConfigurationParams) -> None:
    """workspace/didChangeConfiguration: request the settings, or take those the client pushed."""
    if ls.can("workspace", "configuration"):
        await ls.folders.pull()
    else:
        ls.folders.told(params.settings)


async def did_change_folders(ls: Server, params: lsp.DidChangeWorkspaceFoldersParams) -> None:
    """workspace/didChangeWorkspaceFolders: pygls keeps the list; the settings of new folders are requested."""
    if ls.tools is not None:
        await ls.tools.follow()
    await ls.folders.pull()
