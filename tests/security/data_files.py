"""Files of tensors that somebody made to do harm, and good ones to be damaged.

A row of `HOSTILE`: the file's name, its bytes, and words of the error that it must come to; "" where it may be read.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import random
import struct
import warnings
import zipfile
from collections.abc import Iterator

import numpy
import torch

_MANY = 1 << 60
_FLOATS = 66 << 20


class Bomb:
    """Unpickling it changes the time of a file."""

    def __init__(self, canary: str) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, ...]:
        import os

        return os.utime, (self.canary,)


def npy(shape: str, data: bytes = bytes(16), kind: str = "'<f4'") -> bytes:
    """A .npy file whose header says what it likes."""
    about = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    about += b" " * (-(len(about) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(about)) + about + data


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    """An archive; names may be given twice."""
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore", UserWarning)
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


def overlapping(times: int, content: bytes) -> bytes:
    """An archive of which every entry is the same bytes, so that it inflates `times` over."""
    plain = zipped(("x.npy", content))
    at = plain.index(b"PK\x01\x02")
    body, entry, end = plain[:at], plain[at : plain.index(b"PK\x05\x06")], bytearray(plain[-22:])
    entries = b"".join(entry.replace(b"x.npy", f"{chr(97 + index)}.npy".encode()) for index in range(times))
    struct.pack_into("<HHL", end, 8, times, times, len(entries))
    return body + entries + bytes(end)


def link(target: str) -> tuple[zipfile.ZipInfo, bytes]:
    """An entry that says that it is a symbolic link."""
    entry = zipfile.ZipInfo("x.npy")
    entry.external_attr = 0o120777 << 16
    return entry, target.encode()


def saved(value: object, **options: bool) -> bytes:
    """What torch.save writes."""
    file = io.BytesIO()
    torch.save(value, file, **options)  # type: ignore[arg-type]
    return file.getvalue()


def pickled(program: bytes, pt: bytes) -> bytes:
    """A file of torch.save's with another pickle."""
    with zipfile.ZipFile(io.BytesIO(pt)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    return zipped(*((name, program if name.endswith("data.pkl") else content) for name, content in members))


GOOD_PT = saved({"input": torch.arange(4.0)})
GOOD_PICKLE = zipfile.ZipFile(io.BytesIO(GOOD_PT)).read("archive/data.pkl")


def long(number: int) -> bytes:
    """A pickle's opcode for an integer of eight bytes."""
    return b"\x8a\x08" + struct.pack("<q", number)


def _shares() -> list[object]:
    inner: list[object] = []
    for _ in range(60):
        inner = [inner, inner]
    return inner


def _holds_itself() -> list[object]:
    inner: list[object] = []
    inner.append(inner)
    return inner


def hostile(canary: str) -> Iterator[tuple[str, bytes, str]]:
    """Each file that was thought of; `canary` is what code in it would touch."""
    bomb = Bomb(canary)
    yield from _archives()
    yield from _arrays(bomb)
    yield from _tensors(bomb)
    for number, code in enumerate(pickletools.opcodes):
        for before in (
            b"",
            b"(",
            b"K\x01",
            b"]K\x01",
            b"ctorch\nFloatStorage\n)",
            f"cos\nutime\n(V{canary}\nt".encode(),
        ):
            program = b"\x80\x02" + before + code.code.encode("latin-1") + _argument(code) + b"."
            yield f"opcode{number}-{len(before)}.pt", pickled(program, GOOD_PT), ""


def _argument(code: pickletools.OpcodeInfo) -> bytes:
    """Bytes that an opcode may read: lines, numbers and lengths of something short."""
    if code.arg is None:
        return b""
    if code.arg.n == pickletools.UP_TO_NEWLINE:
        return b"os\nsystem\n" if "pair" in code.arg.name else b"1\n"
    if code.arg.n < 0:
        return struct.pack("<Q", 2)[: {-2: 1, -3: 4, -4: 4, -5: 8}[code.arg.n]] + b"ab"
    return bytes([1] * code.arg.n)


def _archives() -> Iterator[tuple[str, bytes, str]]:
    array, zeros = npy("(4,)"), npy(f"({_FLOATS},)", bytes(4 * _FLOATS))
    bomb, told = zipped(("input.npy", zeros)), "in memory; if that is meant, save it uncompressed"
    yield "bomb.npz", bomb, told
    yield "bomb.pt", zipped(("a/data.pkl", GOOD_PICKLE), ("a/data/0", zeros)), told
    yield "overlapping.npz", overlapping(20, npy("(4194304,)", bytes(1 << 24))), told
    yield "nested.npz", zipped(("x.npz", bomb)), "expected np.ndarray"
    yield "outside.npz", zipped(("../../x.npy", array), ("/tmp/x.npy", array), ("input.npy", array)), ""
    yield "twice.npz", zipped(("input.npy", array), ("input.npy", array)), ""
    yield "link.npz", zipped(link("/etc/passwd")), "expected np.ndarray"
    yield "text.npz", zipped(("x.txt", b"hello")), "expected np.ndarray"
    yield "none.npz", zipped(), "no input, which the model takes"


def _arrays(bomb: Bomb) -> Iterator[tuple[str, bytes, str]]:
    objects = io.BytesIO()
    numpy.save(objects, numpy.array([bomb], dtype=object), allow_pickle=True)
    shapes = {
        "huge": f"({_MANY},)", "big": "(10000000000,)", "overflow": "(4294967296, 4294967296, 4294967296)",
        "negative": "(-5,)", "call": "(__import__('os').abort(),)", "text": "'x'", "deep": "(" * 4000 + ")" * 4000,
    }  # fmt: skip
    for name, shape in shapes.items():
        yield f"{name}.npy", npy(shape), "cannot be read"
        yield f"{name}.npz", zipped(("x.npy", npy(shape))), "cannot be read"
    for name, kind in (("objects", "'|O'"), ("record", "[('a', '<f4')]"), ("words", "'<U4'"), ("swapped", "'>f4'")):
        yield f"{name}.npy", npy("(4,)", kind=kind), "cannot be read"
    yield "pickled.npy", objects.getvalue(), "it holds Python objects"
    yield "pickled.npz", zipped(("x.npy", objects.getvalue())), "it holds Python objects"
    yield "header.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "cannot be read"
    yield "version.npy", b"\x93NUMPY\x09\x00" + bytes(90), "cannot be read"
    yield "empty.npy", b"", "cannot be read"


def _tensors(bomb: Bomb) -> Iterator[tuple[str, bytes, str]]:
    legacy = saved(torch.arange(4.0), _use_new_zipfile_serialization=False)
    runs = "it holds more than tensors"
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        yield f"bomb{protocol}.pt", pickled(pickle.dumps(bomb, protocol), GOOD_PT), runs
        yield f"bare{protocol}.pt", pickle.dumps(bomb, protocol), runs
    yield "state.pt", saved({"input": torch.zeros(4), "more": bomb}), runs
    yield "shape.pt", pickled(GOOD_PICKLE.replace(b"K\x04\x85", long(_MANY) + b"\x85"), GOOD_PT), "cannot be read"
    yield "count.pt", pickled(GOOD_PICKLE.replace(b"cpuq\x06K\x04", b"cpuq\x06" + long(1 << 40)), GOOD_PT), ""
    yield "offset.pt", pickled(GOOD_PICKLE.replace(b"QK\x00", b"Q" + long(1 << 40)), GOOD_PT), "cannot be read"
    yield "legacy.pt", legacy.replace(b"K\x04N", long(1 << 31) + b"N"), "cannot be read"
    yield "deep.pt", pickled(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".", GOOD_PT), ""
    yield "text.pt", pickled(b"\x80\x02X\xff\xff\xff\x7fabc.", GOOD_PT), "cannot be read"
    yield "memo.pt", pickled(b"\x80\x02K\x01r\xff\xff\xff\x7f.", GOOD_PT), ""
    yield "shares.pt", saved(_shares()), ""
    yield "itself.pt", saved(_holds_itself()), ""
    yield "sparse.pt", saved({"input": torch.sparse_coo_tensor([[0]], [1.0], (1 << 40,))}), "save it dense"
    yield "stride.pt", saved({"input": torch.zeros(1).expand(1 << 40)}), ""
    yield "header.safetensors", struct.pack("<Q", 50_000) + b"[" * 50_000, "is not a file of tensors"
    yield "promise.safetensors", _promise(), "is cut off"


def _promise() -> bytes:
    header = b'{"input":{"dtype":"F32","shape":[1152921504606846976],"data_offsets":[0,4611686018427387904]}}'
    return struct.pack("<Q", len(header)) + header + bytes(16)


def damaged(good: bytes, dice: random.Random) -> bytes:
    """A file with a few bytes changed, taken out, put in or doubled, or its end cut off."""
    found = bytearray(good)
    for _ in range(dice.randint(1, 4)):
        at, length = dice.randrange(len(found)), dice.choice((0, 1, 1, 2, 4, 8))
        piece = dice.choice((dice.randbytes(length), b"\xff" * length, bytes(length), found[at : at + 4 * length]))
        found[at : at + dice.choice((0, length))] = piece
    return bytes(found[: dice.randrange(len(found))] if dice.random() < 0.1 else found)


def programs(dice: random.Random) -> bytes:
    """A file of torch.save's whose pickle is opcodes in any order, with arguments that fit."""
    names = (b"cos\nsystem\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nFloatStorage\n", b"cposix\nutime\n",
             b"ccollections\nOrderedDict\n", b"ctorch.nn.parameter\nParameter\n", b"cbuiltins\neval\n")  # fmt: skip
    codes = dice.choices(pickletools.opcodes, k=dice.randint(2, 25))
    parts = [dice.choice(names) if dice.random() < 0.2 else c.code.encode("latin-1") + _argument(c) for c in codes]
    return pickled(b"\x80\x02" + b"".join(parts) + b".", GOOD_PT)
