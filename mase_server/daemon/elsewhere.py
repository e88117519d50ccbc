"""Work on big texts in a short-lived process of our own: Python's parser holds all threads up until it is done.

Ten thousand lines take it a tenth of a second. Nothing of a person runs there: a text goes in, and comes out read.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from mase_server.programs import own_code

#: Texts of as many characters or bytes are worth a process.
WORTH = 64 << 10
_ROOT = str(Path(__file__).parents[2])
_CODE = (
    "import sys; sys.path.insert(0, {root!r}); from {module} import {function}; "
    "sys.stdout.buffer.write({function}(sys.stdin.buffer.read()))"
)


class ElsewhereError(Exception):
    """There is no such process, or it failed; the same work may still be done here."""


async def elsewhere(module: str, function: str, data: bytes) -> bytes:
    """What a function of this project that takes and gives bytes makes of `data`. ElsewhereError."""
    code = _CODE.format(root=_ROOT, module=module, function=function)
    pipe = asyncio.subprocess.PIPE
    try:
        process = await own_code(code).start_async(stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL)
    except OSError as error:
        raise ElsewhereError(str(error)) from error
    try:
        found, _ = await process.communicate(data)
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise ElsewhereError(f"{module}.{function} ended with {process.returncode}")
    return found
