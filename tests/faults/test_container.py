"""A container around the server has less memory than the settings allow: that is told as what it is."""

import os
import uuid
from pathlib import Path

import pytest
from checking import assert_mended, assert_told, good_file
from faulting import SERVER
from user_code import crashed

from mase_server.daemon import limits

GROUPS = Path("/sys/fs/cgroup")
#: Enough for the server, a warm parent and three children, and less than `mase.limits.memory`, 4 GiB.
MOST = 2 << 30
HUNGRY = crashed(
    "forward",
    "held = [b'x' * (64 << 20) for _ in range(80)]",  # 5 GiB, should nobody end it
    "",
    r"^The container's 2 GiB of memory were used up, and the system ended the process",
    "give the container more",
    code="memory-limit",
)


@pytest.fixture
def group():
    """A group of processes with a limit of memory, by what this machine has of version 2 or 1."""
    for parent, limit in ((GROUPS, "memory.max"), (GROUPS / "memory", "memory.limit_in_bytes")):
        made = parent / f"mase-test-{uuid.uuid4().hex}"
        if not (parent / "cgroup.procs").exists() or not os.access(parent, os.W_OK):
            continue
        made.mkdir()
        try:
            if (made / limit).exists():
                (made / limit).write_text(str(MOST))
                yield made
                return
        finally:
            made.rmdir()
    pytest.skip("only root on a machine with control groups can limit the memory of a test")


async def test_the_end_by_a_containers_limit_is_told_and_the_next_save_works(group, new_stand):
    enter = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
    stand = await new_stand(command=(*enter, *SERVER), options={"limits.memory": 64})
    before = stand.children()
    await good_file(stand, "hungry.py")
    state = await stand.save("hungry.py", HUNGRY.file)
    await assert_told(stand, "hungry.py", HUNGRY, state)
    await assert_mended(stand, "hungry.py", before)
    await stand.others_answer()
    choice = {each.pid: Path(f"/proc/{each.pid}/oom_score_adj").read_text() for each in stand.processes()}
    assert int(choice[await stand.child_of("one.py")]) > int(choice[stand.server]), "the server may be ended first"
    await stand.stop()  # before its group can be removed


@pytest.fixture
def told(tmp_path, monkeypatch):
    """What this machine would tell of groups: a function that writes it."""
    monkeypatch.setattr(limits, "PROC", tmp_path / "proc")
    monkeypatch.setattr(limits, "_GROUPS", tmp_path / "groups")
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 16000 kB\nMemAvailable: 12000 kB\n")

    def tell(line, **files):
        (tmp_path / "proc" / "self" / "cgroup").write_text(line)
        for name, text in files.items():
            path = tmp_path / "groups" / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return tell


def test_the_tightest_group_around_a_process_counts_without_files_that_can_be_dropped(told):
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    told(
        "0::/outer/inner\n",
        cgroup_dot_controllers="memory",
        outer__memory_dot_max="1000\n",
        outer__memory_dot_current="900\n",
        outer__memory_dot_stat="anon 500\ninactive_file 400\n",
        outer__memory_dot_events="max 7\noom_kill 2\noom_group_kill 0\n",
        outer__inner__memory_dot_max="max\n",
        outer__inner__memory_dot_current="900\n",
        outer__inner__memory_dot_stat="inactive_file 0\n",
        outer__inner__memory_dot_events="oom_kill 0\n",
    )
    assert limits.find_container() == limits.MemoryGroup(1000, 500, 2)
    assert limits.available_fraction() == 0.5
    told("0::/outer/inner\n", outer__memory_dot_max=f"{machine}\n")
    assert limits.find_container() is None, "what the machine has is no limit of a container"


def test_inside_a_container_that_sees_the_machines_paths_its_own_mount_counts(told):
    told(
        "5:cpu:/docker/1\n4:memory:/docker/1\n",
        memory__memory_dot_limit_in_bytes="4000\n",
        memory__memory_dot_usage_in_bytes="1500\n",
        memory__memory_dot_stat="total_inactive_file 500\n",
        memory__memory_dot_oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
    )
    assert limits.find_container() == limits.MemoryGroup(4000, 1000, 0)
    assert limits.available_fraction() == 0.75, "of the machine's own memory less is left"


def test_without_groups_the_machine_alone_counts(told):
    told("")
    assert (limits.find_container(), limits.available_fraction()) == (None, 0.75)
