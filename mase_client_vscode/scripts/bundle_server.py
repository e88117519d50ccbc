"""Copy the server and the packages that `mase-server lsp` imports into a folder: bundle_server.py FOLDER.

Pure Python alone, so that one extension serves every platform and every Python from 3.11 on; msgpack has a fallback for
its C module. The packages are those of the environment that runs this, which is pinned.
"""

import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
#: The packages that `lsp` needs, without those of the command line.
NEEDED = ("lsprotocol", "msgpack", "platformdirs", "pygls", "watchdog")
START = '''\
"""Start the extension's own server: start.py lsp. Only this process sees the packages beside it."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "server"), str(HERE / "libs")]

from mase_server.cli.main import main  # noqa: E402 - found by the line above

main()
'''


def closure(names: tuple[str, ...]) -> list[str]:
    """These distributions and all their requirements, without extras."""
    found: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower()
        if name in found:
            continue
        found[name] = None
        needs = map(Requirement, distribution(name).requires or ())
        waiting += [each.name for each in needs if each.marker is None or each.marker.evaluate({"extra": ""})]
    return sorted(found)


def copy_distribution(name: str, folder: Path) -> None:
    """A distribution's modules and its licence."""
    files = distribution(name).files
    if files is None:
        raise PackageNotFoundError(f"{name} does not say which files it has")
    for file in files:
        is_code = file.suffix in {".py", ".typed"}
        is_licence = "dist-info" in file.parts[0] and ("LICENSE" in file.name.upper() or "LICENCE" in file.name.upper())
        if ".." not in file.parts and (is_code or is_licence or file.name == "METADATA"):
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), target)


def main(folder: Path) -> None:
    """Create the folder from scratch."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in closure(NEEDED):
        copy_distribution(name, folder / "libs")
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in ("mase_server", "rtl"):
        shutil.copytree(ROOT / name, folder / "server" / name, ignore=ignored)
    (folder / "start.py").write_text(START, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
