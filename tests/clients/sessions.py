"""A real editor with the documented configuration, in a folder and a home of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "editors.md"
SECONDS = 150

#: A model whose head takes one feature too many, and a line whose columns differ between the position encodings.
NET = '''import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=32, classes=5):
        super().__init__()
        self.body = nn.Linear(16, width)
        self.head = nn.Linear(width + 1, classes)

    def forward(self, x):
        """😋"""; hidden = self.body(x).relu()
        return self.head(hidden)


if __name__ == "__main__":
    print(Net()(torch.randn(8, 16)).shape)
'''
MISTAKE = """`head` Linear(in_features=33, out_features=5, bias=True) expects 33 features,
but the last dimension of `hidden` f32[B=8, 32] is 32. `hidden` comes from relu (line 12)."""
FIXED = "        self.head = nn.Linear(width, classes)"
#: (line, column in code points, label) of the mended file.
HINTS = [(11, 23, ": f32[B, 16]"), (12, 23, ": f32[B, 32]"), (13, 32, " -> f32[B, 5]")]


@dataclass(frozen=True, slots=True)
class Session:
    """What came of one: what the script saw, and what the editor said of itself to the server."""

    told: dict
    capabilities: dict


def documented(heading: str, number: int = 0) -> str:
    """A block of configuration below a heading of the page, the first one unless told otherwise."""
    _, found, part = PAGE.read_text().partition(f"# {heading}\n")
    assert found, f"docs/editors.md has no heading {heading!r}"
    return re.findall(r"```\w+\n(.*?)```", part, re.DOTALL)[number]


async def session(folder: Path, *, configs: dict[str, str], command: list[str]) -> Session:
    """Run an editor. configs: texts of files in its home.  command: with {home} and {here} for it and this folder."""
    work = folder / "work"
    work.mkdir()
    (work / "net.py").write_text(NET)
    for name, text in configs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    environment = _environment(folder, work)
    await _run(["mase-server", "trust", str(work)], environment)
    await _run([each.format(home=folder, here=HERE) for each in command], environment)
    said = json.loads((folder / "said.json").read_text())
    return Session(json.loads((folder / "told.json").read_text()), said["capabilities"])


def _environment(folder: Path, work: Path) -> dict[str, str]:
    """A person's: `mase-server` is on the path, and the virtual environment with torch is active."""
    shim = folder / "bin" / "mase-server"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE}/recording_server.py" "{folder}/said.json" "$@"\n')
    shim.chmod(0o755)
    homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CACHE", "STATE", "CONFIG", "DATA")}
    given = json.dumps([str(work / "net.py"), str(folder / "told.json")])
    path = f"{shim.parent}{os.pathsep}{os.environ['PATH']}"
    own = {"HOME": str(folder), "PATH": path, "VIRTUAL_ENV": sys.prefix, "MASE_TEST": given, "LC_ALL": "C.UTF-8"}
    return {**os.environ, **homes, **own}


async def _run(command: list[str], environment: dict[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        said, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, said.decode()
