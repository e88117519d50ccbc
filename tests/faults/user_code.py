"""What a person's code may do to the process that runs it, and what they are told then: a table.

Each row is an edit of a good file in one place: `top` (before everything), `import` (after the classes), `constructor`
or `forward`.
"""

from __future__ import annotations

from dataclasses import dataclass

from good_net import GOOD, SEEN

MAIN = 'if __name__ == "__main__":\n'
INIT = "        super().__init__()\n"
STEP = "        return self.b(h)\n"
#: Function by function, so that no audit hook sees what is called.
LIBC = "import ctypes, os, time; libc = ctypes.CDLL(None)"


def indented(code):
    """Lines of a method's body."""
    return "".join(f"        {line}\n" for line in code.split("\n"))


PLACES = {
    "top": lambda code: f"{code}\n{GOOD}",
    "import": lambda code: GOOD.replace(MAIN, f"{code}\n{MAIN}"),
    "constructor": lambda code: GOOD.replace(INIT, INIT + indented(code)),
    "forward": lambda code: GOOD.replace(STEP, indented(code) + STEP),
}
UP_TO_THERE = {name: SEEN[name] for name in ("x", "h")}


@dataclass(frozen=True)
class Fault:
    """Code in a place of the file.

    state: of the trace.  code: of the only diagnostic, "" for none.  line: a text of the line that it stands at.  says:
    patterns of its message.  shown: the shapes that stand then, None for those of the last good text, stale.
    """

    place: str
    text: str
    state: str = "ready"
    code: str = ""
    line: str = ""
    says: tuple[str, ...] = ()
    shown: dict[str, str] | None = None

    @property
    def file(self):
        """The file with this fault."""
        return PLACES[self.place](self.text)


def harmless(place, text, **shown):
    """Shapes are those that the model has; nothing is told."""
    return Fault(place, text, shown={**SEEN, **shown})


def refused(text, what):
    """A statement that is left out, with a warning at it."""
    says = (rf"^{what} was refused while the model is traced", "put it under `if __name__")
    return Fault("import", text, "ready", "refused", text.split(";")[-1].strip(), says, SEEN)


def crashed(place, text, line, *says, code="crashed"):
    """The process ends; what was shown before stays, stale."""
    return Fault(place, text, "crashed", code, line, (*says, "not traced again until the file changes"))


def failed(place, text, code, line, *says, shown=None):
    """The trace tells an error."""
    return Fault(place, text, "failed", code, line, says, shown)


def every_descriptor(data, first=0):
    """Write to all that are open."""
    return f"import os\nfor number in range({first}, 65):\n    try: os.write(number, {data})\n    except OSError: pass"


def every_signal(handler):
    """Give all of them another handler."""
    install = f"    try: signal.signal(number, {handler})\n    except (OSError, ValueError): pass"
    return f"import signal\nfor number in range(1, 65):\n{install}"


def detached(then):
    """A process that nobody waits for and that no group holds: in a session of its own, its parents are gone."""
    apart = "libc.setsid()\n    if libc.fork() == 0:\n        libc.setsid()"
    return f"{LIBC}\nif libc.fork() == 0:\n    {apart}\n        {then}\n    libc._exit(0)"


#: Each starts another in a session of its own and ends: no group and no parent holds them. One of two thousand stays.
LEAVING = """\
if libc.fork() == 0:
    for _ in range(2000):
        libc.setsid()
        if libc.fork() != 0: libc._exit(0)
    time.sleep(600)"""
#: Each starts others for as long as it runs, in sessions of their own and deaf to signals. No more than 200 are there
#: at once, so that a server which does not end them leaves the machine to others: a lock on a byte of a file is taken
#: before each fork, and is free again once the fork has ended, however it ends.
BOMB = f"""{LIBC}
import fcntl, random, struct
for number in range(1, 65): libc.signal(number, ctypes.c_void_p(1))
own = os.open(os.devnull, os.O_RDONLY)
while True:
    taken = libc.open(os.fsencode(__file__), os.O_RDWR)
    lock = struct.pack("hhqqi", fcntl.F_WRLCK, 0, random.randrange(200), 1, 0)
    try: fcntl.fcntl(taken, 37, lock)  # F_OFD_SETLK
    except BlockingIOError:
        os.close(taken)
        continue
    if libc.fork() == 0:
        libc.setsid()
        os.close(own)
        own, taken = taken, own
    else: os.close(taken)"""
