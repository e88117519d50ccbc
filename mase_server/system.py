"""The one module that knows which system it runs on: users, locks, processes, signals, sockets, priorities and limits.

Everything here has a side for Linux, for macOS and for Windows, and asks whether the system has a thing before it uses
it; tests/lsp/test_other_systems.py runs the server with these things taken away. Nowhere else is `fcntl`, `os.fork`,
`os.killpg`, a Unix socket or /proc used without having asked this module (tests/test_imports.py).

Linux: a trace child adopts the orphans of its descendants, so that they count as its own in memory and in number; the
warm parent adopts those of trace children and kills them until none appears. So a grandchild in a session of its own
ends with the trace that started it. A group is killed before its leader is reaped, so no signal can meet a reused id.
macOS: groups are killed, and descendants are found by `ps`. Windows: a job ends them with the process (`own_job`).

Not psutil: it has a C extension, and a package of pure Python serves every platform and Python that the editor's
extension meets. A trace child uses this module in the person's interpreter, which has only what the person installed.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator
from io import FileIO
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    import asyncio

if sys.platform == "win32":
    import ctypes
    import msvcrt
else:
    with contextlib.suppress(ImportError):
        import fcntl
        import resource

#: Where Linux tells about processes and memory; no other system has it.
PROC = Path("/proc")

#: Can a process that has imported torch, or computed with it, be forked? macOS' frameworks break in forks.
HAS_FORK = sys.platform == "linux" and hasattr(os, "fork")
#: Can programs inherit any descriptor, and get one over a socket?
PASSES_DESCRIPTORS = hasattr(socket, "send_fds")
HAS_UNIX_SOCKETS = hasattr(socket, "AF_UNIX")
#: Without such locks, processes take turns by a file that only one of them can create.
HAS_LOCKS = "fcntl" in globals() or sys.platform == "win32"
_HAS_LIMITS = "resource" in globals()


def signals_named(*names: str) -> list[signal.Signals]:
    """The signals of these names, without those that this system does not have."""
    return [signal.Signals[name] for name in names if hasattr(signal, name)]


#: What ends a process at once; Windows ends it at once by any.
KILL = signals_named("SIGKILL", "SIGTERM")[0]
#: The clock's signal of `set_alarm`; without it, one that is never sent from outside.
ALARM = signals_named("SIGALRM", "SIGBREAK", "SIGABRT")[0]

# Users, locks and sockets.


def user_id() -> int | None:
    """This user's number; None on systems that have none: files are then protected by the home folder alone."""
    if sys.platform != "win32" and hasattr(os, "getuid"):
        return os.getuid()
    return None


