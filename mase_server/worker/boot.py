"""Starts a worker in the user's interpreter: `INTERPRETER boot.py --wire FD --role parent ...`, by path, never `-m`.

That interpreter has torch but not this project, and may be too old: this file therefore parses under Python 3.7, loads
the package from its own location, and adds nothing to `sys.path`. (`-P` would be the plain way to keep this folder off
`sys.path`, but interpreters before 3.11 refuse it and could then not say that they are too old: see `programs`.)
"""

from __future__ import annotations

import sys

if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]

from pathlib import Path

HERE = Path(__file__).resolve().parent

import argparse  # noqa: E402
import importlib.util  # noqa: E402
import os  # noqa: E402
import socket  # noqa: E402
import struct  # noqa: E402
import types  # noqa: E402

MIN_PYTHON = (3, 11)
PRIVATE_MSGPACK = "_mase_msgpack"
WIRE_SECRET = "MASE_WIRE_SECRET"


def parse_arguments() -> argparse.Namespace:
    """The command line that the server's launcher wrote."""
    parser = argparse.ArgumentParser(prog="boot.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--wire", required=True, help="inherited socket to the server, or HOST:PORT")
    parser.add_argument("--role", choices=("parent", "spare"), required=True)
    parser.add_argument("--msgpack", required=True, help="folder of the server's msgpack package")
    parser.add_argument("--folder", required=True, help="workspace folder, whose modules are never preloaded")
    parser.add_argument("--job", required=True, help="module:function, or /path/file.py:function")
    return parser.parse_args()


def take_wire(named: str) -> socket.socket:
    """The connection to the server: an inherited one moves to a fresh close-on-exec descriptor.

    Stdout becomes stderr, so that prints cannot write to it. Where no socket is inherited, the connection to HOST:PORT
    begins with the secret in the environment.
    """
    os.dup2(2, 1)
    host, colon, port = named.rpartition(":")
    if colon:
        wire = socket.create_connection((host, int(port)))
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.sendall(os.environ.pop(WIRE_SECRET).encode())
        return wire
    fd = os.dup(int(named))
    os.close(int(named))
    os.set_inheritable(fd, False)
    return socket.socket(fileno=fd)


def refuse(wire: socket.socket, code: str, message: str) -> None:
    """Tell the server why this interpreter cannot be used. Packed by hand: the interpreter may be too old for
    msgpack."""

    def text(value: str) -> bytes:
        data = value.encode("utf-8", "replace")
        return b"\xda" + struct.pack(">H", len(data)) + data

    reason = {"code": code, "message": message, "python": sys.executable}
    packed = b"".join(text(part) for item in reason.items() for part in item)
    body = b"\x81" + text("handshake_failed") + bytes([0x80 + len(reason)]) + packed
    wire.sendall(struct.pack(">I", len(body)) + body)


def load_package(root: Path) -> None:
    """Load the package at `root` under the name `mase_server`, leaving `sys.path` as it is."""
    spec = importlib.util.spec_from_file_location(
        "mase_server", str(root / "__init__.py"), submodule_search_locations=[str(root)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mase_server"] = module
    spec.loader.exec_module(module)


def ensure_msgpack(folder: str) -> None:
    """If this interpreter has no usable msgpack, load the server's pure-Python one under a private name."""
    try:
        import msgpack  # type: ignore[import-untyped]

        if msgpack.version[0] >= 1:
            return
    except Exception:  # noqa: BLE001  (a broken installation of the user's may raise anything)
        sys.modules.pop("msgpack", None)
    package = types.ModuleType(PRIVATE_MSGPACK)
    package.__path__ = [folder]
    sys.modules[PRIVATE_MSGPACK] = package
    importlib.import_module(PRIVATE_MSGPACK + ".fallback")


def main() -> int:
    """Run the role that the command line names; return 1 if the interpreter cannot be used."""
    arguments = parse_arguments()
    if os.environ.get("PYTHONSAFEPATH") == "mase-server":
        del os.environ["PYTHONSAFEPATH"]  # it was for this start; a person's own value stays
    wire = take_wire(arguments.wire)
    if sys.version_info < MIN_PYTHON:
        version = ".".join(map(str, sys.version_info[:3]))
        refuse(wire, "python-too-old", f"{sys.executable} is Python {version}; tracing needs 3.11 or newer. "
               "Choose another interpreter for this folder.")  # fmt: skip
        return 1
    ensure_msgpack(arguments.msgpack)
    load_package(HERE.parent)
    from mase_server.worker import parent

    return parent.run_role(arguments.role, wire, folder=arguments.folder, job=arguments.job)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # shutting torch down properly takes 0.3 s, and nothing here needs it
