"""What never ends is stopped, at the line where it is, and holds up nobody meanwhile."""

import pytest
from checking import assert_mended, assert_told, good_file
from family import until
from user_code import ENDLESS

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def options():
    """Short enough for what never ends, and long enough for a good file on a busy machine."""
    return {"limits.seconds": 8}


async def test_what_never_ends_is_stopped_and_holds_up_nobody(stand):
    files = {f"endless{number}.py": fault for number, fault in enumerate(ENDLESS.values())}
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