def is_of_one(found: os.stat_result) -> bool:
    """Is a folder's group the private one of its user, i.e. with the same name and no other member?"""
    if sys.platform == "win32":
        raise NotImplementedError
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    return user.pw_gid == group.gr_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open file until it is closed; False if another process has it.

    True without `HAS_LOCKS`: then nobody waits.
    """
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        elif HAS_LOCKS:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if sys.platform != "win32" and not isinstance(error, BlockingIOError):
            raise
        return False
    return True


def unix_socket() -> socket.socket:
    """A new Unix socket; OSError where there are none."""
    if sys.platform == "win32" or not HAS_UNIX_SOCKETS:
        raise OSError("this system has no Unix sockets: use HOST:PORT")
    return socket.socket(socket.AF_UNIX)


def peer_user(made: socket.socket) -> int | None:
    """The user at the other end of a Unix socket; None for other sockets, and if the system does not tell."""
    option: int | None = getattr(socket, "SO_PEERCRED", None)
    if sys.platform == "win32" or option is None or not HAS_UNIX_SOCKETS or made.family != socket.AF_UNIX:
        return None
    user: int = struct.unpack("3i", made.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))[1]
    return user


# Signals.


def call_at_end(loop: asyncio.AbstractEventLoop, end: Callable[[], object]) -> None:
    """Call `end` on the loop when somebody asks this process to end: Ctrl-C, SIGTERM, a closed terminal."""
    for number in signals_named("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
        try:
            loop.add_signal_handler(number, end)
        except NotImplementedError:
            signal.signal(number, lambda number, frame: loop.call_soon_threadsafe(end))


class _Clock(threading.Thread):
    """Raises `ALARM` in the main thread, as an interval timer of the system would."""

    def __init__(self, seconds: float, interval: float) -> None:
        super().__init__(name="mase-clock", daemon=True)
        self.due, self._interval = time.monotonic() + seconds, interval
        self.ended = threading.Event()

    def run(self) -> None:
        """Wait until it is due, again and again."""
        import _thread

        while not self.ended.wait(max(0.0, self.due - time.monotonic())):
            _thread.interrupt_main(ALARM)
            if not self._interval:
                return
            self.due = time.monotonic() + self._interval


_clock: _Clock | None = None
#: As it is before a traced program can replace it.
_setitimer: Callable[[int, float, float], tuple[float, float]] | None = getattr(signal, "setitimer", None)


def set_alarm(seconds: float, interval: float = 0.0) -> float:
    """Raise `ALARM` in this process after so many seconds, then every `interval`; 0 stops it. Returns what was left.

    Without an interval timer of the system, a call that waits in C sees it only when it returns.
    """
    if sys.platform != "win32" and _setitimer is not None:
        return _setitimer(signal.ITIMER_REAL, seconds, interval)[0]
    global _clock
    left = 0.0
    if _clock is not None:
        left = max(0.0, _clock.due - time.monotonic())
        _clock.ended.set()
        _clock = None
    if seconds:
        _clock = _Clock(seconds, interval)
        _clock.start()
    return left


def ask_line(pid: int, *, at_once: bool = False) -> None:
    """Have the trace child `pid` write its Python line to its fault file (`guard_faults`); other processes would die.

    at_once: even inside C code or while it is stopped, at the risk of killing it. Windows has no such signal.
    """
    for number in signals_named(*(("SIGUSR2", "SIGCONT") if at_once else ("SIGUSR1",))):
        _send_signal(pid, number)


# Processes.

_HAS_PROC = sys.platform != "win32" and (PROC / "self" / "stat").exists()
_TICKS = 100
if sys.platform != "win32" and hasattr(os, "sysconf"):
    _TICKS = os.sysconf("SC_CLK_TCK")
#: Seconds that `end_descendants` tries to end processes that keep starting others.
_CHASE_SECONDS = 3.0
_LOOK_SECONDS = 0.002
#: States from `process_state` of processes that have ended, and of those that start no others.
_ENDED = ("", "Z", "X")
_STILL = (*_ENDED, "T", "t")


def find_children(pid: int) -> list[int]:
    """The children of `pid`, zombies included, as far as the kernel reports them (CONFIG_PROC_CHILDREN)."""
    if not _HAS_PROC:
        return [child for child, parent in _list_parents() if parent == pid]
    found: list[int] = []
    # A process may end between any two of these calls; then it has no children any more.
    with contextlib.suppress(OSError, ValueError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - a Path for each takes half of the time
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found.extend(map(int, file.read().split()))
    return found


def find_descendants(pid: int, most: int = sys.maxsize, spare: Container[int] = ()) -> list[int]:
    """The descendants of `pid`, except those under its children `spare`; at most `most`."""
    parents = [] if _HAS_PROC else _list_parents()

    def children_of(one: int) -> list[int]:
        return find_children(one) if _HAS_PROC else [child for child, parent in parents if parent == one]

    found: list[int] = []
    todo = [one for one in children_of(pid) if one not in spare]
    while todo and len(found) < most:
        one = todo.pop()
        found.append(one)
        todo += children_of(one)
    return found


def _list_parents() -> list[tuple[int, int]]:
    """Every process that runs, and its parent, on systems without /proc."""
    if sys.platform == "win32":
        return _list_windows_parents()
    rows = (line.split() for line in _ask_ps("-A", "-o", "pid=,ppid=,stat="))
    return [(int(row[0]), int(row[1])) for row in rows if len(row) > 2 and not row[2].startswith("Z")]


def _ask_ps(*arguments: str) -> list[str]:
    """The lines that `ps` prints, on systems without /proc; none if there is no ps."""
    from mase_server.programs import command_for_program  # a command that asks a daemon does without

    with contextlib.suppress(OSError):
        return str(command_for_program("ps", *arguments).run(capture_output=True, text=True).stdout).splitlines()
    return []


def is_running(pid: int) -> bool:
    """Is there such a process? On Windows, `os.kill(pid, 0)` would end it."""
    if sys.platform == "win32":
        return _is_running_on_windows(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _read_stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; OSError if the process is gone, or the system has no /proc."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].decode().split()


def stat_of(pid: int) -> tuple[str, float]:
    """The letter of `pid`'s state in /proc, such as R, S, D, T and Z, and its CPU seconds.

    Returns "" and 0.0 if the process is gone, or the system does not report it.
    """
    try:
        fields = _read_stat(pid)
        return fields[0], (int(fields[11]) + int(fields[12])) / _TICKS
    except (OSError, ValueError, IndexError):
        return "", 0.0


def start_of(pid: int) -> str:
    """The start time of a process, in the system's clock ticks; "" if it is gone or unknown."""
    try:
        return _read_stat(pid)[19]
    except (OSError, IndexError):
        return ""


