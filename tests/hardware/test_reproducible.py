"""The same model gives the same bytes, in any process and place, whatever seed its hashes have and threads it uses."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SCRIPT = """
import json, sys, torch
from mase_server import MaseGraph
from mase_server.building import Build
from mase_server.passes.verilog.told import build
from tests.hardware.test_attention import Encoder
from tests.hardware.test_residuals import Down

found = {}
for name, model, shape in (("encoder", Encoder(), (5, 8)), ("down", Down(), (2, 8, 8))):
    torch.manual_seed(7)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    graph = MaseGraph(model.eval(), {"x": torch.randn(2, *shape)})
    told = build(graph, Build(multipliers=300), name, folder=f"{sys.argv[1]}/{name}", vectors=4)
    found[name] = {**told, "folder": None}
print(json.dumps(found))
"""


def emitted(folder, seed, threads, place):
    """What is told in a process of its own, which runs in a folder, and a digest of every file."""
    folder.mkdir()
    env = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT, os.path.relpath(folder, place)]
    done = subprocess.run(command, env=env, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return json.loads(done.stdout), files


def test_two_processes_give_the_same_bytes_and_tell_the_same(tmp_path):
    told, files = emitted(tmp_path / "a", "1", "1", ROOT)
    told_again, files_again = emitted(tmp_path / "b", "4711", "2", tmp_path)
    assert {"encoder/encoder.sv", "down/down.sv", "down/sim/data_out_0.hex"} <= set(files)
    assert files == files_again
    assert told == told_again