SPOILT = r"^The code closed or wrote to file descriptors that it did not open"
STOPPED = "^Tracing stopped: TypeError: "
NOBODY = "No line of this file raised it: perhaps the file changes what everything uses"
BROKEN = r"^The process that ran this file could not go on, perhaps because the code changes what everything uses"
#: Nothing can be written down any more by a process that is killed: at most it was looked at before.
SEEN_LAST = "(at a line that is not known|last seen at line [0-9]+ of )"
FIRST = "import torch"
SEGFAULT = r"died of SIGSEGV \(a segmentation fault in native code\), at line \d+ of .*\.py"

#: Ends of the process.
DEATHS = {
    "a segmentation fault in forward": crashed(
        "forward", "import ctypes; ctypes.string_at(0)", "string_at(0)", SEGFAULT
    ),
    "a segmentation fault at import": crashed("import", "import ctypes; ctypes.string_at(0)", "string_at(0)", SEGFAULT),
    "an abort in the constructor": crashed(
        "constructor", "import os; os.abort()", "os.abort()", "died of SIGABRT .* in __init__"
    ),
    "recursion in C": crashed(
        "forward",
        "import sys; sys.setrecursionlimit(10 ** 9)\ndef f(): return max([1], key=lambda _: f())\nf()",
        "max([1]",
        SEGFAULT,
    ),
    "kill -9 of itself": crashed("forward", f"{LIBC}; libc.kill(os.getpid(), 9)", "", "died of SIGKILL", SEEN_LAST),
    "kill -9 of its group": crashed("import", f"{LIBC}; libc.killpg(0, 9)", "", "died of SIGKILL", SEEN_LAST),
    "SIGTERM to itself": crashed(
        "forward", "import signal; signal.raise_signal(signal.SIGTERM)", "", "died of SIGTERM", SEEN_LAST
    ),
    "the exit of libc": crashed("forward", f"{LIBC}; libc.exit(5)", "", "exit status 5", SEEN_LAST, code="exited"),
    "another program in its place": crashed(
        "forward",
        f"{LIBC}\nfor number in (10, 12, 14): libc.signal(number, ctypes.c_void_p(1))\n"
        "libc.execl(b'/bin/sleep', b'sleep', b'600', None)",
        FIRST,
        "closed its connection",
    ),
    "every descriptor closed": crashed("import", "import os; os.closerange(0, 1000)", FIRST, SPOILT),
    "bytes to every descriptor": crashed(
        "forward", every_descriptor("b'nonsense'"), FIRST, SPOILT, r"a frame announces \d+ bytes"
    ),
    "zeros to every descriptor": crashed("import", every_descriptor("bytes(64)"), FIRST, SPOILT),
    "a frame to every descriptor": crashed("import", every_descriptor(r"b'\x00\x00\x00\x01\x07'"), FIRST, SPOILT),
    "no builtins": crashed("import", "import builtins\nbuiltins.len = builtins.isinstance = None", FIRST, BROKEN),
}

