"""Files of tensors from anywhere: numbers or one clear error, little memory, nothing run, nothing written.

What passes take as `data` (`.npz`, `.npy`, `.pt`, `.safetensors`) is read in a process of its own, under limits of the
system, so that a crash, a leak or an endless loop in numpy's and torch's own readers counts as well.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import data_files
import numpy
import pytest
import torch

from mase_server.ir.checkpoint import export
from tests.conftest import SEARCH
from tests.ir.checkpoints import small, write_body, write_tensors_again

ROOT = Path(__file__).parents[2]
LONG_AGO = 1_000_000_000
#: Bytes that reading one of these files may take, which are small themselves; and damaged files of each kind.
ROOM = 192 << 20
TIMES = 2000 if SEARCH else 40
SEED = random.randrange(1 << 30) if SEARCH else 9


class Place:
    """A folder of files, a canary beside it, and a process that reads."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "files"
        self.folder.mkdir()
        self.canary = home / "canary"
        self.canary.touch()
        os.utime(self.canary, (LONG_AGO, LONG_AGO))
        self.wanted: list[tuple[str, Path]] = []

    def put(self, name: str, content: bytes) -> None:
        """A file that passes are to read as data."""
        (self.folder / name).write_bytes(content)
        self.wanted.append(("data", self.folder / name))

    def read(self) -> dict[str, dict[str, object]]:
        """How each file went, by name; that nothing was written or run, and the reader lived to the end."""
        before = self._content()
        (self.folder.parent / "list").write_text("".join(f"{kind} {path}\n" for kind, path in self.wanted))
        command = [sys.executable, "-m", "tests.security.reading", str(self.folder.parent / "list")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        told = [json.loads(line) for line in done.stdout.splitlines()]
        ended = f"status {done.returncode} at {self.wanted[len(told) :][:1]}, seed {SEED}: {done.stderr[-2000:]}"
        assert (done.returncode, len(told)) == (0, len(self.wanted)), ended
        assert self.canary.stat().st_mtime == LONG_AGO, "something of a file was run"
        assert self._content() == before
        return {path.name: each for (_, path), each in zip(self.wanted, told, strict=True)}

    def _content(self) -> dict[Path, tuple[int, int]]:
        home = self.folder.parent
        found = (each for each in home.rglob("*") if each.name != "list")
        return {each: (each.stat().st_size, each.stat().st_mtime_ns) for each in found if each.is_file()}


def wrong(told: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    """Those that took much memory, or ended in an error that is none of the documented ones or does not name them."""
    return {
        name: each
        for name, each in told.items()
        if each["grew"] > ROOM  # type: ignore[operator]
        or (each["raised"] and ("ValueError" not in each["raised"] or not _says(name, str(each["text"]))))  # type: ignore[operator]
    }


def _says(name: str, text: str) -> bool:
    """Does an error name the file, or the input that does not fit, without advice to run what is in it?"""
    return (name in text or text.startswith("data: ")) and "weights_only" not in text and "allow_pickle" not in text


def test_no_file_that_was_made_to_harm_does(tmp_path):
    place, words = Place(tmp_path), {}
    for name, content, expected in data_files.hostile(str(place.canary)):
        place.put(name, content)
        words[name] = expected
    told = place.read()
    assert wrong(told) == {}
    silent = {name: told[name] for name, expected in words.items() if expected not in str(told[name]["text"])}
    assert silent == {}
    assert len(told) > 400


def test_no_damage_does_more_than_an_error(tmp_path):
    dice, place = random.Random(SEED), Place(tmp_path)
    arrays, tensors = {"input": numpy.zeros((4, 3), "f4")}, tmp_path / "good.safetensors"
    numpy.savez(tmp_path / "plain.npz", **arrays)
    numpy.savez_compressed(tmp_path / "packed.npz", **arrays)
    numpy.save(tmp_path / "one.npy", arrays["input"])
    (tmp_path / "new.pt").write_bytes(data_files.saved({"input": torch.zeros(4, 3), "more": [(1, 2.0), "x"]}))
    (tmp_path / "old.pt").write_bytes(data_files.saved(torch.zeros(4, 3), _use_new_zipfile_serialization=False))
    export(small(), tmp_path / "good")
    tensors.write_bytes((tmp_path / "good.pt").read_bytes())
    for good in [each for each in sorted(tmp_path.iterdir()) if each.suffix in (".npz", ".npy", ".pt", ".safetensors")]:
        for number in range(TIMES):
            place.put(f"{good.stem}{number}{good.suffix}", data_files.damaged(good.read_bytes(), dice))
    for number in range(2 * TIMES):
        place.put(f"program{number}.pt", data_files.programs(dice))
    _checkpoints(place, dice)
    told = place.read()
    assert wrong(told) == {}, f"seed {SEED}"
    assert any(not each["raised"] for each in told.values()), "some damage does no harm, or nothing was read at all"


def _checkpoints(place: Place, dice: random.Random) -> None:
    """Checkpoints of our own with damage behind the checksums."""
    head = 44
    for number in range(TIMES):
        path = place.folder / f"own{number}"
        export(small(), path)
        if number % 2:
            write_body(path, data_files.damaged(Path(f"{path}.mz").read_bytes()[head:], dice))
        else:
            good = Path(f"{path}.pt").read_bytes()
            write_tensors_again(path, data_files.damaged(good[:600], dice) + good[600:])
        place.wanted.append(("checkpoint", path))


def test_what_is_compressed_well_and_small_is_read(tmp_path):
    from mase_server.passes.data import read_batches

    numpy.savez_compressed(tmp_path / "zeros.npz", input=numpy.zeros((1000, 1000), "f4"))
    (batch,) = read_batches(str(tmp_path / "zeros.npz"))
    assert torch.equal(batch["input"], torch.zeros(1000, 1000))


@pytest.mark.parametrize("name", ["one.bin", "one.ckpt", "one.pth"])
def test_the_usual_endings_of_state_dicts_are_known(name, tmp_path):
    from mase_server.passes.data import read_content

    torch.save({"w": torch.ones(2)}, tmp_path / name)
    assert torch.equal(read_content(str(tmp_path / name), "checkpoints")["w"], torch.ones(2))
