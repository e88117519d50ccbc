"""Where servers are found, and that nothing planted is followed, believed or served."""

import asyncio
import json
import os
import re
import socket
import stat
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import msgpack
import pytest
import pytest_asyncio
from rpc_serving import Raw

from mase_server import private
from mase_server.client import Client, ClientError
from mase_server.rpc import registry
from mase_server.rpc.listening import Listening, bind_unix_socket
from mase_server.system import start_of

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MASE_RUNTIME_DIR", str(tmp_path / "run"))
    return registry.runtime_dir()


@pytest.fixture
def listener(folder):
    made = []

    def listen(name="a.sock"):
        made.append(bind_unix_socket(registry.UnixAddress(str(folder / name))))
        made[-1].listen()
        return f"unix:{folder / name}"

    yield listen
    for each in made:
        each.close()


def registered(folder, address, workspace="/work/a", pid=None, kind="serve"):
    pid = pid or os.getpid()
    told = registry.Registration(workspace, address, pid, start_of(pid), kind, "0.1")
    return registry.write_registration(folder, told)


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


async def test_folder_socket_and_file_are_this_users_alone(folder, listener):
    file = registered(folder, listener())
    assert (mode(folder), mode(folder / "a.sock"), mode(file)) == (0o700, 0o600, 0o600)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
async def test_modes_do_not_depend_on_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        folder = private.private_folder(tmp_path / "deep" / "run")
        made = bind_unix_socket(registry.UnixAddress(str(folder / "x.sock")))
        private.write_whole(folder / "x.json", "{}")
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert (mode(folder), mode(folder / "x.sock"), mode(folder / "x.json")) == (0o700, 0o600, 0o600)
    made.close()


async def test_a_planted_link_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("MASE_RUNTIME_DIR", str(tmp_path / "run"))
    with pytest.raises(private.NotPrivate, match=f"{tmp_path}/run is no folder; remove it"):
        registry.runtime_dir()


