"""Does a text that is typed get the answer that it gets when it is opened? Many random edits of many files.

Typed: a child that has rehearsed traces the editor's text over the saved file, and knows what the trace of the text
before left. Opened: a child traces the same text from the disk and knows nothing. Both must tell the same: shapes,
symbols, problems, assumptions, dependencies, all that a payload holds, except seconds and the modules to preload. Only
where a model is not shown, or fails, may an opened text know what the typed one knew: inputs with which a model ran are
kept while it fails.

Both are traced in forks of processes that have imported torch and the compiler half, and nothing of a file. What they
share is what a fresh process has after its imports. A fork cannot write to its origin, so no trace finds anything of
another one. The origin has rehearsed, as a child that waits for a request has; one in ten texts is opened in a fork of
an origin that has not, as the first child of a warm parent is, so what a rehearsal leaves would be seen there. A text
that comes again, by an undo, is typed again, since what the child knows differs, but opened once: if another opening
told something else, the text typed would differ from one of the two.

A third child runs ahead with the text before, as the server has it do. If it goes on with the typed text, it must tell
the same, too; the share of edits with which it does is told.

An edit within functions must be answered while it is typed (`mase_server.daemon.discovery` decides). Texts that wait
for the save are saved here, and compared, too.

Usage: python benchmarks/typed.py [--edits 50] [--seconds 60] [--seed 1] [--failures FILE] [FILE_OR_FOLDER ...],
by default the examples and the files of the tests.
"""

from __future__ import annotations

import argparse
import ast
import gc
import hashlib
import io
import json
import os
import pickle
import random
import re
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from figures import tell

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Asked in another way whether there is a GPU, no fork could.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

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


def rename_everywhere(rng: random.Random, lines: list[str], row: int) -> None:
    """A class, a function or a name gets another name in the whole file."""
    names = re.findall(r"(?:\b(?:class|def) |self\.|^\s*)(\w+)(?= ?[=(:])", "\n".join(lines), re.M)
    if names:
        name = rng.choice(names)
        lines[:] = [re.sub(rf"\b{name}\b", f"{name}_two", line) for line in lines]


def swap_operands(rng: random.Random, lines: list[str], row: int) -> None:
    row = _next_row(lines, row, r".*\w ([-+*/@]|//) \w")
    lines[row] = re.sub(r"([\w.]+) ([-+*/@]|//) ([\w.]+)", r"\3 \2 \1", lines[row], count=1)


def swap_arguments(rng: random.Random, lines: list[str], row: int) -> None:
    row = _next_row(lines, row, r".*\(\w+, \w+")
    lines[row] = re.sub(r"\((\w+), (\w+)", r"(\2, \1", lines[row], count=1)


def remove(rng: random.Random, lines: list[str], row: int) -> None:
    del lines[row]


def comment_out(rng: random.Random, lines: list[str], row: int) -> None:
    """A line becomes a comment, or stops to be one."""
    indent, text = _indent(lines[row]), lines[row].lstrip()
    lines[row] = indent + (text.removeprefix("#").lstrip() if text.startswith("#") else f"# {text}")


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
        "x = x if x.shape[0] > 3 else x + 1",
        "x = torch.stack([x for _ in range(2)])",
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
    body = rng.choice(("t", "t * 2", "t.flatten(1)", "t[..., :3]", "(t, t)[1]", "t + width", f"t + {name}"))
    made = "def inner(t, width=3):", f"    return {body}", f"{name} = inner({name})"
    lines[row + 1 : row + 1] = [indent + each for each in made]


def paste_method(rng: random.Random, lines: list[str], row: int) -> None:
    """A method more, which a forward may call, or which takes the place of another one."""
    row = _next_row(lines, row, r"    def \w+\(self")
    own = re.findall(r"    def (\w+)\(self", "\n".join(lines))
    name = rng.choice(("pasted", "forward", "reset_parameters", "extra_repr", *own))
    body = rng.choice(("x * 2", "self.training", "super().forward(x)", "self.pasted(x)", "torch.relu(x)", "x, x"))
    lines[row:row] = [f"    def {name}(self, x=None):", f"        return {body}", ""]


def copy_method(rng: random.Random, lines: list[str], row: int) -> None:
    """A method is there twice, below each other: the second one counts."""
    starts = [at for at, line in enumerate(lines) if re.match(r"    def ", line)]
    if starts:
        start = rng.choice(starts)
        end = next((at for at in range(start + 1, len(lines)) if re.match(r" {0,4}\S", lines[at])), len(lines))
        lines[end:end] = lines[start:end]


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
    found = re.match(r"\s*", line)
    return found[0] if found else ""


