"""The MLP of `peers.py` by da4ml, in the environment that `peers.py` makes: prints seconds, lines and cycles as JSON.

Usage: python verilog_da4ml.py WEIGHTS.npz FOLDER
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
from da4ml.codegen import VerilogModel
from da4ml.trace import FixedVariableArrayInput, HWConfig, comb_trace
from da4ml.trace.ops import quantize, relu

#: Sign, integer and fraction bits of fixed(8,4); saturated, ties rounded up: half to even is not to be had.
_FORMAT = (1, 3, 4)
_ROUNDED = (*_FORMAT, "SAT", "RND")
#: Delays of one stage, in the tool's own unit.
_STAGE = 5


def main() -> None:
    """Trace, optimise, pipeline and write."""
    weights, folder = np.load(sys.argv[1]), Path(sys.argv[2])
    begin = time.process_time()
    given = FixedVariableArrayInput(weights["w0"].shape[1], HWConfig(1, -1, -1))
    hidden, layers = quantize(given, *_FORMAT), len(weights.files) // 2
    for number in range(layers):
        hidden = quantize(hidden @ weights[f"w{number}"].T + weights[f"b{number}"], *_ROUNDED)
        hidden = relu(hidden) if number < layers - 1 else hidden
    model = VerilogModel(comb_trace(given, hidden), "mlp", folder, latency_cutoff=_STAGE)
    model.write()
    seconds = time.process_time() - begin
    files = [*folder.rglob("*.v"), *folder.rglob("*.sv")]
    made = [path for path in files if "static" not in path.parts]
    lines = sum(path.read_text().count("\n") for path in made)
    latency = json.loads((folder / "metadata.json").read_text())["latency"]
    print(json.dumps({"seconds": seconds, "lines": lines, "interval": 1, "latency": latency}))


if __name__ == "__main__":
    main()