async def test_without_a_runtime_folder_of_the_session_one_in_the_temporary_folder_is_taken(tmp_path, monkeypatch):
    for variable in ("MASE_RUNTIME_DIR", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(registry.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(registry.os, "getuid", lambda: 4_000_000)
    monkeypatch.setattr(registry, "private_folder", lambda path: path)
    with warnings.catch_warnings(action="error"):
        assert registry.runtime_dir() == tmp_path / "mase-server-4000000"


async def test_a_runtime_folder_that_cannot_be_made_is_said_or_another_is_taken(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MASE_RUNTIME_DIR", str(tmp_path / "file" / "run"))
    told = f"the folder for sockets, {tmp_path}/file/run, cannot be created (Not a directory); set MASE_RUNTIME_DIR"
    with pytest.raises(OSError, match=re.escape(told)):
        registry.runtime_dir()
    monkeypatch.delenv("MASE_RUNTIME_DIR")
    monkeypatch.setattr(registry.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(registry, "Path", lambda path: Path(str(path).replace("/run/user/", f"{tmp_path}/none/")))
    for folder in ("file", "none"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / folder))
        with warnings.catch_warnings(action="error"):
            assert registry.runtime_dir() == tmp_path / f"mase-server-{os.getuid()}"


async def test_a_folder_that_others_can_enter_is_refused(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o755)
    monkeypatch.setenv("MASE_RUNTIME_DIR", str(tmp_path / "run"))
    with pytest.raises(private.NotPrivate, match=r"is open to other users \(mode 755\); run chmod go= "):
        registry.runtime_dir()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
async def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir(mode=0o700)
    os.chown(tmp_path / "run", 12345, 12345)
    monkeypatch.setenv("MASE_RUNTIME_DIR", str(tmp_path / "run"))
    with pytest.raises(private.NotPrivate, match="belongs to user 12345, not to this one"):
        registry.runtime_dir()


async def test_a_registration_that_is_a_link_is_not_read(folder, listener, tmp_path):
    file = registered(folder, listener())
    file.rename(tmp_path / "planted.json")
    file.symlink_to(tmp_path / "planted.json")
    assert registry.registrations(folder) == []


async def test_the_server_of_a_workspace_is_found_from_below_it(folder, listener):
    address = listener()
    registered(folder, address, "/work/a")
    assert registry.find_registration(folder, "/work/a").address == address
    assert registry.find_registration(folder, "/work/a/b/net.py").address == address
    assert registry.find_registration(folder, "/work/ab") is None
    assert registry.find_registration(folder, "/work") is None


async def test_the_innermost_workspace_counts_and_then_the_editor(folder, listener):
    outer, inner, editor = (listener(name) for name in ("o.sock", "i.sock", "e.sock"))
    registered(folder, outer, "/work", pid=os.getppid())
    registered(folder, inner, "/work/a")
    assert registry.find_registration(folder, "/work/a/x.py").address == inner
    registered(folder, editor, "/work/a", pid=os.getppid(), kind="editor")
    assert registry.find_registration(folder, "/work/a/x.py").address == editor
    assert registry.find_registration(folder, "/work/b.py").address == outer


async def test_what_a_dead_server_left_is_removed(folder):
    made = bind_unix_socket(registry.UnixAddress(str(folder / "dead.sock")))
    file = registered(folder, f"unix:{folder / 'dead.sock'}", pid=_ended_process())
    made.close()
    assert registry.registrations(folder) == []
    assert not file.exists()
    assert not (folder / "dead.sock").exists()


def _ended_process():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


async def test_another_process_at_the_port_of_a_dead_server_is_not_believed(folder):
    other = socket.create_server(("127.0.0.1", 0))
    told = registry.Registration("/w", f"127.0.0.1:{other.getsockname()[1]}", os.getpid(), "12", "serve", "0.1")
    registry.write_registration(folder, told)
    assert registry.find_registration(folder, "/w") is None
    other.close()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"workspace": 1}', json.dumps({"address": "8.8.8.8:1"})])
async def test_a_broken_registration_is_removed(folder, text):
    private.write_whole(folder / "0-1.json", text)
    assert registry.registrations(folder) == []
    assert not list(folder.glob("*.json"))


async def test_a_socket_that_somebody_listens_at_is_not_taken_over(folder, listener):
    listener()
    with pytest.raises(OSError, match=f"cannot listen at {folder}/a.sock: Address already in use"):
        bind_unix_socket(registry.UnixAddress(str(folder / "a.sock")))


async def test_a_dead_socket_is_taken_over_and_a_file_is_not(folder):
    bind_unix_socket(registry.UnixAddress(str(folder / "x.sock"))).close()
    bind_unix_socket(registry.UnixAddress(str(folder / "x.sock"))).close()
    (folder / "y.sock").write_text("mine")
    with pytest.raises(OSError, match="Address already in use"):
        bind_unix_socket(registry.UnixAddress(str(folder / "y.sock")))
    assert (folder / "y.sock").read_text() == "mine"


async def test_a_link_at_the_sockets_place_is_not_followed(folder, tmp_path):
    (folder / "z.sock").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="Address already in use"):
        bind_unix_socket(registry.UnixAddress(str(folder / "z.sock")))
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.0.0.0:80", "'0.0.0.0' is not this machine's loopback: only 127.0.0.1 and ::1 are served"),
        ("192.168.1.2:80", "'192.168.1.2' is not this machine's loopback: only 127.0.0.1 and ::1 are served"),
        ("example.org:80", "'example.org' is not this machine's loopback: only 127.0.0.1 and ::1 are served"),
        (":80", "'' is not this machine's loopback: only 127.0.0.1 and ::1 are served"),
        ("127.0.0.1", "'127.0.0.1' is no HOST:PORT, e.g. 127.0.0.1:8123 (port 0 takes a free one)"),
        ("127.0.0.1:99999", "'127.0.0.1:99999' is no HOST:PORT, e.g. 127.0.0.1:8123 (port 0 takes a free one)"),
        ("/" + "x" * 120, "the socket's path has 121 bytes, 103 are the most: /" + "x" * 120),
    ],
)
async def test_an_address_that_is_not_served_says_why(text, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  (the whole text is compared)
        registry.parse_address(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["127.0.0.1:80", "[::1]:80", "unix:/a/b.sock"])
async def test_an_address_reads_back_as_it_was_written(text):
    assert str(registry.parse_address(text)) == text
    assert registry.parse_address("localhost:80") == registry.parse_address("127.0.0.1:80")


# TCP


@pytest_asyncio.fixture(loop_scope="session")
async def tcp(served, tmp_path):
    listening = Listening(served.front, registry.TcpAddress("127.0.0.1", 0), tmp_path / "token")
    await listening.start()
    yield listening
    await listening.close()


async def dial(tcp):
    return Raw(*await asyncio.open_connection(tcp.address.host, tcp.address.port))


async def test_nothing_is_answered_before_the_token(tcp):
    client = await dial(tcp)
    for method in ("mase/info", "mase/open", "mase/nonsense"):
        assert await client.code(method) == "unauthenticated"
    token = tcp.token_file.read_text().strip()
    assert await client.result("mase/authenticate", token=token) == {"authenticated": True}
    assert (await client.result("mase/info"))["name"] == "mase-server"
    await client.close()


@pytest.mark.parametrize("token", ["", "x" * 43, "é", None, 7, [], {}])
async def test_a_wrong_token_ends_the_connection(tcp, token):
    client = await dial(tcp)
    assert await client.code("mase/authenticate", token=token) == "unauthenticated"
    assert (await client.next())[1] == "mase/dropped"
    assert await client.next() is None


async def test_the_file_of_the_token_is_this_users_alone_and_kept(tcp, served):
    assert mode(tcp.token_file) == 0o600
    token = tcp.token_file.read_text()
    assert len(token.strip()) >= 43
    again = Listening(served.front, registry.TcpAddress("127.0.0.1", 0), tcp.token_file)
    await again.start()
    await again.close()
    assert tcp.token_file.read_text() == token


async def test_a_token_that_others_can_read_is_refused(served, tmp_path):
    (tmp_path / "token").write_text("x" * 40)
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(private.NotPrivate, match=r"is open to other users \(mode 644\)"):
        await Listening(served.front, registry.TcpAddress("127.0.0.1", 0), tmp_path / "token").start()


async def test_a_short_token_is_refused(served, tmp_path):
    private.write_whole(tmp_path / "token", "secret")
    with pytest.raises(ValueError, match="has 6 characters, 16 are the fewest"):
        await Listening(served.front, registry.TcpAddress("127.0.0.1", 0), tmp_path / "token").start()


async def test_a_stranger_may_send_little(tcp):
    client = await dial(tcp)
    client.send([0, 1, "mase/authenticate", [{"token": "x" * 8000}]])
    assert (await client.next())[2][0]["code"] == "bad-message"
    await client.close()


async def test_who_said_the_token_may_send_more(tcp):
    client = await dial(tcp)
    await client.result("mase/authenticate", token=tcp.token_file.read_text().strip())
    error, _ = await client.ask("mase/subscribe", {"topics": ["x" * 10] * 900})
    assert error["message"].startswith("there is no topic 'xxxxxxxxxx'")
    await client.close()


async def test_what_comes_with_the_token_is_read_as_well(tcp):
    client = await dial(tcp)
    token = tcp.token_file.read_text().strip()
    hello, more = [0, 1, "mase/authenticate", [{"token": token}]], [0, 2, "mase/files", [{}]]
    data = msgpack.packb(hello) + msgpack.packb(more)
    client.send(data[:-3])
    await client.writer.drain()
    assert (await client.next())[:3] == [1, 1, None]
    client.send(data[-3:])
    assert (await client.next())[:3] == [1, 2, None]
    await client.close()


async def test_a_stranger_has_a_moment_to_say_the_token(limited, tmp_path):
    served = await limited(greeting_seconds=0.2)
    tcp = Listening(served.front, registry.TcpAddress("127.0.0.1", 0), tmp_path / "token")
    await tcp.start()
    client = await dial(tcp)
    told = await client.next()
    assert (told[1], told[2][0]["message"]) == ("mase/dropped", "the client sent no mase/authenticate in time")
    assert await client.next() is None
    await tcp.close()


async def test_our_client_finds_address_and_token(served, tcp, tmp_path):
    (tmp_path / "project").mkdir()
    await tcp.register([str(tmp_path / "project")], "serve")

    def work():
        with Client(workspace=tmp_path / "project") as client:
            return client.info()["name"]

    assert await asyncio.to_thread(work) == "mase-server"
    with pytest.raises(ClientError):
        await asyncio.to_thread(Client(str(tcp.address), reconnect=False).info)


async def test_a_server_that_ends_while_it_registers_leaves_no_file(served, tmp_path, monkeypatch):
    monkeypatch.setenv("MASE_RUNTIME_DIR", str(tmp_path / "run"))
    ending, ended = threading.Event(), threading.Event()

    def write_late(folder, registration):
        if registration.workspace == "/b":
            ending.set()
            ended.wait(0.5)
        return registry.write_registration(folder, registration)

    monkeypatch.setattr("mase_server.rpc.listening.write_registration", write_late)
    listening = Listening(served.front)
    await listening.start()
    registering = asyncio.create_task(listening.register(["/a", "/b"], "editor"))
    await asyncio.to_thread(ending.wait, 60)
    await listening.close()
    ended.set()
    await registering
    await listening.register(["/c"], "editor")
    assert list((tmp_path / "run").iterdir()) == []


async def test_folders_that_are_no_longer_served_are_forgotten(served, tmp_path, monkeypatch):
    monkeypatch.setenv("MASE_RUNTIME_DIR", str(tmp_path / "run"))
    listening = Listening(served.front)
    await listening.start()
    await listening.register(["/a", "/b"], "editor")
    await listening.register(["/b"], "editor")
    found = registry.registrations(tmp_path / "run")
    assert [one.workspace for one in found] == ["/b"]
    await listening.close()
    assert list((tmp_path / "run").iterdir()) == []
    assert Path("/").exists()
