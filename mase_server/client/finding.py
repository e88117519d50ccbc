"""Where the daemon is that a client speaks to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mase_server.client.errors import ClientError
from mase_server.private import read_private
from mase_server.rpc.addresses import Address, parse
from mase_server.rpc.registry import find, runtime_dir


@dataclass(frozen=True, slots=True)
class Target:
    """The target that a person named: an address, or a file or folder, which means the daemon of its workspace.

    token_file: for a TCP address; the registry knows the token file of a daemon that is found by folder.
    """

    address: str | None = None
    workspace: Path = Path()
    token_file: Path | None = None

    def resolve(self) -> tuple[Address, str]:
        """Where it listens now, and the token, "" for none; ClientError."""
        try:
            if self.address is not None:
                token = read_private(self.token_file).strip() if self.token_file else ""
                return parse(self.address), token
            where = self.workspace.resolve()
            if (found := find(runtime_dir(), str(where))) is not None:
                return parse(found.address), found.token
        except (OSError, ValueError) as error:
            raise ClientError(str(error)) from error
        raise ClientError(
            f"no daemon serves {where}: open it in an editor, or run `mase-server serve {self.workspace}`"
        )
