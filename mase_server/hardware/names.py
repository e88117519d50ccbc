"""Identifiers of SystemVerilog from names of graph nodes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container
from pathlib import Path

#: Characters of a name: files are called by it, with something before and behind.
_LONGEST = 120

_WORDS = Path(__file__).parent / "templates" / "reserved_words.txt"

#: IEEE 1800-2017, annex B.
RESERVED = frozenset(_WORDS.read_text(encoding="utf-8").split())

#: What names of wires and instances are made with: a name that looks like one of them could become another's.
_MADE = re.compile(
    r"(_valid|_ready|_i|_skid|_cast|_fork|_fifo|_in_\d+|_width_\d+|_depth_\d+)$|^data_(in|out)_\d+$|^(clk|rst)$"
)


def identifier(name: str, taken: Container[str] = ()) -> str:
    """A name as an identifier that is no reserved word, cannot be mistaken for a made one, and is not taken yet."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    if text in RESERVED or _MADE.search(text) or text[:1].isdigit():
        text = f"op_{text}_op"
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - 11]}_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}_op"
    number, found = 1, text
    while found in taken:
        number += 1
        found = f"{text}_{number}_op"
    return found