def resident_bytes_of(*pids: int) -> int:
    """Resident memory of processes, including pages that they share; nothing for one that is gone or unknown."""
    if sys.platform == "win32":
        return sum(map(_resident_bytes_on_windows, pids))
    if not _HAS_PROC:
        return sum(1024 * int(held) for held in _ask_ps("-o", "rss=", "-p", ",".join(map(str, pids))))
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as file:
            total += int(file.read().split()[1]) * mmap.PAGESIZE
    return total


def process_state(pid: int) -> str:
    """The letter of `pid`'s state, see `stat_of`."""
    return stat_of(pid)[0]


def is_stopped(pid: int) -> bool:
    """Has a signal such as SIGSTOP stopped `pid`? Being stopped by a debugger does not count."""
    return process_state(pid) == "T"


def end_descendants(pid: int, spare: Container[int] = (), seconds: float = _CHASE_SECONDS) -> bool:
    """Kill all descendants of `pid` except those under `spare`; False if some are left after `seconds`.

    A process that forks faster than others are killed would escape. So each one is stopped first, and then its
    children are listed, in rounds, until a round finds no new one. Only then all are killed.
    """
    end = time.monotonic() + seconds
    with _ahead_of_others():
        while alive := _stop_all(pid, spare, end):
            for one in alive:
                _send_signal(one, KILL)
            if time.monotonic() > end:
                return False
            time.sleep(_LOOK_SECONDS)
    return True


def end_family(pid: int, words: Callable[[], object], seconds: float = 0.2) -> None:
    """Kill `pid`, a worker, and its descendants. Before that, it has `seconds` to write down its current line.

    words: returns its text so far, which changes once it has written the line.
    """
    with _ahead_of_others():
        _stop_process(pid)  # otherwise it would go on starting others
        end_descendants(pid)
        before, end = words(), time.monotonic() + seconds
        ask_line(pid, at_once=True)
        while words() == before and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
        _stop_process(pid)
        end_descendants(pid)
        _send_signal(pid, KILL)


def _stop_process(pid: int, seconds: float = 1.0) -> None:
    """Stop a process, and wait until it is stopped; does nothing where none can be stopped."""
    if sys.platform == "win32" or not hasattr(signal, "SIGSTOP"):
        return
    end = time.monotonic() + seconds
    _send_signal(pid, signal.SIGSTOP)
    while process_state(pid) not in _STILL and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)


def _stop_all(pid: int, spare: Container[int], end: float) -> list[int]:
    """Stop the descendants of `pid`, in rounds, until none runs or the time is `end`; returns the live ones."""
    if sys.platform == "win32" or not hasattr(signal, "SIGSTOP") or not _HAS_PROC:
        return find_descendants(pid, spare=spare)  # nobody tells whether one is stopped
    stopped: dict[int, str] = {}
    while (running := _running_processes(find_descendants(pid, spare=spare), stopped)) and time.monotonic() < end:
        while running and time.monotonic() < end:
            for one in running:
                _send_signal(one, signal.SIGSTOP)
                # A process in the middle of a fork ends it first: its children are complete once it is seen to be
                # stopped.
                stopped[one] = process_state(one)
            below = [child for one in running for child in find_children(one)]
            fresh = [one for one in below if one not in stopped]
            if not fresh:
                time.sleep(_LOOK_SECONDS)  # the processes to be stopped need a processor
            running = [*_running_processes(running, stopped), *fresh]
    return [one for one, letter in stopped.items() if letter not in _ENDED]


