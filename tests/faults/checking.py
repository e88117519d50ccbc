"""What has to hold before, during and after a fault of the table."""

from __future__ import annotations

import re

from good_net import GOOD, SEEN
from user_code import Fault


async def good_file(stand, name):
    """Have a file open that is good and traced."""
    if stand.folder / name not in stand.texts:
        assert await stand.open(name, GOOD) == "ready"
    elif stand.texts[stand.folder / name] != GOOD:  # the test before ended early
        assert await stand.save(name, GOOD) == "ready"
    assert await stand.shown(name) == SEEN


async def assert_told(stand, name, fault: Fault, state):
    """What the editor shows of a fault is what the table says."""
    problems = [(one.code, one.message) for one in await stand.problems(name)]
    assert (state, [code for code, _ in problems]) == (fault.state, [fault.code] if fault.code else []), problems
    if fault.code:
        _, message, line = await stand.problem(name)
        assert any(part in line for part in fault.line.split("|")), (line, message)
        for pattern in fault.says:
            assert re.search(pattern, message), message[:2000]
    stale = fault.shown is None
    shown = await stand.shown(name)
    # What the text may have changed since it was traced is marked.
    found = {key: text.replace("~", "") for key, text in shown.items()}, await stand.is_stale(name)
    assert found == (SEEN if stale else fault.shown, stale), found
    assert any("~" in text for text in shown.values()) == stale, shown


async def assert_mended(stand, name, before):
    """The next good save brings everything back, and ends all that the fault left."""
    assert await stand.save(name, GOOD) == "ready"
    assert (await stand.shown(name), await stand.is_stale(name)) == (SEEN, False)
    assert not await stand.problems(name)
    await stand.only_new_child_is_of(name, before)
