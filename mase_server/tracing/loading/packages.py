"""What to install for a module that cannot be imported."""

from __future__ import annotations

import sys

#: What to install for a module whose package has another name.
_PACKAGES = {
    "cv2": "opencv-python", "PIL": "pillow", "sklearn": "scikit-learn", "skimage": "scikit-image", "yaml": "pyyaml",
    "bs4": "beautifulsoup4", "dateutil": "python-dateutil", "attr": "attrs", "google.protobuf": "protobuf",
    "pytorch_lightning": "pytorch-lightning", "tensorboardX": "tensorboardX", "umap": "umap-learn",
    "Crypto": "pycryptodome", "dotenv": "python-dotenv", "flash_attn": "flash-attn", "open_clip": "open-clip-torch",
    "segmentation_models_pytorch": "segmentation-models-pytorch", "torch_geometric": "torch-geometric",
    "absl": "absl-py", "hydra": "hydra-core", "torch.utils.tensorboard": "tensorboard",
    "mamba_ssm": "mamba-ssm", "causal_conv1d": "causal-conv1d", "clip": "openai-clip",
    "whisper": "openai-whisper", "pl_bolts": "lightning-bolts", "ignite": "pytorch-ignite", "gym": "gymnasium",
    "torch_scatter": "torch-scatter", "torch_sparse": "torch-sparse", "torch_cluster": "torch-cluster",
    "efficientnet_pytorch": "efficientnet-pytorch", "sentence_transformers": "sentence-transformers",
    "fla": "flash-linear-attention", "git": "gitpython", "serial": "pyserial",
    "rotary_embedding_torch": "rotary-embedding-torch", "vector_quantize_pytorch": "vector-quantize-pytorch",
    "lightning_fabric": "lightning-fabric", "memory_efficient_attention_pytorch": "memory-efficient-attention-pytorch",
}  # fmt: skip


def package_of(module: str) -> str:
    """The name under which a package with this module is installed."""
    top = module.partition(".")[0]
    return _PACKAGES.get(module, _PACKAGES.get(top, top))


def install(module: str) -> str:
    """The sentence that says how to get a module."""
    return f"Install it there: {sys.executable} -m pip install {package_of(module)}"
