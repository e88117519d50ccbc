"""Pictures in the place of torchvision's data sets that are not on the disk, and transforms where it is missing.

Only data sets whose pictures all have one size are here. A script that would download one, which a trace does not, goes
on with pictures of that size without values. Source: the pages of torchvision.datasets and torchvision.transforms.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch.utils.data import Dataset

from mase_server.ops.types import Kwargs
from mase_server.tracing.recording.positions import iterate_unmade

Transform = Callable[[Any], Any] | None


@dataclass(frozen=True, slots=True)
class Contents:
    """The pictures of a data set: channels, height and width, classes, pictures to train with and to test with."""

    channels: int
    side: int
    classes: int
    train: int
    test: int


_DIGITS, _OBJECTS = Contents(1, 28, 10, 60_000, 10_000), Contents(3, 32, 10, 50_000, 10_000)
CONTENTS = {
    **dict.fromkeys(("MNIST", "FashionMNIST", "KMNIST"), _DIGITS),
    "CIFAR10": _OBJECTS,
    "CIFAR100": replace(_OBJECTS, classes=100),
    "SVHN": replace(_OBJECTS, train=73_257, test=26_032),
    "STL10": Contents(3, 96, 10, 5_000, 8_000),
    "USPS": Contents(1, 16, 10, 7_291, 2_007),
}


class AbsentDataError(OSError):
    """A data set is not on the disk; pictures of its size take its place."""


@dataclass(slots=True)
class _Replacing:
    """patch: gives a class other attributes until the end.  told: the classes that have been replaced, and the errors
    that say so."""

    patch: Callable[[type, Kwargs], object]
    told: dict[type, AbsentDataError] = field(default_factory=dict)


_replacing: ContextVar[_Replacing | None] = ContextVar("replacing", default=None)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture without values, in the place of Pillow's."""

    channels: int
    height: int
    width: int

    @property
    def size(self) -> tuple[int, int]:
        """The width and the height, as Pillow tells them."""
        return self.width, self.height

    @property
    def mode(self) -> str:
        """The kind of its pixels."""
        return "L" if self.channels == 1 else "RGB"

    def convert(self, mode: str) -> Picture:
        """The same with pixels of another kind."""
        return replace(self, channels=1 if mode in ("L", "1") else 3)

    def resize(self, size: tuple[int, int]) -> Picture:
        """The same with another width and height."""
        return replace(self, width=size[0], height=size[1])

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        shape = (self.height, self.width) if self.channels == 1 else (self.height, self.width, self.channels)
        return importlib.import_module("numpy").zeros(shape, "uint8")


class Pictures(Dataset[Any]):
    """A data set of pictures without values, each of class 0."""

    contents = _DIGITS

    def __init__(
        self,
        root: Any = None,
        train: bool | str = True,
        transform: Transform = None,
        target_transform: Transform = None,
        download: bool = False,
        *,
        split: str = "train",
    ) -> None:
        kept = train if isinstance(train, str) else split if train else "test"
        self.root, self.train, self.split = root, kept != "test", kept
        self.transform, self.target_transform = transform, target_transform
        self.classes = [str(each) for each in range(self.contents.classes)]
        self._first: tuple[Any, Any] | None = None

    def __len__(self) -> int:
        return self.contents.train if self.train else self.contents.test

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        if self._first is None:
            picture: Any = Picture(self.contents.channels, self.contents.side, self.contents.side)
            if _is_installed("PIL"):
                picture = importlib.import_module("PIL.Image").new(picture.mode, picture.size)
            target = self.target_transform(0) if self.target_transform else 0
            self._first = self.transform(picture) if self.transform else picture, target
        return self._first

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The index of each class."""
        return {name: index for index, name in enumerate(self.classes)}

    @property
    def data(self) -> torch.Tensor:
        """All pictures, channels last."""
        side, channels = self.contents.side, self.contents.channels
        return torch.zeros(len(self), *([side, side] if channels == 1 else [side, side, channels]), dtype=torch.uint8)

    @property
    def targets(self) -> torch.Tensor:
        """The classes of all pictures."""
        return torch.zeros(len(self), dtype=torch.int64)


def _is_installed(package: str) -> bool:
    try:
        return importlib.import_module(package) is not None
    except ImportError:
        return False


def _make_class(name: str, contents: Contents) -> type[Pictures]:
    return type(name, (Pictures,), {"contents": contents})


@contextmanager
def replacing_absent_data(patch: Callable[[type, Kwargs], object]) -> Iterator[None]:
    """Inside, `replace_absent_data` works. patch: gives a class other attributes until the program has ended."""
    token = _replacing.set(_Replacing(patch))
    try:
        yield
    finally:
        _replacing.reset(token)


#: The attributes that such a class takes of `Pictures`.
_TAKEN = ("__init__", "__len__", "__getitem__", "data", "targets")


def list_absent_data() -> list[AbsentDataError]:
    """The errors that tell of the data sets that have been replaced."""
    replacing = _replacing.get()
    return list(replacing.told.values()) if replacing is not None else []


def replace_absent_data(error: BaseException) -> bool:
    """If torchvision has not found a data set, put pictures in its place from now on. Has this been done?

    Then the statement that raised the error can be executed again.
    """
    replacing = _replacing.get()
    if replacing is None or not isinstance(error, OSError | RuntimeError):
        return False
    for made in iterate_unmade(error):
        kind = next((each for each in type(made).__mro__ if _is_known(each)), None)
        if kind is not None and kind not in replacing.told:
            replacing.told[kind] = _describe_replacement(kind.__name__, error)
            taken = {name: vars(Pictures)[name] for name in _TAKEN}
            replacing.patch(kind, taken | {"contents": CONTENTS[kind.__name__]})
            return True
    return False


def _is_known(kind: type) -> bool:
    return kind.__name__ in CONTENTS and kind.__module__.startswith("torchvision.")


def _describe_replacement(name: str, error: BaseException) -> AbsentDataError:
    each = CONTENTS[name]
    size = f"{each.channels} x {each.side} x {each.side}"
    told = AbsentDataError(
        f"The data set {name} is not on this disk, and nothing is downloaded while the model is traced. Pictures of "
        f"its size ({size}) without values take its place"
    )
    return told.with_traceback(error.__traceback__)


# The transforms, where torchvision is missing. Each takes a picture, or a tensor of one.


def _size_of(image: Any) -> tuple[int, int]:
    height, width = image.shape[-2:] if isinstance(image, torch.Tensor) else (image.height, image.width)
    return height, width


def _change_size(image: Any, height: int, width: int, channels: int | None = None) -> Any:
    if isinstance(image, torch.Tensor):
        return image.new_zeros(*image.shape[:-3], channels or image.shape[-3], height, width)
    return Picture(channels or image.channels, height, width)


def _as_pair(size: Any) -> tuple[int, int]:
    sizes = list(size) if isinstance(size, Sequence) else [size]
    return sizes[0], sizes[-1]


class _Unchanged:
    """A transform that keeps the size."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, img: Any) -> Any:
        return img


