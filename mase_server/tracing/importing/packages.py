"""The package to install for a module that cannot be imported, if it is known.

The server advises a command to install something only if the package's name is confirmed: by the workspace's own
requirements, or by a table whose rows were checked. A package that merely has the module's name may be anybody's.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
import shlex
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from mase_server import reading
from mase_server.protocol.records import Command
from mase_server.tracing.importing.lookups import without_recording
from mase_server.tracing.importing.source import SKIPPED

#: Modules -> their package, if it has another name.
_PACKAGES = {
    "cv2": "opencv-python", "PIL": "pillow", "sklearn": "scikit-learn", "skimage": "scikit-image", "yaml": "pyyaml",
    "bs4": "beautifulsoup4", "dateutil": "python-dateutil", "attr": "attrs", "google.protobuf": "protobuf",
    "pytorch_lightning": "pytorch-lightning", "umap": "umap-learn", "pkg_resources": "setuptools<81",
    "Crypto": "pycryptodome", "dotenv": "python-dotenv", "flash_attn": "flash-attn", "open_clip": "open-clip-torch",
    "segmentation_models_pytorch": "segmentation-models-pytorch", "torch_geometric": "torch-geometric",
    "absl": "absl-py", "hydra": "hydra-core", "torch.utils.tensorboard": "tensorboard", "tap": "typed-argument-parser",
    "mamba_ssm": "mamba-ssm", "causal_conv1d": "causal-conv1d", "whisper": "openai-whisper",
    "pl_bolts": "lightning-bolts", "pywt": "pywavelets", "ignite": "pytorch-ignite", "torch_scatter": "torch-scatter",
    "torch_sparse": "torch-sparse", "torch_cluster": "torch-cluster", "efficientnet_pytorch": "efficientnet-pytorch",
    "sentence_transformers": "sentence-transformers", "fla": "flash-linear-attention", "git": "gitpython",
    "serial": "pyserial", "rotary_embedding_torch": "rotary-embedding-torch",
    "vector_quantize_pytorch": "vector-quantize-pytorch", "lightning_fabric": "lightning-fabric",
    "memory_efficient_attention_pytorch": "memory-efficient-attention-pytorch", "faiss": "faiss-cpu",
    "huggingface_hub": "huggingface-hub", "pycocotools": "pycocotools", "ml_collections": "ml-collections",
    "axial_positional_embedding": "axial-positional-embedding", "x_transformers": "x-transformers",
    "vit_pytorch": "vit-pytorch", "denoising_diffusion_pytorch": "denoising-diffusion-pytorch",
    "local_attention": "local-attention", "linear_attention_transformer": "linear-attention-transformer",
}  # fmt: skip
#: Modules whose package has their name.
_SAME = frozenset({
    "accelerate", "albumentations", "bitsandbytes", "boto3", "click", "datasets", "deepspeed", "diffusers",
    "einops", "fairscale", "fastapi", "fire", "fsspec", "ftfy", "gradio", "gym", "gymnasium", "h5py", "imageio",
    "imgaug", "jax", "joblib", "jsonargparse", "kornia", "librosa", "lightning", "lmdb", "loguru", "lpips",
    "matplotlib", "mlflow", "monai", "msgpack", "natten", "networkx", "nibabel", "ninja", "nltk", "numba",
    "numpy", "omegaconf", "onnx", "onnxruntime", "optuna", "pandas", "peft", "plotly", "psutil", "pyarrow",
    "pydantic", "pytest", "rdkit", "regex", "requests", "rich", "sacrebleu", "safetensors", "scipy", "seaborn",
    "sentencepiece", "soundfile", "spacy", "sympy", "tabulate", "tensorboard", "tensorboardX", "tensorflow",
    "termcolor", "thop", "tiktoken", "timm", "tokenizers", "toml", "torchaudio", "torchdiffeq", "torchinfo",
    "torchmetrics", "torchsummary", "torchtext", "torchvision", "tqdm", "transformers", "trimesh", "triton",
    "tyro", "ujson", "wandb", "webdataset", "xformers", "yacs", "zarr",
})  # fmt: skip
#: Files with a project's requirements, and the most bytes that are read of one.
_TEXTS = re.compile(r"requirements.*\.(txt|in)|environment.*\.ya?ml")
_CODE = ("setup.py", "pyproject.toml")
_MOST = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_LINE = re.compile(r"^\s*(?:-\s+)?([A-Za-z0-9][\w.-]*)\s*(?:$|[\[=<>~!;#@ ])", re.MULTILINE)


def install_advice(module: str, folders: Iterable[str]) -> str:
    """The sentence that says how to get a module, with a space before it; "" if no package is certain.

    folders: those of the workspace.
    """
    package = package_for(module, folders)
    return f" Install it there: {shlex.join(install_command([package])['arguments'])}" if package else ""


def install_command(packages: Sequence[str]) -> Command:
    """The program that installs packages for the interpreter that runs here."""
    # Asked by `find_spec` of importlib, setuptools would take it for a run of pip, and no longer stand for distutils.
    has_pip = PathFinder.find_spec("pip") is not None
    program = [sys.executable, "-m", "pip"] if has_pip else ["uv", "pip"]
    program += ["install"] if has_pip else ["install", "--python", sys.executable]
    where = Path(sys.prefix).name if sys.prefix != sys.base_prefix else sys.executable
    return {"title": f"Install {' and '.join(packages)} into {where}", "arguments": [*program, *packages]}


def package_for(module: str, folders: Iterable[str]) -> str | None:
    """The package to install for a module, if one is certain."""
    return next((name for folder in folders if (name := required_for(module, folder))), None) or package_of(module)


def package_of(module: str) -> str | None:
    """The package that is known to have a module."""
    top = module.partition(".")[0]
    return _PACKAGES.get(module, _PACKAGES.get(top, top if top in _SAME else None))


def required_for(module: str, folder: str) -> str | None:
    """The package with a module that the requirements of a workspace name."""
    top = module.partition(".")[0]
    known = {_normalise_name(top), _normalise_name(package_of(module) or top).partition("<")[0]}
    return next((name for name in _list_required_packages(folder) if _normalise_name(name) in known), None)


@functools.cache
def _list_required_packages(folder: str) -> Sequence[str]:
    """The packages required by the files at the top of a workspace, and in its folders."""
    return list(dict.fromkeys(_read_requirements(folder)))


def _read_requirements(folder: str) -> Iterator[str]:
    top = Path(folder)
    try:
        with without_recording():
            inner = [
                each for each in top.iterdir() if each.is_dir() and each.name not in SKIPPED and each.name[0] != "."
            ]
            files = itertools.chain.from_iterable(sorted(each.iterdir()) for each in [top, *sorted(inner)])
            wanted = [each for each in files if each.name in _CODE or _is_list(each)]
    except OSError:
        return
    for each in wanted:
        try:
            yield from _find_named_packages(each.name, reading.read_file(str(each), _MOST).decode())
        except (OSError, SyntaxError, ValueError):  # TOML that cannot be read is a ValueError
            continue


def _is_list(file: Path) -> bool:
    listed = file.parent.name == "requirements" and file.suffix in (".txt", ".in")
    return listed or _TEXTS.fullmatch(file.name) is not None


def _find_named_packages(file: str, text: str) -> Iterator[str]:
    """The packages that a file asks for."""
    if file == "setup.py":
        lists = [
            node.value
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.keyword) and node.arg in ("install_requires", "extras_require")
        ]
        constants = (part.value for each in lists for part in ast.walk(each) if isinstance(part, ast.Constant))
        yield from _iterate_requirement_names(each for each in constants if isinstance(each, str))
    elif file == "pyproject.toml":
        tables = tomllib.loads(text)
        project, poetry = tables.get("project", {}), tables.get("tool", {}).get("poetry", {})
        groups = [*project.get("optional-dependencies", {}).values(), *tables.get("dependency-groups", {}).values()]
        yield from _iterate_requirement_names(_iterate_texts([project.get("dependencies", []), groups]))
        for group in (poetry, *poetry.get("group", {}).values()):
            yield from group.get("dependencies", {})
    else:
        yield from _LINE.findall(text)


def _iterate_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (text for each in value for text in _iterate_texts(each))


def _iterate_requirement_names(texts: Iterable[str]) -> Iterator[str]:
    yield from (found[0] for text in texts if (found := _NAME.match(text)))


def _normalise_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
