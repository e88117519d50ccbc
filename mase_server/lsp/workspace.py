"""Workspace folders: their settings, and whether the person trusts them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams

from mase_server.daemon import trust
from mase_server.directories import why
from mase_server.lsp.asking import ask
from mase_server.lsp.settings import SECTION, Settings, parse

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

#: Longest that opened files wait for the client to tell its settings, in seconds.
_PATIENCE = 2.0
_TRUST = "Trust"
_LOG = logging.getLogger(__name__)


class Folders:
    """The workspace folders of one client, by path.

    trusted: the person trusts what this editor opens, by a command-line flag. What a client says of trust is of its
    folders. Neither is of a file that somebody else names: the daemon serves other tools too. Where nothing is said,
    the person is asked once for a folder; the answer is kept in `state_dir`.
    """

    def __init__(self, server: Server, *, state_dir: Path, trusted: bool) -> None:
        self._server = server
        self._state_dir = state_dir
        self._opened = trusted
        #: URI -> path of the folders there were: a link among them that leads elsewhere later is not followed.
        self._paths: dict[str, str | None] = {}
        self._told: bool | None = None
        self._interpreters: str | dict[str, str] | None = None
        self._sections: dict[str, Any] = {}
        self._options: Any = None
        self._pushed: Any = None
        self._asked: set[str] = set()
        #: Folders whose trust could not be kept: it holds until this server ends.
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

    def folder_of(self, path: str) -> str:
        """The innermost workspace folder of a file; the directory of a file that is in none."""
        homes = [folder for folder in self.paths() if Path(path).is_relative_to(folder)]
        return max(homes, key=len) if homes else str(Path(path).parent)

    def paths(self) -> list[str]:
        """The paths of the workspace folders."""
        return list(self._by_path())

    def uri_under(self, path: str) -> str | None:
        """The URI of a file as the innermost workspace folder that holds it is spelled; None where none does."""
        folders = self._by_path()
        homes = [folder for folder in folders if folder != path and Path(path).is_relative_to(folder)]
        if not homes:
            return None
        home = max(homes, key=len)
        return f"{folders[home].rstrip('/')}/{quote(Path(path).relative_to(home).as_posix())}"

    def _by_path(self) -> dict[str, str]:
        """The path of each workspace folder -> its URI."""
        # pygls' keys are URIs that were decoded once: read as URIs again, `%252e%252e` would be `..`.
        uris = [folder.uri for folder in self._server.workspace.folders.values()]
        for uri in uris:
            if uri not in self._paths:
                self._paths[uri] = self._path_of(uri)
        found = {self._paths[uri]: uri for uri in uris}
        return {path: uri for path, uri in found.items() if path is not None}

    def _path_of(self, uri: str) -> str | None:
        try:
            return self._server.path_of(uri)
        except JsonRpcInvalidParams as error:
            _LOG.warning("a workspace folder is left out: %s", error)
            return None

    def settings_of(self, folder: str) -> Settings:
        """The settings of a folder: what the client last told of it, over the initialization options."""
        settings = parse({"interpreter": self._interpreter_of(folder)}, Settings())
        for section in (self._options, self._pushed, self._sections.get(folder)):
            settings = parse(section, settings)
        return settings

    def trusts(self, path: str) -> bool:
        """May the file `path` run? The client's or the command line's word, else the kept answer."""
        said = self._said_of(path)
        if said is not None:
            return said
        folder = self.folder_of(path)
        return folder in self._granted or trust.is_trusted(self._state_dir, folder)

    def _said_of(self, path: str) -> bool | None:
        """What was said of a file before anybody asked; None for nothing.

        A client that trusts its workspace has not been asked about a file that somebody opens from elsewhere. Without
        any folder there is no workspace, and its word is of the documents that are open. The word of the command line
        is of both.
        """
        own, opened = self.paths(), self._server.documents.get(path) is not None
        inside = any(Path(path).is_relative_to(each) for each in own)
        if self._opened and (inside or opened):
            return True
        return self._told if inside or not self._told or (opened and not own) else None

    async def ready(self) -> None:
        """Wait until the settings are known, or the client has had its time to tell them."""
        try:
            await asyncio.wait_for(self._known.wait(), _PATIENCE)
        except TimeoutError:
            _LOG.warning("the client did not tell its settings within %s s; the defaults are used", _PATIENCE)
            self._known.set()

    async def pull(self) -> None:
        """Ask the client for the settings of every folder, and act on what changed."""
        before = {folder: self.settings_of(folder) for folder in self._open_folders()}
        if self._server.can("workspace", "configuration"):
            folders = self._by_path()
            items = [lsp.ConfigurationItem(uri, SECTION) for uri in (*folders.values(), None)]
            *sections, everywhere = await self._server.workspace_configuration_async(lsp.ConfigurationParams(items))
            self._pushed = _filled(everywhere)
            self._sections = {folder: _filled(section) for folder, section in zip(folders, sections, strict=True)}
        self._known.set()
        self._act_on_changes(before)

    def told(self, settings: Any) -> None:
        """Take settings that a client pushes because it cannot be asked."""
        before = {folder: self.settings_of(folder) for folder in self._open_folders()}
        self._pushed = _filled(settings.get(SECTION) if isinstance(settings, dict) else None)
        self._act_on_changes(before)

    async def ask_for_trust(self, path: str) -> None:
        """Ask the person about the folder of a file, once, if nothing was said of it and the file would run."""
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
        if await ask(self._server, question, [_TRUST, "Not now"], lsp.MessageType.Warning) == _TRUST:
            self._grant(folder)
            self._retrace(folder)

    def _grant(self, folder: str) -> None:
        try:
            trust.grant(self._state_dir, folder)
        except OSError as error:
            self._granted.add(folder)
            told = f"{trust.name_folder(folder)} is trusted until this server ends: {why(error)}"
            self._server.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Warning, told))

    def _open_folders(self) -> set[str]:
        return {self.folder_of(path) for path in self._server.documents.paths()}

    def _act_on_changes(self, before: Mapping[str, Settings]) -> None:
        """Restart a folder's workers where their interpreter changed; trace again where anything else did."""
        level = self.settings_of(next(iter(self.paths()), "")).log_level
        if self._server.logs is not None:
            # Where nobody chose, the command line may have.
            self._server.logs.level(None if level == Settings().log_level else level)
        for folder, old in before.items():
            new = self.settings_of(folder)
            if new.daemon.interpreter != old.daemon.interpreter:
                self._server.daemon.environment_changed(folder)
            elif new.daemon != old.daemon:
                self._retrace(folder)
            elif new != old:
                self._server.listener.refresh()

    def _retrace(self, folder: str) -> None:
        for path in self._server.documents.paths():
            if self.folder_of(path) == folder:
                self._server.daemon.retrace(path)

    def _interpreter_of(self, folder: str) -> str | None:
        if isinstance(self._interpreters, dict):
            return self._interpreters.get(folder)
        return self._interpreters


def _filled(section: Any) -> dict[str, Any]:
    """The section without the settings that the client leaves open."""
    return {key: value for key, value in section.items() if value is not None} if isinstance(section, dict) else {}


async def did_change_configuration(ls: Server, params: lsp.DidChangeConfigurationParams) -> None:
    """workspace/didChangeConfiguration: ask again, or take what the client pushed."""
    if ls.can("workspace", "configuration"):
        await ls.folders.pull()
    else:
        ls.folders.told(params.settings)


async def did_change_folders(ls: Server, params: lsp.DidChangeWorkspaceFoldersParams) -> None:
    """workspace/didChangeWorkspaceFolders: pygls keeps the list; the settings of the new ones are asked for."""
    if ls.tools is not None:
        await ls.tools.follow()
    await ls.folders.pull()
