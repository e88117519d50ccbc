"""Hardware in Neovim as Debian has it (0.7): no virtual documents, no showDocument, a file that is read again."""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
SECONDS = 300


async def told(tmp_path: Path, source: Path) -> dict:
    """What the script tells of its session."""
    out = tmp_path / "told.json"
    homes = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CACHE", "STATE", "CONFIG", "DATA")}
    given = json.dumps([sys.executable, str(source), str(out)])
    script = ["-c", f"luafile {HERE / 'neovim.lua'}", "-c", "cquit"]
    process = await asyncio.create_subprocess_exec(
        "nvim", "--headless", "--clean", *script, env={**os.environ, **homes, "MASE_TEST": given},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode == 0, said.decode()
    return json.loads(out.read_text())


@pytest.mark.skipif(shutil.which("nvim") is None, reason="needs Neovim")
async def test_a_person_in_neovim_emits_looks_both_ways_saves_and_closes(tmp_path):
    (tmp_path / "work").mkdir()
    source = Path(shutil.copy(EXAMPLES / "mlp.py", tmp_path / "work"))
    use = next(row for row, line in enumerate(source.read_text().split("\n"), 1) if "self.head(x)" in line)
    found = await told(tmp_path, source)
    assert (found["module"], found["use"], found["same"]) == ("mlp", use, True)
    assert "\nmodule mlp (\n" in found["text"]
    assert "- hardware: `fixed_linear`" in found["card"]
    assert (found["back"], found["lit"]) == ([True, use], [True, 1])
    assert (tmp_path / "work" / "out" / "mlp.sv").exists()
    assert (found["saved"] > 10, found["closed"]) == (True, True)