#: What is refused, or raises.
TOLD = {
    "os.kill of itself": refused("import os; os.kill(os.getpid(), 9)", "Sending a signal"),
    "os.kill of its parent": refused("import os; os.kill(os.getppid(), 9)", "Sending a signal"),
    "os.killpg of its group": refused("import os; os.killpg(0, 9)", "Sending a signal"),
    "a program": refused("import subprocess; subprocess.Popen(['sleep', '600'])", "Starting a program"),
    "another program": refused("import os; os.execv('/bin/true', ['true'])", "Starting a program"),
    "os.fork": refused("import os; os.fork()", "Starting a process"),
    "a pool of processes": refused("import multiprocessing; pool = multiprocessing.Pool(2)", "Starting a process"),
    "os.kill in forward": failed(
        "forward",
        "import os; os.kill(os.getppid(), 9)",
        "forward-error",
        "os.kill",
        "sending a signal was refused",
        shown=UP_TO_THERE,
    ),
    "as many descriptors as there are": failed(
        "constructor",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))\n"
        "self.held = [open('/dev/null') for _ in range(1 << 20)]",
        "constructor-error",
        "self.held",
        "Too many open files",
    ),
    "a message of 10 MB": failed(
        "forward",
        "raise ValueError('x' * 10_000_000)",
        "forward-error",
        "raise ValueError",
        r"^Running Net raised ValueError: x{1000}",
        r"characters more\)$",
        shown=UP_TO_THERE,
    ),
    "half a character": failed(
        "forward",
        r"raise ValueError('\ud800 \0 \x1b[31m')",
        "forward-error",
        "raise ValueError",
        "^Running Net raised ValueError",
        shown=UP_TO_THERE,
    ),
    "an exception of the lowest class": failed(
        "forward", "class Low(BaseException): pass\nraise Low('low')", "exception", "raise Low", "Low: low"
    ),
    "an exception hook": failed(
        "forward",
        "import sys; sys.excepthook = lambda *_: sys.exit(1)\nraise KeyError('seen')",
        "forward-error",
        "raise KeyError",
        "^Running Net raised KeyError: 'seen'",
        shown=UP_TO_THERE,
    ),
    "sys.settrace": failed(
        "import",
        "import sys\ndef tracer(*_): raise RuntimeError('traced')\nsys.settrace(tracer)",
        "import-error",
        "def tracer",
        "RuntimeError: traced",
        shown=SEEN,
    ),
    "no import": failed("import", "import builtins\nbuiltins.__import__ = None", "exception", FIRST, STOPPED, NOBODY),
    "no clock": failed(
        "import",
        "import time\ntime.time = time.monotonic = time.perf_counter = None",
        "exception",
        FIRST,
        STOPPED,
        NOBODY,
    ),
    "attributes without an end": failed(
        "constructor",
        "type(self).__getattr__ = lambda self, name: getattr(self, name + 'x')",
        "recursion",
        "type(self).__getattr__",
        "^This recurses without end",
        shown={"x": SEEN["x"]},
    ),
    "a module that holds itself": failed(
        "constructor", "self.me = self", "exception", "self.me = self", "the part 'me' of the model is the Net that it"
    ),
    "a part under a key that is no text": failed(
        "constructor",
        "self._modules[7] = nn.ReLU()",
        "exception",
        "self._modules[7] =",
        "^Tracing stopped: the model, a Net, keeps a part under the key 7 in its _modules",
        "Use the key '7'.",
    ),
    "a part under a key with a dot": harmless("constructor", "self._modules['a.weight'] = nn.Linear(3, 9)"),
    "modules that are nested as deep as torch runs them": harmless(
        "forward",
        "deep = nn.ReLU()\nfor _ in range(220):\n    deep = nn.Sequential(deep)\nh = deep(h)",
    ),
    "modules that are nested deeper than Python calls": failed(
        "constructor",
        "deep = nn.ReLU()\nfor _ in range(1200):\n    deep = nn.Sequential(deep)\nself.deep = deep",
        "exception",
        "class Net",
        "^Tracing stopped: the parts of the model are nested more than 1000 deep",
        "raise the limit with sys.setrecursionlimit",
    ),
    "modules that hold each other": failed(
        "constructor",
        "self.inner = nn.Module()\nself.inner.outer = self",
        "exception",
        "self.inner.outer = self",
        "the part 'inner.outer' of the model is the Net that it is in",
        "torch's walks over the model .* do not end",
    ),
    "more memory than there may be": crashed(
        "forward",
        "held = b'x' * (4 << 30)",
        "held = b'x'",
        "^Tracing used more than 0.8 GiB and was stopped, at line 13",
        "mase.limits.memory",
        code="memory-limit",
    ),
    "many small things": crashed(
        "constructor",
        "held = []\nwhile True:\n    held.append(bytes([1]) * 4096)",
        "",
        "^Tracing used more than 0.8 GiB",
        r"at line (8|9|10) of .* in __init__",
        code="memory-limit",
    ),
    "two hundred forks": crashed(
        "import",
        f"{LIBC}\nfor _ in range(200):\n    if libc.fork() == 0: time.sleep(600)\ntime.sleep(600)",
        "libc.fork()|time.sleep(600)",
        "^The code started more than 100 processes and was stopped",
        code="process-limit",
    ),
    "processes that leave each other": crashed(
        "forward",
        f"{LIBC}\n{LEAVING}\ntime.sleep(600)",
        "time.sleep(600)",
        "^The code started more than 100 processes and was stopped, at line",
        code="process-limit",
    ),
    "a bomb of forks": crashed(
        "forward",
        BOMB,
        "",
        "^The code started more than 100 processes and was stopped, ",
        code="process-limit",
    ),
    "a map of memory": crashed(
        "forward",
        "import mmap\nheld = mmap.mmap(-1, 4 << 30)\nones = bytes([1]) * (1 << 20)\nwhile True: held.write(ones)",
        "held.write(ones)",
        "^Tracing used more than 0.8 GiB",
        "at line 16 of .* in forward",
        code="memory-limit",
    ),
    "recursion without a limit": crashed(
        "import",
        "import sys; sys.setrecursionlimit(10 ** 9)\ndef f(held): return f(bytes(1 << 14))\nf(0)",
        "",
        "^Tracing used more than 0.8 GiB",
        r"at line 1[78] of",
        code="memory-limit",
    ),
}