def _running_processes(found: Iterable[int], stopped: dict[int, str]) -> list[int]:
    return [one for one in found if stopped.get(one) not in _STILL]


def _send_signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def signal_group(pid: int, number: signal.Signals = KILL) -> None:
    """Signal the group that `pid` leads, or only `pid` if it leads none; does nothing if it is gone.

    Windows has no groups: there any signal ends `pid`, and its job ends what it started.
    """
    if sys.platform != "win32" and hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)
            return
    _send_signal(pid, number)


def lead_group() -> None:
    """Make this process the leader of a session and group of its own."""
    if sys.platform != "win32" and hasattr(os, "setsid") and os.getpgid(0) != os.getpid():
        os.setsid()


@contextlib.contextmanager
def _ahead_of_others() -> Iterator[None]:
    """Run this thread before all others, if the system allows it: a thousand processes leave it no time otherwise."""
    if sys.platform != "linux":
        yield
        return
    try:
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except (AttributeError, OSError):  # not privileged
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


# Priorities on a busy machine, and how long a process waited for a processor.

#: The default increment of `nice`.
LOW = 10
#: That of work for a text that somebody is typing: it yields to other programs, but is waited for.
TYPED = 4


def lower(process: int = 0, by: int = LOW) -> None:
    """Give `process`, or this one, and its later children a lower priority; does nothing if it is gone.

    Linux may first share its processors between sessions (autogroup, the default on desktops): niceness then counts
    only among the tasks of one session, so the leader of a session must get it for the session as well.
    """
    if sys.platform == "win32" or not hasattr(os, "setpriority"):
        return
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process, by)
    with contextlib.suppress(OSError):
        leader = process or os.getpid()
        if sys.platform == "linux" and os.getsid(leader) == leader:  # not for all that the user started
            Path(PROC, str(leader), "autogroup").write_text(str(by))


#: Seconds in which this process had nothing to do, see `note_rest`.
_rested = 0.0


def note_rest(seconds: float) -> None:
    """Let seconds in which this process waited for its next task count as `seconds_waited`."""
    global _rested
    _rested += seconds


def seconds_waited(process: int = 0) -> float:
    """Seconds in which the main thread of `process`, or of this one, was ready but had no processor, or had no task.

    Those without a processor are 0.0 if the system does not report them: they are in Linux's /proc/PID/schedstat.
    """
    return _read_seconds_waited(process) + (0.0 if process else _rested)