#: The share of edits that begin at an indented line.
INSIDE = 0.85
#: Kinds that are drawn twice as often as the others.
OFTEN = change_number, change_number, insert, nest, change_constructor, fail
KINDS = (
    *OFTEN, *OFTEN, rename, rename_everywhere, swap_operands, swap_arguments, remove, comment_out, repeat, swap,
    reorder, change_default, decorate, paste_method, copy_method, change_class, change_module,
)  # fmt: skip


def edits(text: str, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Kinds of edits and the texts after them, which parse, each an edit or an undo away from the one before."""
    done = [text]
    while True:
        if len(done) > 1 and (len(done) > UNDO_AFTER or rng.random() < 0.25):
            done[rng.choice((1, -1)) :] = []
            yield "undo", done[-1]
            continue
        lines, kind = done[-1].split("\n"), rng.choice(KINDS)
        inside = [row for row, line in enumerate(lines) if _indent(line)] if rng.random() < INSIDE else []
        kind(rng, lines, rng.choice(inside or range(len(lines))))
        other = "\n".join(lines)
        try:
            ast.parse(other)
        except (SyntaxError, ValueError):  # no text of these is traced: the next edit mends it, together with its own
            continue
        if other == done[-1]:
            continue
        done.append(other)
        yield kind.__name__, other
        if kind is fail:
            done.pop()
            yield "mend", done[-1]


def outside_functions(text: str) -> str:
    """A text without the statements of its functions: edits of texts that are equal here are edits within functions."""
    tree = ast.parse(text)
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            each.body = []
    return ast.dump(tree)


class Origin:
    """A process with everything imported, which forks a child for each trace that it is asked for."""

    def __init__(self, *, rehearsed: bool) -> None:
        asked, self._ask = os.pipe()
        self._told, tell = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._ask)
            os.close(self._told)
            status = 1
            try:
                _serve(asked, tell, rehearsed=rehearsed)
                status = 0
            finally:
                os._exit(status)
        os.close(asked)
        os.close(tell)
        self._answers = os.fdopen(self._told, "rb")

    def trace(self, request: Any, before: Any = None) -> dict[str, Any]:
        """The last payload of a trace, without what differs from run to run.

        before: the request with which the child runs ahead; REFUSED if it does not go on.
        """
        _write(self._ask, pickle.dumps((request, before)))
        found: dict[str, Any] = pickle.load(self._answers)
        return found

    def close(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._ask)
        self._answers.close()


def _write(descriptor: int, data: bytes) -> None:
    for start in range(0, len(data), 1 << 16):
        os.write(descriptor, data[start : start + (1 << 16)])


def _serve(asked: int, tell: int, *, rehearsed: bool) -> None:
    from mase_server.daemon.process import DEFAULT_JOB
    from mase_server.worker.jobs import run_rehearsal

    gc.disable()  # as a trace child does
    if rehearsed:
        run_rehearsal(DEFAULT_JOB)
    with os.fdopen(asked, "rb") as requests:
        while True:
            try:
                request, before = pickle.load(requests)
            except EOFError:
                return
            _write(tell, _trace_in_fork(request, before))


def _trace_in_fork(request: Any, before: Any) -> bytes:
    """The pickled payload of a trace in a child of its own; what the child leaves running ends with it."""
    from mase_server.worker.parent import become_own_group

    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(told)
        try:
            with open(os.devnull, "w", encoding="utf-8") as null:
                os.dup2(null.fileno(), 1)
                os.dup2(null.fileno(), 2)
            become_own_group()
            if before is not None:
                _write(tell, pickle.dumps({REFUSED: True}))
            payload = _run(request, before)
            _write(tell, pickle.dumps(payload))
        finally:
            _EXIT(0)
    os.close(tell)
    data, end = bytearray(), time.monotonic() + MOST_SECONDS
    while select.select([told], [], [], max(0.0, end - time.monotonic()))[0] and (part := os.read(told, 1 << 20)):
        data += part
    os.close(told)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # it has not become a group yet
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        # The last payload counts.
        with io.BytesIO(data) as told_all:
            pickle.load(told_all)
            rest = told_all.read() if before is not None else b""
        return rest or bytes(data)
    except (EOFError, pickle.UnpicklingError):
        return pickle.dumps({DIED: f"no payload within {MOST_SECONDS} s, or the process died"})


def _run(request: Any, before: Any = None) -> dict[str, Any]:
    """Trace in this process, as a trace child does; the payload, or the problem that it ended with.

    before: the request with which it runs ahead. The process ends if it does not go on.
    """
    from mase_server import system
    from mase_server.daemon.process import DEFAULT_JOB
    from mase_server.protocol.snapshot import Assembler
    from mase_server.worker.parent import run_job

    collected, assembler, ahead = _Collected(request, before), Assembler(), before is not None
    system.call_with_room(
        lambda: run_job(collected, before if ahead else request, DEFAULT_JOB, ahead=ahead)  # type: ignore[arg-type]
    )
    payloads: list[Any] = []
    problems = []
    for message in collected.messages:
        if "frame" in message and (payload := assembler.add(message["frame"])) is not None:
            payloads.append(payload)
        elif message["event"] == "failed":
            problems.append(message["problem"])
    told: dict[str, Any] = payloads[-1] if payloads and not problems else {"models": [], "problems": problems}
    return {key: value for key, value in told.items() if key not in ("seconds", "preload")} | {
        "models": [{key: value for key, value in each.items() if key != "seconds"} for each in told["models"]]
    }


class _Collected:
    """Stands for the wire to the server."""

    def __init__(self, request: Any, before: Any) -> None:
        from mase_server.daemon.launcher import Ahead  # a trace must not be seen to read it

        self.ahead = Ahead
        self.messages: list[dict[str, Any]] = []
        self._request, self._before = request, before

    def read(self) -> dict[str, Any] | None:
        """The request for the text that is typed, for a child that has run ahead; None where none would be sent."""
        lines = tuple(map(tuple, self.messages.pop()["lines"]))
        goes_on = self.ahead(self._before, lines).may_go_on(self._request.path, self._request.texts[self._request.path])
        return {"request": self._request.to_wire()} if goes_on else None

    def send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)


#: Before any code of a file can replace it.
_EXIT = os._exit
#: A trace may take so long, on a busy machine; and so is called that one took longer, or died.
MOST_SECONDS, DIED = 150.0, "died"
#: What a child tells that has run ahead with another text and does not go on.
REFUSED = "refused"


@dataclass(slots=True)
class Counts:
    """How many edits of what sort there were, and how many of them differed."""

    edits: int = 0
    shown: int = 0
    differed: int = 0
    died: int = 0
    opened: int = 0
    inside: int = 0
    answered: int = 0
    ahead: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def line(self) -> str:
        """All of it."""
        share = 100 * self.answered / self.inside if self.inside else 100.0
        return (
            f"{self.edits} edits, {self.opened} texts opened, {self.shown} edits with models, {self.differed} differ, "
            f"{self.died} without a payload both ways; {self.answered} of {self.inside} edits within functions "
            f"answered while typed ({share:.1f} %), {self.ahead} where a child ran ahead"
        )


class Fuzz:
    """Edits of files, one file after another."""

    def __init__(self, folder: Path, seed: str, failures: Path | None) -> None:
        self.folder, self.seed, self.failures = folder, seed, failures
        self.plain, self.rehearsed = Origin(rehearsed=False), Origin(rehearsed=True)
        self.counts = Counts()

    def close(self) -> None:
        """End both origins."""
        self.plain.close()
        self.rehearsed.close()

    def play(self, file: Path, most: int, seconds: float) -> None:
        """So many edits of a file, for so many seconds at most."""
        home = Path(tempfile.mkdtemp(dir=self.folder)).resolve()
        path, source = home / file.name, file.read_text(encoding="utf-8")
        for each in file.parent.glob("*.py"):  # those that it imports
            shutil.copy(each, home)
        rng = random.Random(f"{self.seed} {file.name}")
        opened: dict[tuple[str, bytes], Mapping[str, Any]] = {}
        fit, before, saved, begun = b"", source, source, time.monotonic()
        for number, (kind, text) in enumerate(edits(source, rng)):
            if number == most or time.monotonic() - begun > seconds:
                break
            answers, counts = may_answer(path, saved, text), self.counts
            counts.edits += 1
            counts.kinds[kind] += 1
            if outside_functions(saved) == outside_functions(text):
                counts.inside += 1
                counts.answered += answers
            if answers:
                typed = self.trace(self.rehearsed, path, saved, text, fit)
                # A child that ran ahead goes on with none of another number of lines: that need not be tried.
                if before.count("\n") == text.count("\n"):
                    ahead = self.trace(self.rehearsed, path, saved, text, fit, before)
                    if REFUSED not in ahead:
                        counts.ahead += 1
                        self.compare(file, before, text, f"{kind}, ahead", fit, ahead, typed, path)
            else:  # it waits for the save
                saved = text
                typed = self.trace(self.rehearsed, path, saved, fit=fit)
            # While a model fails, the inputs with which it ran are kept.
            key = text, fit if _lacks_models(typed) else b""
            if key not in opened:
                self.counts.opened += 1
                origin = self.plain if self.counts.opened % PLAIN_EACH == 0 else self.rehearsed
                opened[key] = self.trace(origin, path, text, fit=key[1])
            counts.shown += bool(opened[key].get("models"))
            self.compare(file, before, text, kind, fit, typed, opened[key], path)
            fit, before = typed.get("fit") or fit, text
        shutil.rmtree(home, ignore_errors=True)

    def trace(
        self,
        origin: Origin,
        path: Path,
        saved: str,
        unsaved: str | None = None,
        fit: bytes = b"",
        before: str | None = None,
    ) -> Any:
        """The payload of a file with this text saved; unsaved: the text that is traced in its place.

        before: the unsaved text with which the child ran ahead.
        """
        from mase_server.protocol.request import TraceOptions, TraceRequest

        path.write_text(saved, encoding="utf-8")
        text, scratch = (saved if unsaved is None else unsaved).encode(), path.parent / "scratch"
        scratch.mkdir()
        request = TraceRequest(
            str(path), str(path.parent), hashlib.sha256(text).hexdigest(), 1, TraceOptions(), scratch=str(scratch),
            texts={} if unsaved is None else {str(path): text}, fit=fit,
        )  # fmt: skip
        first = None if before is None else replace(request, texts={str(path): before.encode()})
        found = origin.trace(request, first)
        shutil.rmtree(scratch, ignore_errors=True)
        return found

    def compare(
        self, file: Path, before: str, text: str, kind: str, fit: bytes, typed: Any, opened: Any, path: Path
    ) -> None:
        """Count a difference between two answers to an edit, and write it down."""
        counts = self.counts
        if DIED in typed and DIED in opened:
            counts.died += 1
            return
        if _lacks_models(opened) and not _lacks_models(typed):  # it was opened without them
            opened = self.trace(self.rehearsed, path, text, fit=fit)
        one, other = _rename_drawn(typed), _rename_drawn(opened)
        keys = [key for key in {*one, *other} - {"fit"} if one.get(key) != other.get(key)]
        if keys:
            counts.differed += 1
            where = f"{file}, seed {self.seed}, after {counts.edits} edits: {kind}: {', '.join(sorted(keys))}"
            print(f"DIFFER {where}", flush=True)
            if self.failures is not None:
                row = {
                    "where": where, "file": str(file), "kind": kind, "before": before, "text": text,
                    "fit": fit.decode(), "typed": {key: typed.get(key) for key in keys},
                    "opened": {key: opened.get(key) for key in keys},
                }  # fmt: skip
                with self.failures.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(row, default=repr) + "\n")


def may_answer(path: Path, saved: str, typed: str) -> bool:
    """Does the daemon trace a text as it is typed, or does the text wait for the save?"""
    from mase_server.daemon.discovery import discover_model

    before, after = (discover_model(str(path), each.encode()) for each in (saved, typed))
    return (
        after.problem is None and after.module_code == before.module_code and (after.has_model or not before.has_model)
    )


def _lacks_models(payload: Mapping[str, Any]) -> bool:
    return bool(payload.get("unshown")) or not all(each["complete"] for each in payload.get("models", ()))


def _rename_drawn(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A payload with one name for the folders that a program's own pytest draws at random, and looks for."""
    files = [[_DRAWN.sub("drawn", part) if isinstance(part, str) else part for part in each]
             for each in payload.get("dependencies", ())]  # fmt: skip
    return {**payload, "dependencies": files}


def files_in(given: Sequence[Path]) -> list[Path]:
    """The files with models among those given, and in the folders given."""
    found = [each for path in given for each in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    return [each for each in found if "nn.Module" in each.read_text(encoding="utf-8", errors="replace")]


#: A folder of pytest's cache, before it has its name.
_DRAWN = re.compile(r"pytest-cache-files-\w{8}")
#: One in so many opened texts is traced by a child whose origin did not rehearse.
PLAIN_EACH = 10


def main() -> int:
    """Edit all files and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "files", nargs="*", type=Path, default=[ROOT / "examples", ROOT / "tests" / "inputs" / "corpus"]
    )
    parser.add_argument("--edits", type=int, default=50, help="of each file")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each file, at most")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--failures", type=Path, help="differences are written here, as JSON lines")
    given = parser.parse_args()
    from mase_server.daemon.process import DEFAULT_JOB
    from mase_server.worker.parent import import_needed
    from mase_server.worker.preload import survey_modules

    import_needed(DEFAULT_JOB)
    survey_modules()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        fuzz = Fuzz(Path(folder), given.seed, given.failures)
        for file in files_in(given.files):
            try:
                fuzz.play(file, given.edits, given.seconds)
            except (SyntaxError, UnicodeDecodeError) as error:
                print(f"{file}: {error}")
            print(f"{file.name}: {fuzz.counts.line()}, {time.monotonic() - begun:.0f} s", flush=True)
        fuzz.close()
    print(", ".join(f"{name} {count}" for name, count in fuzz.counts.kinds.most_common()))
    tell("typed/differ", fuzz.counts.differed)
    if fuzz.counts.inside:
        tell("typed/answered", 100 * fuzz.counts.answered / fuzz.counts.inside)
    return fuzz.counts.differed > 0


if __name__ == "__main__":
    sys.exit(main())