#: What changes nothing that is seen.
HARMLESS = {
    "1 GB of output": harmless(
        "import",
        "import os\nblock = b'x' * (1 << 20)\nfor _ in range(1024):\n    left = len(block)\n"
        "    while left: left -= os.write(1, block[:left])",
    ),
    "64 MB of errors in one line": harmless(
        "forward", "import sys\nfor _ in range(64): sys.stderr.write('e' * (1 << 20))"
    ),
    "a process in a session of its own": harmless("import", detached("time.sleep(600)")),
    "a program in a session and an environment of its own": harmless(
        "import", detached("libc.execle(b'/bin/sleep', b'sleep', b'600', None, (ctypes.c_char_p * 1)(None))")
    ),
    "a process that ignores signals": harmless(
        "import", detached("import signal; signal.signal(15, signal.SIG_IGN); time.sleep(600)")
    ),
    "a fork that goes on": harmless("import", f"{LIBC}; libc.fork()"),
    "a fork that goes on in forward": harmless("forward", f"{LIBC}; libc.fork()"),
    "twenty forks": harmless("import", f"{LIBC}\nfor _ in range(20):\n    if libc.fork() == 0: time.sleep(600)"),
    "a thread": harmless("import", "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()"),
    "a thread that raises": harmless(
        "import", "import threading\ndef work(): raise SystemExit(3)\nthreading.Thread(target=work).start()"
    ),
    "an exit handler that hangs": harmless("import", "import atexit, time; atexit.register(time.sleep, 600)"),
    "a finalizer that hangs": harmless(
        "import", "import time\nclass Last:\n    def __del__(self): time.sleep(600)\nlast = Last()"
    ),
    "closed streams": harmless(
        "import",
        "import os, sys\nsys.stdout.close(); sys.stderr.close(); sys.stdin.close()\n"
        "for number in range(3):\n    try: os.close(number)\n    except OSError: pass",
    ),
    "streams that are None": harmless("import", "import sys; sys.stdout = sys.stderr = sys.stdin = None"),
    "streams that raise": harmless(
        "import",
        "import sys\nclass Bad:\n    def write(self, text): raise OSError('no')\nsys.stdout = sys.stderr = Bad()",
    ),
    "a message to every descriptor": harmless("import", every_descriptor(r"b'\x00\x00\x00\x0c\x81\xa5event\xa4what'")),
    "another directory": harmless("import", "import os; os.chdir('/')"),
    "a directory that is gone": harmless(
        "import", "import os, tempfile; os.chdir(tempfile.mkdtemp()); os.rmdir(os.getcwd())"
    ),
    "no environment": harmless("import", "import os; os.environ.clear()"),
    "no more descriptors": harmless("forward", "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))"),
    "signal handlers that raise": harmless("import", every_signal("lambda *_: 1 / 0")),
    "an alarm": harmless("import", "import signal; signal.signal(signal.SIGALRM, signal.SIG_DFL); signal.alarm(1)"),
    "a file that is really gone": harmless("import", f"{LIBC}; libc.unlink(os.fsencode(__file__))"),
    "a file that writes over itself": harmless("import", "open(__file__, 'w').write('')"),
    "nn.Module.__call__": harmless(
        "import", "call = nn.Module.__call__\nnn.Module.__call__ = lambda self, *args: call(self, *args)"
    ),
    "Tensor.__repr__": harmless(
        "import", "def broken(self, *_, **__): raise RuntimeError('patched')\ntorch.Tensor.__repr__ = broken"
    ),
    "nn.Linear.forward": harmless(
        "import", "nn.Linear.forward = lambda self, x: x[:, :1]", **{"h": ": f32[B, 1]", "self.b(h)": " -> f32[B, 1]"}
    ),
    "a clock that stands still": harmless(
        "import", "import time\ntime.time = time.monotonic = time.perf_counter = lambda: 0.0"
    ),
    "warnings as errors": harmless("import", "import warnings; warnings.simplefilter('error')"),
    "no garbage collection": harmless("import", "import gc; gc.disable(); gc.freeze(); gc.set_debug(gc.DEBUG_STATS)"),
    "a collector that raises": harmless("import", "import gc; gc.callbacks.append(lambda *_: 1 / 0)"),
    "the default type": harmless(
        "import",
        "torch.set_default_dtype(torch.float64)",
        **{name: label.replace("f32", "f64") for name, label in SEEN.items()},
    ),
    "a question": harmless("import", "name = input('name? ')"),
    "a question in forward": harmless("forward", "name = input('name? ')"),
    "a breakpoint": harmless("import", "breakpoint()"),
    "a breakpoint in forward": harmless("forward", "import pdb; pdb.set_trace()"),
    "asyncio.run": harmless("import", "import asyncio\nasync def main(): await asyncio.sleep(0)\nasyncio.run(main())"),
    "a model that cannot be told": harmless(
        "constructor", "type(self).__repr__ = type(self).__eq__ = type(self).__bool__ = lambda *_: 1 / 0"
    ),
}

