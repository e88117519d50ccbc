"""The two arguments that every pass on data has."""

from __future__ import annotations

from mase_server.arguments import Argument

DATA = Argument(
    "data",
    "text",
    "what the model is run on: a file of tensors (.pt, .npz, .npy, .safetensors), or a function that gives batches, "
    'written "module:function" or "file.py:function"; the example inputs, or random ones, without it',
)
SAMPLES = Argument("samples", "integer", "batches that are taken at most; without data, 1", minimum=1)
