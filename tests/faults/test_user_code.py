"""Whatever a person's code does to its process: others answer, the message says what happened, nothing is left."""

import re

import pytest
from checking import assert_mended, assert_told, good_file
from family import look
from good_net import GOOD, SEEN
from user_code import FAULTS, LIBC, PLACES

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: A file that has crashed five times in three minutes is not traced again.
CRASHES = 4


@pytest.fixture(scope="module")
def options():
    """What exceeds memory is told so, however slow the machine is."""
    return {"limits.seconds": 60, "limits.memory": 0.8}


#: Files beside the person's: names of our own, of modules that we use, and of those that torch brings with it.
NAMES = ("mase_server", "worker", "snapshot", "wire", "msgpack", "boot", "typing", "json", "signal", "torch", "numpy")
USES_WORKER = GOOD.replace("import torch\n", "import worker\nimport torch\n", 1).replace(
    "width=16", "width=worker.WIDTH"
)


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_is_told_and_costs_nothing_else(stand, name):
    fault, file = FAULTS[name], f"fault{list(FAULTS).index(name) // CRASHES}.py"
    before = stand.children()
    await good_file(stand, file)
    state = await stand.save(file, fault.file)
    await stand.others_answer()
    await assert_told(stand, file, fault, state)
    await assert_mended(stand, file, before)
    await stand.others_answer()


async def test_files_with_the_names_of_modules_stand_in_nobodys_way(stand):
    beside = stand.folder / "named"
    beside.mkdir()
    for name in NAMES:
        (beside / f"{name}.py").write_text("WIDTH = 16\n")
    assert await stand.open("named/net.py", USES_WORKER) == "ready"
    assert await stand.shown("named/net.py") == SEEN
    assert await stand.open("named/typing.py") == "no_model"
    await stand.others_answer()
    stand.close("named/net.py")


async def test_the_end_of_the_warm_parent_is_told_and_the_next_save_starts_another(stand):
    await good_file(stand, "orphan.py")
    parent = look(look(await stand.child_of("orphan.py")).parent)
    code = f"{LIBC}; libc.kill(os.getppid(), 9); time.sleep(60)"  # until its own end comes
    assert await stand.save("orphan.py", PLACES["forward"](code)) == "crashed"
    kind, message, _ = await stand.problem("orphan.py")
    assert kind == "crashed"
    assert re.search(r"^The process that ran this file died of SIGKILL \(killed from outside", message)
    shown = {key: text.replace("~", "") for key, text in (await stand.shown("orphan.py")).items()}
    assert (shown, await stand.is_stale("orphan.py")) == (SEEN, True)
    await stand.others_answer()
    await assert_mended(stand, "orphan.py", stand.children())
    await stand.others_answer()
    assert parent not in stand.processes()
    assert look(await stand.child_of("orphan.py")).parent in {each.pid for each in stand.warm_parents()}
