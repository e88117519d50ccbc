"""Takes away from every Python that starts with this folder on its path what Windows, or MASE_WITHOUT=macos, lacks.

Python's own library keeps what it needs itself: it has a Windows side of its own, which cannot run here.
"""

import asyncio
import builtins
import contextlib
import faulthandler
import importlib
import io
import os
import signal
import socket
import subprocess
import sys

with contextlib.suppress(ImportError):
    importlib.import_module("platformdirs.unix")  # it has a Windows side, too

MODULES = ["fcntl", "resource", "grp", "pwd", "termios"]
NAMES = {
    os: ["fork", "forkpty", "getuid", "geteuid", "getgid", "getegid", "killpg", "setsid", "getsid", "getpgid",
         "setpgid", "setpriority", "getpriority", "nice", "getloadavg", "sysconf", "wait4", "wait3", "waitid",
         "WNOWAIT", "WIFSIGNALED", "WTERMSIG", "WIFEXITED", "WEXITSTATUS", "sched_getscheduler", "sched_setscheduler",
         "sched_getparam", "sched_getaffinity", "pidfd_open", "O_DIRECTORY", "O_NOFOLLOW"],
    faulthandler: ["register", "unregister"],
    socket: ["AF_UNIX", "send_fds", "recv_fds", "SO_PEERCRED", "MSG_DONTWAIT"],
    signal: ["SIGKILL", "SIGSTOP", "SIGCONT", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGALRM", "SIGCHLD", "SIGBUS",
             "setitimer", "getitimer", "alarm", "ITIMER_REAL", "pthread_sigmask"],
}  # fmt: skip

if os.environ.get("MASE_WITHOUT") == "macos":
    MODULES = []
    NAMES = {
        os: ["fork", "forkpty", "waitid", "sched_getscheduler", "sched_setscheduler", "sched_getparam",
             "sched_getaffinity", "pidfd_open"],
        socket: ["SO_PEERCRED"],
        signal: [],
    }  # fmt: skip
else:
    pair, family, kill = socket.socketpair, socket.AF_UNIX, signal.SIGKILL
    socket.socketpair = lambda: pair(family)
    subprocess.Popen.kill = lambda self: self.send_signal(kill)

    def refuse(self, *args):
        raise NotImplementedError

    for name in ("add_reader", "remove_reader", "add_writer", "add_signal_handler"):
        setattr(asyncio.SelectorEventLoop, name, refuse)
    asyncio.SelectorEventLoop.create_unix_server = asyncio.SelectorEventLoop.create_unix_connection = refuse

for name in MODULES:
    sys.modules[name] = None
for module, names in NAMES.items():
    for name in names:
        delattr(module, name)


def without_proc(function):
    def look(path=".", *args, **kwargs):
        if isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return function(path, *args, **kwargs)

    return look


builtins.open = io.open = without_proc(open)
for name in ("stat", "lstat", "listdir", "scandir", "open"):
    setattr(os, name, without_proc(getattr(os, name)))
