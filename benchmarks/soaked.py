"""Files that a soak saves again and again: each edit changes shapes, and which hint or problem must follow is known."""

from __future__ import annotations

from saves import SAVES, Save

_HEAD = "import torch\nfrom torch import nn\n\n\n"
_RUN = "\n\nif __name__ == '__main__':\n    print({name}()(torch.randn({shape})).shape)\n"

_PARTS = {
    "Mlp": (
        "4, 16",
        "self.fc = nn.Linear(16, {n})\n        self.out = nn.Linear({n}, 5)",
        "h = torch.relu(self.fc(x))\n        return self.out(h)",
    ),
    "Conv": (
        "2, 3, 16, 16",
        "self.conv = nn.Conv2d(3, {n}, 3, padding=1)",
        "h = torch.relu(self.conv(x))\n        return h.mean((2, 3))",
    ),
    "Recurrent": (
        "2, 7, 12",
        "self.rnn = nn.GRU(12, {n}, batch_first=True)",
        "out, state = self.rnn(x)\n        return out[:, -1]",
    ),
    "Attending": (
        "2, 6, 48",
        "self.up = nn.Linear(48, {n} * 2)",
        "h = self.up(x)\n        scores = h @ h.transpose(1, 2)\n        return scores.softmax(-1) @ h[..., :{n}]",
    ),
    "Deep": (
        "4, 16",
        "self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(30))\n        self.out = nn.Linear(16, {n})",
        "for layer in self.layers:\n            x = torch.relu(layer(x))\n        y = self.out(x)\n        return y",
    ),
}

#: A model that takes a part of it from a module beside it, and one whose second layer does not fit every other save.
_IMPORTING = """import torch
from torch import nn

from helping import widen


class Importing(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, {n})

    def forward(self, x):
        h = self.fc(x)
        return widen(h)


if __name__ == "__main__":
    print(Importing()(torch.randn(4, 16)).shape)
"""
HELPER = "import torch\n\n\ndef widen(h):\n    wide = torch.cat([h, h], 1)\n    return wide\n"

#: Sizes come again after so many saves of one file: widths that only grow would be another load at the end.
_ROUND = 50


def text(save: Save, number: int) -> str:
    """The whole file as the save with this number has it."""
    return save.text(number % _ROUND)


def fresh(save: Save, number: int, label: str) -> bool:
    """Does a hint's label speak of that save?"""
    return bool(save.fresh(number % _ROUND)(label))


def files() -> list[Save]:
    """Twenty: six of the examples, and generated ones of several kinds."""
    made = [_generated(f"{name}{copy}", name) for copy in (1, 2) for name in _PARTS]
    taken = [Save(f"importing{copy}.py", "", "", 41, source=_IMPORTING) for copy in (1, 2, 3, 4)]
    return [*SAVES, *(Sized.of(each) for each in (*made, *taken))]


class Sized(Save):
    """A file whose whole text has the size in it, wherever it says `{n}`."""

    @classmethod
    def of(cls, save: Save) -> Sized:
        """The same file."""
        return cls(save.file, save.old, save.new, save.first, save.step, save.forward, save.source)

    def text(self, number: int) -> str:
        """The whole file as saved."""
        assert self.source is not None
        return self.source.replace("{n}", str(self.size(number)))


def _generated(file: str, name: str) -> Save:
    shape, layers, forward = _PARTS[name]
    body = (
        f"class {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {layers}\n\n"
        f"    def forward(self, x):\n        {forward}\n"
    )
    return Save(f"{file.lower()}.py", "", "", 41, source=_HEAD + body + _RUN.format(name=name, shape=shape))