class Resize:
    """A picture of another size; with one number, of the shorter side."""

    def __init__(self, size: Any, *args: Any, **kwargs: Any) -> None:
        self.size = size

    def __call__(self, img: Any) -> Any:
        """Change the size."""
        height, width = _size_of(img)
        if isinstance(self.size, Sequence) and len(self.size) == 2:
            return _change_size(img, *self.size)
        short = _as_pair(self.size)[0]
        if height <= width:
            return _change_size(img, short, int(short * width / height))
        return _change_size(img, int(short * height / width), short)


class Crop:
    """A part of a picture, of a fixed size."""

    def __init__(self, size: Any, *args: Any, **kwargs: Any) -> None:
        self.size = _as_pair(size)

    def __call__(self, img: Any) -> Any:
        """Take the part."""
        return _change_size(img, *self.size)


class Pad:
    """A picture with a border."""

    def __init__(self, padding: Any, *args: Any, **kwargs: Any) -> None:
        sides = list(padding) if isinstance(padding, Sequence) else [padding]
        self.left, self.top, self.right, self.bottom = (sides * 4)[:4]

    def __call__(self, img: Any) -> Any:
        """Add the border."""
        height, width = _size_of(img)
        return _change_size(img, height + self.top + self.bottom, width + self.left + self.right)


class Grayscale:
    """A picture of grey values."""

    def __init__(self, num_output_channels: int = 1) -> None:
        self.num_output_channels = num_output_channels

    def __call__(self, img: Any) -> Any:
        """Change the channels."""
        return _change_size(img, *_size_of(img), self.num_output_channels)


class ToTensor:
    """A picture as numbers from 0 to 1, float32[C, H, W]."""

    dtype = torch.float32

    def __call__(self, pic: Any) -> torch.Tensor:
        """Make the tensor. An array has its channels last."""
        if isinstance(pic, Picture):
            return torch.zeros(pic.channels, pic.height, pic.width, dtype=self.dtype)
        pixels = torch.as_tensor(importlib.import_module("numpy").array(pic))
        return (pixels if pixels.ndim == 3 else pixels[..., None]).permute(2, 0, 1).to(self.dtype)


class PILToTensor(ToTensor):
    """A picture as its bytes, uint8[C, H, W]."""

    dtype = torch.uint8


class ConvertImageDtype:
    """A tensor of another type."""

    def __init__(self, dtype: torch.dtype, *args: Any, **kwargs: Any) -> None:
        self.dtype = dtype

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        """Change the type."""
        return image.to(self.dtype)


class Lambda:
    """A function of the program."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        """Call it."""
        return self.lambd(img)


_KEEPING = (
    "RandomHorizontalFlip", "RandomVerticalFlip", "RandomRotation", "RandomAffine", "RandomPerspective", "ColorJitter",
    "RandomErasing", "RandomGrayscale", "GaussianBlur", "RandomAdjustSharpness", "RandomAutocontrast", "RandomInvert",
    "AutoAugment", "RandAugment", "TrivialAugmentWide", "AugMix", "RandomPosterize", "RandomSolarize", "RandomEqualize",
)  # fmt: skip
TRANSFORMS: dict[str, Any] = {
    **dict.fromkeys(_KEEPING, _Unchanged),
    **dict.fromkeys(("CenterCrop", "RandomCrop", "RandomResizedCrop"), Crop),
    **{each.__name__: each for each in (Resize, Pad, Grayscale, ToTensor, PILToTensor, ConvertImageDtype, Lambda)},
    **{"ToImage": PILToTensor, "ToDtype": ConvertImageDtype},
}
DATASETS = {name: cast("Any", _make_class(name, contents)) for name, contents in CONTENTS.items()}
