"""The folder that hardware is written to: the one that a person names, and never over files of somebody else."""

from __future__ import annotations

from pathlib import Path

from mase_server.daemon.pipelines import PassError

#: The file that says that a folder's files come from here, and may be written again.
MARKER = ".mase-verilog"
_TEXT = "This folder was written by mase-server: emitting again replaces its files.\n"


def claim(folder: str, overwrite: bool = False) -> None:
    """Make a folder and mark it; PassError of the kind "argument" where it cannot be, or holds files of others."""
    place = Path(folder)
    if not place.is_absolute() or "\0" in folder:
        raise PassError("argument", f"the folder is {folder!r}; it has to be an absolute path")
    try:
        if not overwrite and _is_foreign(place):
            text = f"{folder} holds files that were not written by mase-server, and nothing was written there"
            raise PassError("argument", f"{text}. Choose another folder, an empty one, or say overwrite.")
        place.mkdir(parents=True, exist_ok=True)
        (place / MARKER).write_text(_TEXT, encoding="utf-8")
    except OSError as error:
        raise PassError("argument", f"nothing can be written to {folder}: {error.strerror or error}") from error


def _is_foreign(place: Path) -> bool:
    """Are there files of somebody else? A link is one wherever it is: what is written to it lands elsewhere."""
    if not place.is_dir():
        return False
    if (place / MARKER).is_file():
        return any(each.is_symlink() for each in place.rglob("*"))
    return any(place.iterdir())
