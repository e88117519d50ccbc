"""What never ends is stopped, at the line where it is, and holds up nobody meanwhile."""

from dataclasses import replace

import pytest
from checking import assert_mended, assert_told, good_file
from family import until
from patience import of_limit, scaled, share
from user_code import ENDLESS

#: Short enough for what never ends, and long enough for a good file on a busy machine.
SECONDS = 8
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def options():
    """A limit that suits the machine as it is."""
    return {"limits.seconds": scaled(SECONDS, share())}


def told(fault, limit):
    """A fault with what is said of it where the limit is another."""
    return replace(fault, says=tuple(of_limit(pattern, SECONDS, limit) for pattern in fault.says))


async def test_what_never_ends_is_stopped_and_holds_up_nobody(stand, options):
    faults = [told(fault, options["limits.seconds"]) for fault in ENDLESS.values()]
    files = {f"endless{number}.py": fault for number, fault in enumerate(faults)}
    before = stand.children()
    for file in files:
        await good_file(stand, file)
    for file, fault in files.items():
        stand.send(file, fault.file)
    await stand.others_answer()
    for file, fault in files.items():
        state = await stand.editor.end_state(stand.folder / file)
        await assert_told(stand, file, fault, state)
    for file in files:
        await assert_mended(stand, file, stand.children())
    await until(lambda: len(stand.children() - before) == len(files))
