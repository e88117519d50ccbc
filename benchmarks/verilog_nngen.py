"""The MLP of `peers.py` by NNgen, in the environment that `peers.py` makes: prints seconds and lines as JSON.

Usage: python verilog_nngen.py WEIGHTS.npz FOLDER
"""

import json
import sys
import time
from pathlib import Path

import nngen as ng
import numpy as np


def main() -> None:
    """Build the layers, set their integers, and write."""
    weights, folder = np.load(sys.argv[1]), Path(sys.argv[2])
    begin = time.process_time()
    hidden = ng.placeholder(dtype=ng.int8, shape=(1, weights["w0"].shape[1]), name="data_in")
    layers = len(weights.files) // 2
    for number in range(layers):
        weight, bias = (np.rint(weights[f"{kind}{number}"] * 16).astype(np.int64) for kind in "wb")
        of_weight = ng.variable(dtype=ng.int8, shape=weight.shape, name=f"w{number}")
        of_bias = ng.variable(dtype=ng.int16, shape=bias.shape, name=f"b{number}")
        of_weight.set_value(weight)
        of_bias.set_value(bias * 16)
        hidden = ng.matmul(
            hidden, of_weight, bias=of_bias, transposed_b=True,
            rshift_out=ng.constant([4], dtype=ng.int8, name=f"s{number}"),
            act_func=ng.relu if number < layers - 1 else None, dtype=ng.int8, sum_dtype=ng.int32,
        )  # fmt: skip
    text = ng.to_verilog([hidden], "mlp", silent=True, config={"maxi_datawidth": 32})
    folder.mkdir(exist_ok=True)
    (folder / "mlp.v").write_text(text)
    print(json.dumps({"seconds": time.process_time() - begin, "lines": text.count("\n")}))


if __name__ == "__main__":
    main()