TOO_LONG = r"^Tracing took longer than 8 s and was stopped, at line {} of .*\.py{}\."
HAD_RUN = r"^This file had run for 5.33 s without calling a model when it was stopped here"
SLEEPS = "while True:\n    try: time.sleep(0.1)\n    except BaseException: pass"


def endless(place, text, line, says):
    """Stopped by the supervisor."""
    return Fault(place, text, "crashed", "time-limit", line, (says, "mase.limits.seconds"))


WORKS = "import threading\ndef work():\n    while True: pass\nthreading.Thread(None, work, daemon=True).start()"

#: What never ends. They sleep where they can, because they are traced at the same time.
ENDLESS = {
    "a loop that catches all in forward": endless(
        "forward", f"import time\n{SLEEPS}", "time.sleep|except|while", TOO_LONG.format("1[456]", " in forward")
    ),
    "a loop that catches all at import": endless(
        "import", f"import time\n{SLEEPS}", "time.sleep|except|while", TOO_LONG.format("1[789]", "")
    ),
    "a call that never gives the interpreter back": endless(
        "forward",
        "import ctypes; lock, keep = bytes(64), ctypes.PyDLL(None).pthread_mutex_lock\nkeep(lock)\nkeep(lock)",
        "keep(lock)",
        TOO_LONG.format("15", " in forward"),
    ),
    "a huge regular expression": endless(
        "forward", "import re; re.match('(a+)+$', 'a' * 60 + 'b')", "re.match", TOO_LONG.format("13", " in forward")
    ),
    "a huge power": endless("forward", "n = 10 ** 10 ** 9", "10 ** 10", TOO_LONG.format("13", " in forward")),
    "a process that stops itself": crashed(
        "forward",
        "import signal; signal.raise_signal(signal.SIGSTOP)",
        "raise_signal",
        "^The process that ran this file was stopped by a signal, and was ended, at line 13 of .* in forward",
    ),
    "signals that are blocked": endless(
        "forward",
        "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); time.sleep(600)",
        "",
        "^Tracing took longer than 8 s and was stopped, at",
    ),
    "a lock that is never free": Fault(
        "constructor",
        "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
        "failed",
        "time-limit",
        "lock.acquire()",
        (HAD_RUN,),
    ),
    "an event loop for ever": Fault(
        "import",
        "import asyncio; asyncio.new_event_loop().run_forever()",
        "failed",
        "time-limit",
        "run_forever",
        (HAD_RUN,),
        SEEN,
    ),
    "signals that are ignored": Fault(
        "import",
        f"import time\n{every_signal('signal.SIG_IGN')}\ntime.sleep(600)",
        "failed",
        "time-limit",
        "time.sleep(600)",
        (HAD_RUN,),
        SEEN,
    ),
    "a thread that works": harmless("import", WORKS),
}

FAULTS = DEATHS | TOLD | HARMLESS
