"""What a seeded bug is: one edit of a clean file, where its diagnostic belongs, and what that has to say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent.parent
#: Where the clean files are, by the first part of a bug's `file`.
FOLDERS = {
    "clean": TESTS / "bugs" / "clean",
    "corpus": TESTS / "inputs" / "corpus",
    "examples": TESTS.parent / "examples",
}
#: The quick fix gives the clean file back.
UNDONE = "undone"
#: Whatever the quick fix writes, the file traces with it.
MENDED = "mended"


@dataclass(frozen=True, slots=True)
class Bug:
    """`old` becomes `new` in a clean file.

    at: on the line where an expert would point.  says: what the message has to match.  fix: "" where there need not be
    a quick fix, `UNDONE`, `MENDED`, or text that the mended file has to contain.  missed: it is not told at its line.
    """

    kind: str
    file: str
    old: str
    new: str
    at: str
    says: str
    fix: str = ""
    missed: bool = False

    @property
    def name(self) -> str:
        """The test's name."""
        return f"{self.kind}-{self.file.partition('/')[2]}"

    def seeded(self) -> str:
        """The file with the bug; the place is unique."""
        text = clean_text(self.file)
        assert text.count(self.old) == 1, f"{self.name}: {text.count(self.old)} places of {self.old!r}"
        return text.replace(self.old, self.new)

    def lines(self) -> list[int]:
        """The numbers of the lines where the diagnostic may stand."""
        found = [number for number, line in enumerate(self.seeded().split("\n"), 1) if self.at in line]
        assert found, f"{self.name}: no line has {self.at!r}"
        return found


def clean_path(file: str) -> Path:
    """The clean file `folder/stem`."""
    folder, _, stem = file.partition("/")
    return FOLDERS[folder] / f"{stem}.py"


def clean_text(file: str) -> str:
    """The text of the clean file `folder/stem`."""
    return clean_path(file).read_text(encoding="utf-8")
