"""A text is traced alike whether it is typed, in a child that rehearsed and knows what the text before left, or opened.

MASE_SEARCH=1 types other edits every time, and many more of them; MASE_SEED repeats those that a failure names.
MASE_FILES names further files, and MASE_EDITS says how many edits each file gets.
"""

import ast
import os
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mase_server.daemon.launcher import ForkLauncher
from mase_server.daemon.process import DEFAULT_JOB

from .test_rehearsal import follow

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux alone")

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Files without a library that takes seconds to import.
FILES = "lenet.py", "mlp.py", "gpt.py", "resnet.py", "vit.py", "lstm_classifier.py", "vae.py", "transformer_encoder.py"
FURTHER = [Path(each) for each in os.environ.get("MASE_FILES", "").split(os.pathsep) if each]
SEARCH = bool(os.environ.get("MASE_SEARCH"))
SEED = int(os.environ.get("MASE_SEED", random.randrange(10**6) if SEARCH else 7))
#: Edits of each file.
EDITS = int(os.environ.get("MASE_EDITS", 250 if SEARCH else 3))
#: Edits on top of each other, before everything is undone.
UNDO_AFTER = 4


def change_number(rng: random.Random, lines: list[str], row: int) -> None:
    """Another number, or the same one again."""
    numbers = list(re.finditer(r"\b\d+\b", lines[row]))
    if numbers:
        found = rng.choice(numbers)
        value = rng.choice((int(found[0]) + 1, 2 * int(found[0]), max(int(found[0]) - 1, 0), 7))
        lines[row] = f"{lines[row][: found.start()]}{value}{lines[row][found.end() :]}"


def rename(rng: random.Random, lines: list[str], row: int) -> None:
    """One name becomes another one of the file, in a line: often a mistake."""
    names = re.findall(r"\b[a-z_]\w*\b", lines[row])
    if names:
        others = re.findall(r"\b[a-z_]\w*\b", "\n".join(lines))
        lines[row] = re.sub(rf"\b{rng.choice(names)}\b", rng.choice(others), lines[row], count=1)


def remove(rng: random.Random, lines: list[str], row: int) -> None:
    del lines[row]


def repeat(rng: random.Random, lines: list[str], row: int) -> None:
    lines.insert(row, lines[row])


def swap(rng: random.Random, lines: list[str], row: int) -> None:
    if row + 1 < len(lines):
        lines[row : row + 2] = reversed(lines[row : row + 2])


def insert(rng: random.Random, lines: list[str], row: int) -> None:
    indent = _indent(lines[row])
    made = (
        "x = x * 2",
        "x = x.flatten(1)",
        "x = x[..., :2]",
        "import math",
        "# a note",
        "assert x.shape[0] > 1",
        "return x",
    )
    lines.insert(row, indent + rng.choice(made))


def reorder(rng: random.Random, lines: list[str], row: int) -> None:
    lines.insert(rng.randrange(len(lines)), lines.pop(row))


def change_default(rng: random.Random, lines: list[str], row: int) -> None:
    """A parameter more, with a default, or another default."""
    row = _next_row(lines, row, r"\s*def \w+\(.*\)")
    other = re.sub(r"=\s*\d+(?=[,)])", f"={rng.randrange(1, 9)}", lines[row], count=1)
    head, closed, tail = lines[row].rpartition(")")
    lines[row] = other if other != lines[row] else f"{head}, extra={rng.choice(('None', '2', '(1, 2)'))}{closed}{tail}"


def decorate(rng: random.Random, lines: list[str], row: int) -> None:
    row = _next_row(lines, row, r"\s*(def|class) ")
    made = "@torch.no_grad()", "@staticmethod", "@property", "@torch.jit.ignore", "@str", "@unknown"
    lines.insert(row, _indent(lines[row]) + rng.choice(made))


def nest(rng: random.Random, lines: list[str], row: int) -> None:
    """A function within a function, and a call of it."""
    row = _next_row(lines, row, r"\s+\w+ = ")
    indent, name = _indent(lines[row]), _first_word(lines[row])
    body = rng.choice(("t", "t * 2", "t.flatten(1)", "t[..., :3]", "(t, t)[1]", "t + width"))
    made = "def inner(t, width=3):", f"    return {body}", f"{name} = inner({name})"
    lines[row + 1 : row + 1] = [indent + each for each in made]


def change_class(rng: random.Random, lines: list[str], row: int) -> None:
    """An attribute or a method of a class, or another base."""
    row = _next_row(lines, row, r"class \w+\(")
    kind = rng.randrange(3)
    if kind == 0:
        made = "scale = 3", "training = False", "__slots__ = ()", "head = None", "width: int = 4"
        lines.insert(row + 1, f"    {rng.choice(made)}")
    elif kind == 1:
        lines[row + 1 : row + 1] = ["    def extra_repr(self):", "        return str(self.training)", ""]
    else:
        own = re.findall(r"^class (\w+)", "\n".join(lines), re.M)
        bases = "nn.Sequential", "object", "nn.Identity", "torch.nn.Module", *own
        lines[row] = re.sub(r"\(.*\)", f"({rng.choice(bases)})", lines[row])


