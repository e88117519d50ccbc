"""One edit for each measured example: a size that changes at every save, and the hint that must follow it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


@dataclass(frozen=True, slots=True)
class Save:
    """An edit of one example.

    old: text of the file.  new: what replaces it, `{n}` being a size that no earlier save had.  first, step: the sizes.
    forward: what runs one forward, appended for a plain `python FILE` where the example has no `__main__`.
    source: the file's text, where it is no example.
    """

    file: str
    old: str
    new: str
    first: int
    step: int = 1
    forward: str = ""
    source: str | None = None

    def size(self, number: int) -> int:
        """The size after the save with this number."""
        return self.first + number * self.step

    def edit(self, number: int) -> str:
        """The text that the save puts in."""
        return self.new.format(n=self.size(number))

    def text(self, number: int) -> str:
        """The whole file as saved."""
        source = self.source or (EXAMPLES / self.file).read_text(encoding="utf-8")
        if self.old not in source:
            raise ValueError(f"{self.file} no longer contains {self.old!r}: adapt benchmarks/saves.py")
        return source.replace(self.old, self.edit(number))

    def fresh(self, number: int) -> Callable[[str], bool]:
        """Does a hint's label speak of this save? It names the new size as a dimension."""
        return re.compile(rf"\b{self.size(number)}\b").search  # type: ignore[return-value]


LENET = "\n\nwith torch.no_grad():\n    print(LeNet()(torch.randn(4, 1, 28, 28)).shape)\n"
LLAMA = "\n\nwith torch.no_grad():\n    print(Llama(LlamaArgs())(torch.randint(0, 4096, (2, 32))).shape)\n"

SAVES = (
    Save("mlp.py", "hidden=(64, 32, 32)", "hidden=(64, {n}, 32)", 41),
    Save("lenet.py", "self.fc3 = nn.Linear(84, num_classes)", "self.fc3 = nn.Linear(84, {n})", 41, forward=LENET),
    Save("gpt.py", "n_embd=128)", "n_embd={n})", 132, 4),
    Save("resnet.py", "def resnet18(num_classes=1000)", "def resnet18(num_classes={n})", 1001),
    Save("llama.py", "ffn_dim: int = 1408", "ffn_dim: int = {n}", 1409, forward=LLAMA),
    Save("bert_hf.py", "config = BertConfig()", "config = BertConfig(hidden_size={n})", 780, 12),
)
