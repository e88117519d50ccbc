"""Hardware of a file whose child is played, after any walk of saves, passes and orders: nothing older is told."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from .fake_child import PATH
from .test_verilog import ONE, emitted, settles

ACTIONS = st.sampled_from(["save", "begin", "fail", "apply", "undo", "redo", "emit", "other", "wait", "break"])


@given(st.lists(ACTIONS, max_size=14))
def test_what_is_not_stale_is_always_of_the_present_text_and_pipeline(actions):
    asyncio.run(_walk(actions))


async def _walk(actions):
    file = await emitted()
    for action in actions:
        await _act(file, action)
        _holds(file)
    file.no_hardware = None
    if not file.ended.is_set():
        file.finish()
    else:
        file.save()
    await settles(file)
    _holds(file)
    await file.passes.shutdown()


async def _act(file, action):
    if action in ("save", "fail"):
        getattr(file, action)()
    elif action == "begin":
        file.begin()
        await asyncio.sleep(0)
        file.finish()
    elif action == "apply":
        await file.passes.apply(PATH, None, ONE)
    elif action in ("undo", "redo") and file.passes.tell(PATH)["steps" if action == "undo" else "undone"]:
        await getattr(file.passes, action)(PATH, None)
    elif action in ("emit", "other") and file.no_hardware is None:
        await file.verilog.emit(PATH, None, {"multipliers": 4 if action == "emit" else 5})
    elif action == "break":
        file.no_hardware = None if file.no_hardware else "broken"
    for _ in range(20 if action == "wait" else 0):
        await asyncio.sleep(0)


def _holds(file):
    emission, shown = file.verilog.emission(PATH), file.store.snapshot(PATH)
    told = file.verilog.tell(PATH)
    laid = shown.hardware[0]
    assert (laid.stale, laid.told["text"]) == (emission.stale, emission.told["text"])
    assert emission.stale or not file.store.entry(PATH).stale
    if not emission.stale:
        steps = [step.removesuffix("()") for step in file.passes.tell(PATH)["steps"]]
        words = ["Net", str(told["build"]["multipliers"]), *steps, f"of text {shown.sha256}"]
        assert emission.told["text"] == " ".join(words)