def change_module(rng: random.Random, lines: list[str], row: int) -> None:
    """A statement of the file itself."""
    row = _next_row(lines, row, r"(class|def|import|from|[A-Z]\w* = ) ?")
    made = (
        "SIZE = 5",
        "import os",
        "torch.manual_seed(3)",
        "torch.set_default_dtype(torch.float64)",
        "nn.Linear = nn.Identity",
        "from torch.nn import functional as F",
        "del nn",
        "SIZES = [n for n in range(3)]",
    )
    lines.insert(row, rng.choice(made))


def change_constructor(rng: random.Random, lines: list[str], row: int) -> None:
    """A layer more, one less, or one of another kind."""
    row = _next_row(lines, row, r"\s+self\.\w+ = ")
    indent, kind = _indent(lines[row]), rng.randrange(4)
    if kind == 0:
        lines.insert(row, f"{indent}self.extra = nn.Linear(4, {rng.randrange(1, 9)})")
    elif kind == 1:
        lines[row] = re.sub(r"nn\.\w+\(", f"nn.{rng.choice(('Identity', 'ReLU', 'Linear', 'LayerNorm'))}(", lines[row])
    elif kind == 2:
        lines.insert(row + 1, f"{indent}{_first_word(lines[row])}.weight = None")
    else:
        lines[row] = f"{indent}pass"


def fail(rng: random.Random, lines: list[str], row: int) -> None:
    """A mistake in a function."""
    row = _next_row(lines, row, r"\s+\w+ = ")
    indent, name = _indent(lines[row]), _first_word(lines[row])
    made = (
        f"{name} = {name} @ torch.zeros(3, 7)",
        "raise ValueError('no')",
        f"{name} = {name}.view(-1, 13)",
        f"{name}.missing",
        f"{name} = undefined({name})",
        f"{name} = torch.cat([{name}, {name}[:1]], 1)",
        f"assert {name} is None",
        "1 / 0",
    )
    lines.insert(row + 1, indent + rng.choice(made))


def _next_row(lines: list[str], row: int, pattern: str) -> int:
    """The first row from `row` on, and then from the first, that matches; `row` itself if there is none."""
    turned = [*range(row, len(lines)), *range(row)]
    return next((each for each in turned if re.match(pattern, lines[each])), row)


def _first_word(line: str) -> str:
    return (line.split() or ["x"])[0]


def _indent(line: str) -> str:
    return re.match(r"\s*", line)[0]


#: Kinds that are drawn twice as often as the others.
OFTEN = change_number, change_number, insert, nest, change_constructor, fail
KINDS = (*OFTEN, *OFTEN, rename, remove, repeat, swap, reorder, change_default, decorate, change_class, change_module)


def edits(text: str, rng: random.Random) -> Iterator[str]:
    """Texts that parse, each an edit away from the one before, until all are undone and it begins anew."""
    while True:
        lines = text.split("\n")
        for _ in range(UNDO_AFTER):
            tried, kind = list(lines), rng.choice(KINDS)
            kind(rng, tried, rng.randrange(len(tried)))
            try:
                ast.parse("\n".join(tried))
            except (SyntaxError, ValueError):
                continue
            yield "\n".join(tried)
            if kind is fail:  # and mend it
                yield "\n".join(lines)
            else:
                lines = tried


@pytest.mark.timeout(3 * 60 * 60 if SEARCH else 300)
async def test_typed_text_is_traced_as_saved_text_is(tmp_path):
    launcher = await ForkLauncher.start(sys.executable, str(tmp_path), DEFAULT_JOB)
    shown, wrong = 0, []
    try:
        for file in [*(EXAMPLES / name for name in FILES), *FURTHER]:
            path, source = tmp_path / file.name, file.read_text()
            texts, fit = edits(source, random.Random(f"{SEED} {file.name}")), b""
            for number in range(EDITS):
                text = next(texts)
                path.write_text(source)
                typed = await follow(launcher, path, prepared=True, unsaved=text, fit=fit)
                path.write_text(text)
                saved = await follow(launcher, path, prepared=False)
                if saved["unshown"] or not all(each["complete"] for each in saved["models"] + typed["models"]):
                    # Inputs with which a model ran are kept while it fails.
                    saved = await follow(launcher, path, prepared=False, fit=fit)
                fit = typed.pop("fit") or fit
                saved.pop("fit")
                shown += bool(saved["models"])
                keys = [key for key in saved if typed[key] != saved[key]]
                if "values" not in saved:
                    print(f"no payload after edit {number} of {file}, MASE_SEED={SEED}: {saved['problems']}\n{text}")
                wrong += [f"{keys} after edit {number} of {file}, MASE_SEED={SEED}:\n{text}"] if keys else []
                assert SEARCH or not wrong, wrong[0]
            path.unlink()
            print(f"{file}: {EDITS} edits, MASE_SEED={SEED}, {len(wrong)} different so far", flush=True)
    finally:
        await launcher.close()
    assert not wrong, f"{len(wrong)} edits: " + "\n\n".join(wrong)
    assert shown > EDITS, "most edits leave a model"
