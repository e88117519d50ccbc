"""The warm parent: it has imported everything, runs no op and no thread, and forks a trace child for each request.

It is single-threaded on purpose: a child of a process that had run one large matmul or one backward hung. This
module also holds the start of a worker, as warm parent or as spare.
"""

from __future__ import annotations

import faulthandler
import gc
import inspect
import os
import platform
import re
import selectors
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import NoReturn, TextIO

from mase_server import system
from mase_server.protocol import snapshot, wire
from mase_server.protocol.request import TraceRequest
from mase_server.protocol.snapshot import Problem
from mase_server.worker.jobs import load_job, run_rehearsal
from mase_server.worker.preload import Preloader

_MAX_FDS = 8
_RECEIVE = 64 << 10
_TERM_SECONDS = 0.25
#: Seconds between two searches for processes that survived the first one.
_STRAY_SECONDS = 0.1


class WarmParent:
    """Serves the control socket: `fork`, `preload`, `exit`. When the server is gone, it ends with every child's
    group."""

    def __init__(self, connection: wire.Connection, job: str, folder: str) -> None:
        self._connection = connection
        self._sock = connection.sock
        self._job = job
        self._decoder = wire.Decoder()
        self._fds: deque[int] = deque()
        self._children: dict[int, int] = {}
        self._preloader = Preloader(folder)
        self._report_due = False
        self._strays_left = False
        self._pid, self._server = os.getpid(), os.getppid()
        self._wake_read, self._wake_write = socket.socketpair()
        self._selector = selectors.DefaultSelector()

    def serve(self) -> int:
        """Serve until the server closes the control socket; return the exit status."""
        if sys.platform != "linux":
            raise NotImplementedError
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        system.adopt_orphans()
        # Between two requests it may import for seconds without noticing that the wire has ended.
        signal.signal(signal.SIGTERM, self._on_end)
        # A stopped process gets SIGCONT at once; SIGTERM would only stay pending.
        signal.signal(signal.SIGCONT, self._on_continue)
        system.hear_of_parents_end(signal.SIGCONT, self._server)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        with self._selector as selector:
            selector.register(self._sock, selectors.EVENT_READ)
            selector.register(self._wake_read, selectors.EVENT_READ)
            try:
                while self._serve_turn(selector):
                    pass
            except (OSError, wire.WireError):
                pass  # the server is gone, or sends nonsense: both end here
            finally:
                self._end_all()
        return 0

    def _on_end(self, number: int, frame: object) -> None:
        if os.getpid() == self._pid:  # not in a child that has not set itself up yet
            self._end_all()
        os._exit(128 + number)

    def _on_continue(self, number: int, frame: object) -> None:
        if os.getpid() == self._pid and os.getppid() != self._server:
            self._on_end(signal.SIGTERM, frame)

    def _serve_turn(self, selector: selectors.BaseSelector) -> bool:
        # A wanted preload is imported between requests, one module at a time, so that no fork waits for a whole list.
        ready = selector.select(0 if self._preloader.pending else _STRAY_SECONDS if self._strays_left else None)
        for key, _ in ready:
            if key.fileobj is self._wake_read:
                self._wake_read.recv(4096)
                self._reap_children()
            elif not self._receive_messages():
                return False
        if not ready and self._preloader.pending:
            self._preloader.step()
        elif self._strays_left:
            self._end_strays()
        if self._report_due and not self._preloader.pending:
            self._report_due = False
            self._connection.send(self._preloader.report())
        return True

    def _receive_messages(self) -> bool:
        if sys.platform != "linux":
            raise NotImplementedError
        data, fds, _, _ = socket.recv_fds(self._sock, _RECEIVE, _MAX_FDS)
        self._fds.extend(fds)
        if not data:
            return False
        self._decoder.feed(data)
        while (message := self._decoder.next()) is not None:
            if message["op"] == "exit":
                return False
            self._handle_message(message)
        return True

    def _handle_message(self, message: wire.Message) -> None:
        if message["op"] == "preload":
            self._preloader.want(message["modules"])
            self._report_due = True
        elif message["op"] == "fork":
            self._preloader.import_now(message.get("needs", ()))
            descriptors = self._fds.popleft(), self._fds.popleft()
            self._fork_child(message["id"], *descriptors, rehearse=message.get("rehearse", False))

    def _fork_child(self, ident: int, wire_fd: int, log_fd: int, *, rehearse: bool) -> None:
        if sys.platform != "linux":
            raise NotImplementedError
        if self._preloader.harmful:
            os.close(wire_fd)
            os.close(log_fd)
            self._connection.send(self._preloader.report())
            self._connection.send({"refused": ident})
            return
        pid = os.fork()
        if pid == 0:
            self._become_child(wire_fd, log_fd, rehearse=rehearse)
        os.close(wire_fd)
        os.close(log_fd)
        self._children[pid] = ident
        self._connection.send({"forked": ident, "pid": pid})

    def _become_child(self, wire_fd: int, log_fd: int, *, rehearse: bool) -> None:
        signal.set_wakeup_fd(-1)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        os.close(log_fd)
        # Open here, these would hide the parent's end from the server, and give user code access to the parent.
        for held in (self._sock, self._wake_read, self._wake_write, self._selector):
            held.close()
        os.set_inheritable(wire_fd, False)
        wait_and_run(wire.Connection(socket.socket(fileno=wire_fd)), self._job, rehearse=rehearse)

    def _reap_children(self) -> None:
        ended = []
        while (found := _ended_child()) is not None:
            # The group is killed before the child is reaped: its id cannot belong to another process yet.
            system.signal_group(found)
            _, status = os.waitpid(found, 0)
            if (ident := self._children.pop(found, None)) is not None:
                ended.append({"exited": ident, "status": status})
        self._end_strays()
        for message in ended:
            self._connection.send(message)

    def _end_strays(self) -> None:
        """End orphans that left their group and were adopted; if that takes long, `_serve_turn` continues it."""
        self._strays_left = not system.end_descendants(self._pid, self._children)

    def _end_all(self) -> None:
        for pid in self._children:
            system.signal_group(pid, signal.SIGTERM)
        self._wait_for_children(_TERM_SECONDS)
        for pid in self._children:
            system.signal_group(pid)
        self._wait_for_children(_TERM_SECONDS)
        system.end_descendants(self._pid)

    def _wait_for_children(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._children and time.monotonic() < deadline:
            found = _ended_child()
            if found is None:
                time.sleep(0.005)
                continue
            system.signal_group(found)
            os.waitpid(found, 0)
            self._children.pop(found, None)


def _ended_child() -> int | None:
    if sys.platform != "linux":
        raise NotImplementedError
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found is not None else None


# The start of a worker: it imports what tracing needs, shakes hands, then serves as warm parent or as spare.

MIN_TORCH = (2, 6)

#: Modules that tracing needs, some of which torch imports lazily. All must be loaded before user code runs.
IMPORTS = (
    "torch",
    "torch.fx",
    "torch._refs",
    "torch._decomp",
    "torch._meta_registrations",
    "torch._subclasses.fake_tensor",
    "torch.fx.experimental.symbolic_shapes",
    "torch.utils.checkpoint",
    "torch.nn.utils.rnn",
)


class Unusable(Exception):
    """This interpreter cannot trace; `code` is one of no-torch, torch-too-old, import-failed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def import_torch() -> str:
    """Import everything in IMPORTS and return torch's version; Unusable names the interpreter and a remedy."""
    try:
        torch = import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise Unusable("import-failed", _import_failed(error)) from error
        raise Unusable(
            "no-torch", f"{sys.executable} has no torch. Install it there (pip install torch), or choose another "
            "interpreter for this folder."
        ) from error  # fmt: skip
    except Exception as error:
        raise Unusable("import-failed", _import_failed(error)) from error
    version = str(getattr(torch, "__version__", "unknown"))
    if _parse_version(version) < MIN_TORCH:
        raise Unusable(
            "torch-too-old", f"{sys.executable} has torch {version}; tracing needs 2.6 or newer. Upgrade it there "
            "(pip install -U torch), or choose another interpreter for this folder."
        )  # fmt: skip
    return version


def _import_failed(error: Exception) -> str:
    return (
        f"torch is installed in {sys.executable} but does not import: {type(error).__name__}: {error}. "
        "Repair that installation, or choose another interpreter for this folder."
    )


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def import_needed(job: str) -> str:
    """Import everything that a child of this process will need, without running any op; return torch's version."""
    gc.disable()  # all that is imported stays, and looking through it again and again took a fifth of the time
    try:
        version = import_torch()
        for name in IMPORTS[1:]:
            import_module(name)
        load_job(job)
        run_without_dynamo()
    except Unusable:
        raise
    except Exception as error:
        raise Unusable("import-failed", _import_failed(error)) from error
    finally:
        gc.enable()
    gc.freeze()
    return version


def run_without_dynamo() -> None:
    """Have torch's functions that switch TorchDynamo off call themselves directly, as where nothing is compiled.

    They would import it at their first call, and it takes as long to import as torch itself. torch keeps what to call
    under `__dynamo_disable`; a torch that does not imports it after all.
    """
    disable = getattr(import_module("torch._compile"), "_disable_dynamo", None)
    constants = disable.__code__.co_consts if isinstance(disable, FunctionType) else ()
    for wrapper in gc.get_referrers(*(each for each in constants if isinstance(each, CodeType))):
        if type(wrapper) is FunctionType:
            plain = inspect.getclosurevars(wrapper).nonlocals["fn"]
            plain.__dynamo_disable = plain


def run_role(role: str, sock: socket.socket, *, folder: str, job: str) -> int:
    """Shake hands over `sock` and serve until it ends; return the process's exit status."""
    connection = wire.Connection(sock)
    system.leave_no_core()
    # A child inherits this: it may be asked for its line before it has run at all. `guard_faults` gives them a meaning.
    for number in system.signals_named("SIGUSR1", "SIGUSR2"):
        signal.signal(number, signal.SIG_IGN)
    # Asked in another way whether there is a GPU, CUDA would work in no fork.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    system.own_job()
    system.die_with_parent(os.getppid())  # it has no children yet, and importing torch takes seconds
    if _has_ended(sock):
        return 1
    try:
        version = import_needed(job)
    except Unusable as error:
        reason = {"code": error.code, "message": str(error), "python": sys.executable}
        connection.send({"handshake_failed": reason})
        return 1
    connection.send({"handshake": make_handshake(version)})
    if role == "spare":
        wait_and_run(connection, job)
    return WarmParent(connection, job, folder).serve()


def _has_ended(sock: socket.socket) -> bool:
    """Has the server gone while this process was starting, before it could ask for a signal at the server's end?"""
    if not hasattr(socket, "MSG_DONTWAIT"):
        return False
    try:
        return not sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return False


def make_handshake(torch_version: str) -> wire.Message:
    """The facts about this interpreter that the server needs."""
    return {
        "protocol": wire.PROTOCOL,
        "python": platform.python_version(),
        "executable": sys.executable,
        "torch": torch_version,
        "pid": os.getpid(),
        "codec": wire.CODEC,
    }


# The trace child: runs one trace for one file, then answers calls about the live graphs until the wire ends.

FAULT_FILE = "fault.txt"
#: The name of a child that rehearses, or waits after that.
WAITING = "mase-waiting"


def wait_and_run(connection: wire.Connection, job: str, *, rehearse: bool = False) -> NoReturn:
    """Wait for the first trace request and run it as its child; never returns, whatever user code does.

    rehearse: first do once what every trace does, if the job has a rehearsal.
    """
    status = wire.BROKEN
    try:
        status = system.call_with_room(partial(_run_child, connection, job, rehearse=rehearse))
    except (OSError, wire.WireError):
        status = wire.LOST_WIRE  # if the server is gone, nobody is left to read it
    except BaseException:  # noqa: BLE001  (the process's border: whatever it is, it must not climb into the parent's loop)
        traceback.print_exc()
    finally:
        _real_exit(status)


def _run_child(connection: wire.Connection, job: str, *, rehearse: bool) -> int:
    become_own_group()
    gc.disable()  # this process ends soon, and a look at all that torch and the file imported would hold up the trace
    with system.be_called(WAITING) if rehearse else nullcontext():
        if rehearse:
            run_rehearsal(job)
            connection.send({"event": "rehearsed"})
        message = connection.read()
    if message is None:
        return 0
    request, ahead = TraceRequest.from_wire(message["request"]), message["op"] == "ahead"
    if request.gently:
        system.lower()
    elif request.texts:
        system.lower(by=system.TYPED)
    if request.scratch:
        guard_faults(Path(request.scratch))
    live = run_job(connection, request, job, ahead=ahead)
    serve_calls(connection, live)
    return 0


def become_own_group() -> None:
    """Lead a process group of its own, die with the parent, and handle signals as a fresh process would.

    The child adopts processes that its descendants leave behind, so that they count as its own.
    """
    parent = os.getppid()
    system.lead_group()  # a spare was started as a leader
    system.die_with_parent(parent)
    system.adopt_orphans()
    system.few_descriptors()
    system.die_first()
    signal.set_wakeup_fd(-1)
    for number in system.signals_named("SIGCHLD", "SIGTERM", "SIGHUP", "SIGCONT"):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The functions as they are before the user's code can replace them.
_real_exit, _own_id, _clock = os._exit, os.getpid, time.perf_counter


def guard_faults(scratch: Path) -> None:
    """Have crashes, `os._exit`, SIGUSR1 and SIGUSR2 write the Python line that they met to `scratch/fault.txt`.

    SIGUSR1 is handled between two bytecodes, so it may be sent at any time. SIGUSR2 is handled at once, in C code
    too, but walking the frames of a running interpreter may crash it: it is for a child about to be killed.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    fault = (scratch / FAULT_FILE).open("w", buffering=1)
    faulthandler.enable(fault, all_threads=False)
    if sys.platform != "win32" and hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR2, fault, all_threads=False)
        signal.signal(signal.SIGUSR1, lambda number, frame: faulthandler.dump_traceback(fault, all_threads=False))
    os._exit = _tell_exit(fault)  # type: ignore[assignment]


def _tell_exit(fault: TextIO) -> Callable[[int], NoReturn]:
    pid = os.getpid()

    def _exit(status: int) -> NoReturn:
        if os.getpid() == pid:
            fault.write(f"os._exit({status!r})\n")
            faulthandler.dump_traceback(fault, all_threads=False)
        _real_exit(status)

    return _exit


def run_job(connection: wire.Connection, request: TraceRequest, job: str, *, ahead: bool = False) -> object:
    """Run the job and send what it emits, snapshots in frames; return the live models, or None after a failure.

    ahead: of the text of the request, do only what another text shares that comes later. Then `ahead` is sent with the
    lines that may differ, and `refused` for a request that differs elsewhere. The job says nothing before it goes on.
    """
    started, owner = _clock(), _own_id()

    def emit(message: wire.Message) -> None:
        if _own_id() != owner:
            _real_exit(0)  # a fork made by the user's code, which continues as if it were this process
        if ahead:
            return
        if "payload" not in message:
            connection.send(message)
            return
        for frame in snapshot.split_payload(message["payload"]):
            connection.send({"event": "snapshot", "frame": frame})

    def await_request(lines: list[tuple[int, int]], go_on: Callable[[TraceRequest], bool]) -> None:
        nonlocal ahead, started
        connection.send({"event": "ahead", "lines": lines})
        message, rested = connection.read(), _clock() - started
        if message is None:
            _real_exit(0)
        started, ahead = _clock(), False
        system.note_rest(rested)
        if not go_on(TraceRequest.from_wire(message["request"])):
            connection.send({"event": "refused"})
            _real_exit(0)

    live = None
    try:
        with system.small_files(), system.few_processes():
            live = load_job(job)(request, emit, *([await_request] if ahead else []))
        if ahead:
            _real_exit(0)  # nothing that another text could share was left to do
    except BaseException as error:  # noqa: BLE001  (user code ran in there; its SystemExit is a failed trace too)
        emit({"event": "failed", "problem": describe_job_failure(error, request.path).to_wire()})
    emit({"event": "done", "seconds": _clock() - started, "request": request.name})
    return live


def describe_job_failure(error: BaseException, path: str) -> Problem:
    """A plain diagnostic for an exception that the job did not catch, at the innermost line of `path`."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    known = type(error).__module__.startswith("mase_server.")  # our own errors explain themselves
    match vars(error).get("place"):  # a user's exception may have anything under this name
        case (str(file), int(told)) if file == path:
            lines, known = [told], True
    line = (lines[-1] if lines else None) or 1
    if isinstance(error, OSError) and error.filename == path and not lines:
        text = f"{error.strerror}: {path} was there a moment ago. It is traced again as soon as it can be read."
        return Problem(path, 1, 0, 2, 0, "error", "unreadable", text)
    text = str(error) if known else "".join(traceback.format_exception_only(error)).strip()
    if not lines and not known:
        text += f". {snapshot.NOBODY}"
    code = "exited" if isinstance(error, SystemExit) else "exception"
    return Problem(path, line, 0, line + 1, 0, "error", code, f"Tracing stopped: {text}").bounded()


def serve_calls(connection: wire.Connection, live: object) -> None:
    """Answer calls about the live models until the server closes the wire."""
    # If user code replaced the job by a stand-in, torch may be missing.
    from mase_server.worker.transforms.service import Service

    Service(connection, live).serve()