def _read_seconds_waited(process: int) -> float:
    try:
        # Not `open`, which a trace replaces: this is asked in each one.
        with FileIO(f"{PROC}/{process or 'self'}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


# What a worker asks of the system for itself.

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

#: Bytes of one file that traced code may write; what it writes is thrown away.
MOST_WRITTEN = 1 << 30
#: Added to a process's badness, of at most 1000, when the system chooses which one to kill for lack of memory.
_EXPENDABLE = "500"
#: Further processes and threads that the user may start.
MOST_STARTED = 1000
#: Descriptors that a process may have open at once, even if the system allows more.
MOST_OPEN = 4096


def leave_no_core() -> None:
    """Prevent this process, and those it starts, from dumping core: the files would hold weights and keys."""
    if sys.platform != "win32" and _HAS_LIMITS:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextlib.contextmanager
def small_files(most: int = MOST_WRITTEN) -> Iterator[None]:
    """While this lasts, a file grows to `most` bytes at most: writing more raises OSError, EFBIG."""
    with _lower_limit("RLIMIT_FSIZE", most):
        yield


@contextlib.contextmanager
def _lower_limit(name: str, most: int) -> Iterator[None]:
    """Inside, this process may have `most` of something at most, where the system can limit it."""
    if sys.platform != "win32" and _HAS_LIMITS:
        limit = getattr(resource, name)
        soft, hard = resource.getrlimit(limit)
        allowed = [one for one in (soft, hard) if one != resource.RLIM_INFINITY]
        resource.setrlimit(limit, (min([most, *allowed]), hard))
        try:
            yield
        finally:
            resource.setrlimit(limit, (soft, hard))
    else:
        yield


@contextlib.contextmanager
def few_processes(more: int = MOST_STARTED) -> Iterator[None]:
    """While this lasts, starting a process or thread beyond `more` raises OSError, EAGAIN, here and in started
    processes.

    The system counts all of the user's processes on the machine; root has no limit.
    """
    try:
        running = int((PROC / "loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        yield
        return
    with _lower_limit("RLIMIT_NPROC", running + more):
        yield


@contextlib.contextmanager
def small_memory(room: int) -> Iterator[None]:
    """While this lasts, asking for more than `room` further bytes raises MemoryError, on Linux."""
    try:
        taken = int((PROC / "self" / "statm").read_text().split()[0]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        yield
        return
    with _lower_limit("RLIMIT_AS", taken + room):
        yield


def few_descriptors(most: int = MOST_OPEN) -> None:
    """Limit this process, and those it starts, to `most` open files: each takes kernel memory."""
    if sys.platform != "win32" and _HAS_LIMITS:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY or soft > most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def die_first() -> None:
    """If memory runs out, have the system end this process, and those it starts, before the server and the editor."""
    with contextlib.suppress(OSError):
        (PROC / "self" / "oom_score_adj").write_text(_EXPENDABLE)


@contextlib.contextmanager
def be_called(name: str) -> Iterator[None]:
    """Inside, the system's lists of processes show this one under another name, of at most 15 characters (Linux)."""
    own = PROC / "self" / "comm"
    with contextlib.suppress(OSError):
        before = own.read_text()
        own.write_text(name)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, UnboundLocalError):
            own.write_text(before)


def _call_prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes  # a command that asks a daemon does without

        ctypes.CDLL(None).prctl(option, value)


def die_with_parent(parent: int) -> None:
    """Be killed when `parent`, the process that started this one, ends (Linux; elsewhere the wire's end tells)."""
    hear_of_parents_end(KILL, parent)


def hear_of_parents_end(number: signal.Signals, parent: int) -> None:
    """Get this signal when `parent`, the process that started this one, ends; at once if it has ended (Linux)."""
    _call_prctl(_PR_SET_PDEATHSIG, number)
    if sys.platform == "linux" and os.getppid() != parent:
        os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Become the parent of processes that this process's descendants leave behind (Linux), so that they can be
    ended."""
    _call_prctl(_PR_SET_CHILD_SUBREAPER, 1)


def count_threads() -> int:
    """The number of threads in this process, including those of C libraries if the system tells."""
    try:
        return len(list((PROC / "self" / "task").iterdir()))
    except OSError:
        return threading.active_count()


_Function = TypeVar("_Function", bound=Callable[..., Any])
_Result = TypeVar("_Result")
#: The frame of `call_with_room` in words. Its piece of the stack has room for as many.
_LARGE_FRAME = 70_000


def _enlarge_frame(function: _Function) -> _Function:
    code = function.__code__.replace(co_stacksize=_LARGE_FRAME)
    return cast(_Function, FunctionType(code, function.__globals__, function.__name__))


@_enlarge_frame
def call_with_room(work: Callable[[], _Result]) -> _Result:
    """Call a function on a new piece of Python's stack of frames that is large enough for all calls below it.

    Python maps that stack in pieces of 16 KiB, and gives the last one back as soon as it is empty. A loop in a deep
    stack that calls across the border of two maps and clears memory at each turn.
    """
    return work()


_lost_threads = False


def fork_process() -> int:
    """Fork as `os.fork` does, but the child of a process with several threads computes with one thread.

    A fork has only the forking thread. A thread pool that computed before, such as OpenMP's, still believes in its
    threads there and waits for them forever.
    """
    if sys.platform == "win32":
        raise NotImplementedError
    global _lost_threads
    several = count_threads() > 1
    pid = os.fork()
    if pid == 0 and several:
        _lost_threads = True
        if (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(1)
    return pid


def may_compute_with_threads() -> bool:
    """Can this process use several threads? Not if it, or a process above it, lost a pool in a fork."""
    return not _lost_threads


def count_cores() -> int:
    """The number of cores that this process may use, without their further threads: torch computes with as many."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    found = set()
    for number in os.sched_getaffinity(0):
        folder = Path(f"/sys/devices/system/cpu/cpu{number}/topology")
        try:
            found.add(((folder / "physical_package_id").read_text(), (folder / "core_id").read_text()))
        except OSError:
            return os.cpu_count() or 1
    return len(found)


def load_average() -> float:
    """How many processes ran or wanted to, in the last minute; 0.0 if the system does not tell."""
    if sys.platform != "win32" and hasattr(os, "getloadavg"):
        return os.getloadavg()[0]
    return 0.0


def physical_bytes() -> int:
    """The machine's memory; 0 if unknown."""
    if sys.platform != "win32" and hasattr(os, "sysconf"):
        with contextlib.suppress(OSError, ValueError):
            return os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE
    return 0


# Windows: jobs, snapshots of the processes, and handles.

if sys.platform == "win32":
    _KILL_ON_JOB_CLOSE, _EXTENDED_LIMITS = 0x2000, 9
    _SNAP_PROCESSES, _QUERY_AND_WAIT, _TIMEOUT = 0x2, 0x1000 | 0x100000, 0x102
    _kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    for _name in ("CreateJobObjectW", "CreateToolhelp32Snapshot", "GetCurrentProcess", "OpenProcess"):
        getattr(_kernel, _name).restype = ctypes.c_void_p

    class _JobLimits(ctypes.Structure):
        """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

        _fields_ = [
            ("times", ctypes.c_int64 * 2), ("flags", ctypes.c_uint32), ("sets", ctypes.c_size_t * 2),
            ("active", ctypes.c_uint32), ("affinity", ctypes.c_size_t), ("classes", ctypes.c_uint32 * 2),
            ("io", ctypes.c_uint64 * 6), ("memory", ctypes.c_size_t * 4),
        ]  # fmt: skip

    class _ProcessEntry(ctypes.Structure):
        """PROCESSENTRY32."""

        _fields_ = [
            ("size", ctypes.c_uint32), ("usage", ctypes.c_uint32), ("pid", ctypes.c_uint32), ("heap", ctypes.c_size_t),
            ("module", ctypes.c_uint32), ("threads", ctypes.c_uint32), ("parent", ctypes.c_uint32),
            ("priority", ctypes.c_int32), ("flags", ctypes.c_uint32), ("file", ctypes.c_char * 260),
        ]  # fmt: skip

    class _MemoryCounters(ctypes.Structure):
        """PROCESS_MEMORY_COUNTERS."""

        _fields_ = [
            ("size", ctypes.c_uint32), ("faults", ctypes.c_uint32), ("peak", ctypes.c_size_t),
            ("resident", ctypes.c_size_t), ("others", ctypes.c_size_t * 6),
        ]  # fmt: skip

    def _list_windows_parents() -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        snapshot = ctypes.c_void_p(_kernel.CreateToolhelp32Snapshot(_SNAP_PROCESSES, 0))
        entry = _ProcessEntry(size=ctypes.sizeof(_ProcessEntry))
        more = _kernel.Process32First(snapshot, ctypes.byref(entry))
        while more:
            found.append((entry.pid, entry.parent))
            more = _kernel.Process32Next(snapshot, ctypes.byref(entry))
        _kernel.CloseHandle(snapshot)
        return found

    @contextlib.contextmanager
    def _opened(pid: int) -> Iterator[ctypes.c_void_p]:
        handle = ctypes.c_void_p(_kernel.OpenProcess(_QUERY_AND_WAIT, False, pid))
        try:
            yield handle
        finally:
            if handle:
                _kernel.CloseHandle(handle)

    def _is_running_on_windows(pid: int) -> bool:
        with _opened(pid) as handle:
            return bool(handle) and _kernel.WaitForSingleObject(handle, 0) == _TIMEOUT

    def _resident_bytes_on_windows(pid: int) -> int:
        counters = _MemoryCounters(size=ctypes.sizeof(_MemoryCounters))
        with _opened(pid) as handle:
            known = handle and _kernel.K32GetProcessMemoryInfo(handle, ctypes.byref(counters), counters.size)
            return int(counters.resident) if known else 0


@functools.cache
def own_job() -> None:
    """On Windows, have all that this process starts from now on end with it, however it ends."""
    if sys.platform == "win32":
        job = ctypes.c_void_p(_kernel.CreateJobObjectW(None, None))
        limits = _JobLimits(flags=_KILL_ON_JOB_CLOSE)
        _kernel.SetInformationJobObject(job, _EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits))
        # The handle stays open for as long as this process lives; closing it ends the job.
        _kernel.AssignProcessToJobObject(job, ctypes.c_void_p(_kernel.GetCurrentProcess()))
