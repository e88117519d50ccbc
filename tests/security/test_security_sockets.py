"""Who may talk to a server: one guess of the token a connection, no browser, and no secret where others can read it."""

import asyncio
import hmac
import os
import select
import stat
import subprocess
from pathlib import Path

import pytest
import pytest_asyncio
from hostile import MODEL, SERVER
from rpc_serving import Raw, Served

from mase_server.client import Client, RpcError
from mase_server.rpc.listening import Listening
from mase_server.rpc.registry import TcpAddress

pytestmark = pytest.mark.asyncio(loop_scope="module")
SECRET = "hf_abcdefghijklmnopqrstuvwxyz"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sockets")
    with pytest.MonkeyPatch.context() as patch:
        served = await Served(folder, folder, patch).start()
        served.tcp = Listening(served.front, TcpAddress("127.0.0.1", 0))
        await served.tcp.start()
        yield served
        await served.tcp.close()
        await served.close()


async def dialled(served):
    address = served.tcp.address
    return Raw(*await asyncio.open_connection(address.host, address.port))


def guess(ident, token):
    return [0, ident, "mase/authenticate", [{"token": token}]]


async def test_a_connection_is_one_guess_of_the_token(served):
    """The right one behind a wrong one, in the same bytes, is not heard any more."""
    client, right = await dialled(served), served.tcp.token_file.read_text().strip()
    for number in range(20):
        client.send(guess(number, f"{number:043}"))
    client.send([2, "mase/authenticate", [{"token": right}]])
    client.send(guess(20, right))
    client.send([0, 21, "mase/info", [{}]])
    kind, ident, error, _ = await client.next()
    assert (kind, ident, error["code"]) == (1, 0, "unauthenticated")
    assert (await client.next())[1:] == [
        "mase/dropped",
        [{"code": "dropped", "message": "the token is not this server's"}],
    ]
    assert await client.next() is None
    await client.close()


async def test_what_was_asked_before_the_token_is_not_answered_by_it(served):
    client = await dialled(served)
    client.send([0, 1, "mase/files", [{}]])
    client.send(guess(2, served.tcp.token_file.read_text().strip()))
    client.send([0, 3, "mase/files", [{}]])
    answers = [await client.next() for _ in range(3)]
    assert [(each[1], each[2] and each[2]["code"]) for each in answers] == [
        (1, "unauthenticated"),
        (2, None),
        (3, None),
    ]
    await client.close()


@pytest.mark.parametrize(
    "said",
    [
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 40\r\n\r\n",
        b"GET /?token=x HTTP/1.1\r\nHost: rebound.example\r\nOrigin: https://rebound.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nHost: 127.0.0.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-x\r\n",
    ],
)
async def test_what_a_browser_says_ends_the_connection_and_nothing_behind_it_is_done(said, served):
    """A page can have its own text sent to a port of this machine: a request of ours in it is not read."""
    before = served.front.counts.requests
    client, right = await dialled(served), served.tcp.token_file.read_text().strip()
    client.send(said)
    client.send(guess(1, right))
    client.send([0, 2, "mase/info", [{}]])
    kind, method, told = await client.next()
    assert (kind, method, told[0]["code"]) == (2, "mase/error", "bad-message")
    assert await client.next() is None
    assert served.front.counts.requests == before
    await client.close()


async def test_tokens_are_compared_in_constant_time(served, monkeypatch):
    compared, real = [], hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda *both: compared.append(both) or real(*both))
    client = await dialled(served)
    client.send(guess(1, "wrong"))
    assert (await client.next())[2]["code"] == "unauthenticated"
    assert compared == [(b"wrong", served.tcp.token_file.read_text().strip().encode())]
    await client.close()


def asked(folder, private_home, session):
    """What a server on TCP that logs all that it can wrote while a client asked it, and what the session gave."""
    env = {**os.environ, **private_home, "HF_TOKEN": SECRET, "PYTHONASYNCIODEBUG": "1"}
    command = [*SERVER, "serve", str(folder), "--tcp", "127.0.0.1:0", "--log", "debug"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert select.select([process.stdout], [], [], 60)[0], "it does not say where it listens"
            given = session(process.stdout.readline().strip(), process.pid)
        finally:
            process.terminate()
        return given, "".join(process.communicate(timeout=60))


async def test_no_secret_is_written_where_others_read(tmp_path, private_home):
    folder, run = tmp_path / "project", Path(private_home["MASE_RUNTIME_DIR"])
    folder.mkdir()
    model = folder / "model.py"
    model.write_text(MODEL.format(trap=f"password = {SECRET[::-1]!r}", call="f32[3, 4]"))

    def session(address, pid):
        (token_file,) = run.glob(f"{pid}-*.token")
        token = token_file.read_text().strip()
        with Client(address, token_file=token_file) as client:
            with pytest.raises(RpcError, match="is not trusted"):
                client.call("mase/open", {"path": str(model)})
            with pytest.raises(RpcError):
                client.call("mase/nothing", {"token": token})
        assert token not in Path(f"/proc/{pid}/cmdline").read_text()
        readable = [each for each in run.iterdir() if each.is_file()]
        assert {stat.S_IMODE(each.stat().st_mode) for each in readable} == {0o600}
        assert [each for each in readable if token in each.read_text()] == [token_file]
        return token

    token, written = await asyncio.to_thread(asked, folder, private_home, session)
    for secret in (token, SECRET, SECRET[::-1], "nn.Linear(4, 2)"):
        assert secret not in written
