"""Who may talk to `mase-server lsp` over TCP, and what becomes of bytes that are no message."""

import asyncio
import json
import os
import re
import stat
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from editing import Editor
from hostile import SERVER

#: A server that gives a client another time than ten seconds to say its token.
GREETED = "from mase_server.lsp import process\nprocess._GREETING = {}\nfrom mase_server.cli.main import main\nmain()"
NOTICE = "initializationOptions.token has to be the text of "


class Listening:
    """A language server that waits for an editor on loopback."""

    def __init__(self, process, port, token_file):
        self.process, self.port, self.token_file = process, port, token_file

    @classmethod
    async def start(cls, *options, env=None, server=SERVER):
        command = [*server, "lsp", "--tcp", "127.0.0.1:0", *options]
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(*command, stderr=pipe, stdin=null, env=env)
        where, _, path = (await process.stderr.readline()).decode().partition("listening at ")[2].partition("; ")
        return cls(process, int(where.rpartition(":")[2]), path.strip().removeprefix(NOTICE))

    @property
    def token(self):
        return Path(self.token_file).read_text("utf-8").strip()

    async def say(self, *frames):
        """What a connection is answered, up to its end, for these bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.writelines(frames)
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return answer.decode()


def frame(body, headers=None):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (headers or b"Content-Length: %d\r\n\r\n" % len(data)) + data


def initialize(token, ident=1):
    options = {} if token is None else {"token": token}
    params = {"processId": None, "rootUri": None, "capabilities": {}, "initializationOptions": options}
    return frame({"jsonrpc": "2.0", "id": ident, "method": "initialize", "params": params})


@pytest.fixture
async def listen(private_home):
    """A function that starts a server, which ends with the test. seconds: that a client has to say its token."""
    servers = []

    async def start(*options, seconds=10):
        command = (sys.executable, "-c", GREETED.format(seconds))
        servers.append(await Listening.start(*options, env={**os.environ, **private_home}, server=command))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.returncode is None:
            server.process.kill()
        await server.process.wait()


@pytest.fixture
async def listening(listen):
    return await listen()


async def test_only_who_knows_the_token_is_served_over_tcp(listening, tmp_path):
    assert stat.S_IMODE(Path(listening.token_file).stat().st_mode) == 0o600
    for wrong in (None, "", listening.token[:-1], 7, [listening.token]):
        told = await listening.say(initialize(wrong), initialize(listening.token, 2))
        assert '"id": 1' in told
        assert "initializationOptions.token" in told
        assert '"id": 2' not in told  # one guess a connection
    earlier = frame({"jsonrpc": "2.0", "id": 1, "method": "workspace/executeCommand", "params": {"command": "x"}})
    assert "has to be `initialize`" in await listening.say(earlier, initialize(listening.token))
    browser = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 400\r\n\r\n"
    assert "'POST / HTTP/1.1' is not a header" in await listening.say(browser, initialize(listening.token))
    token = listening.token
    editor = Editor(tmp_path, options={"token": token})
    await editor.client.start_tcp("127.0.0.1", listening.port)
    assert (await editor.initialize(os.getpid())).server_info.name == "mase-server"
    assert not Path(listening.token_file).exists()
    with pytest.raises(OSError, match=r"."):  # it listens no longer
        await asyncio.open_connection("127.0.0.1", listening.port)
    await editor.client.shutdown_async(None)
    editor.client.exit(None)
    assert await asyncio.wait_for(listening.process.wait(), 30) == 0
    assert token.encode() not in await listening.process.stderr.read()


async def ended(reader):
    """Wait until the server ends a connection; it says nothing before."""
    with suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 60) == b""


async def test_of_silent_strangers_the_oldest_goes_when_more_come_and_none_keeps_the_editor_out(listen, tmp_path):
    listening = await listen(seconds=600)
    silent = [await asyncio.open_connection("127.0.0.1", listening.port) for _ in range(100)]
    await asyncio.gather(*(ended(reader) for reader, _ in silent[:68]))
    descriptors = map(os.readlink, Path(f"/proc/{listening.process.pid}/fd").iterdir())
    assert sum("socket" in each for each in descriptors) < 50
    editor = Editor(tmp_path, options={"token": listening.token})
    await editor.client.start_tcp("127.0.0.1", listening.port)
    assert (await editor.initialize(os.getpid())).server_info.name == "mase-server"
    await asyncio.gather(*(ended(reader) for reader, _ in silent[68:]))  # it has its editor
    for _, writer in silent:
        writer.close()
    await editor.client.shutdown_async(None)
    editor.client.exit(None)
    assert await asyncio.wait_for(listening.process.wait(), 30) == 0


async def test_a_stranger_has_so_long_to_say_its_token_also_where_bytes_come_all_the_while(listen):
    server = await listen(seconds=1)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)

    async def trickle():
        with suppress(ConnectionError):
            for byte in initialize(server.token):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.1)

    trickling = asyncio.ensure_future(trickle())
    await ended(reader)
    assert not trickling.done()
    trickling.cancel()


async def test_a_token_file_is_made_once_and_kept(private_home, tmp_path):
    path = tmp_path / "token"
    for _ in range(2):
        server = await Listening.start("--token-file", str(path), env={**os.environ, **private_home})
        assert server.token_file == str(path)
        token = server.token
        server.process.kill()
        await server.process.wait()
        assert path.read_text().strip() == token


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--tcp", "0.0.0.0:8765"), 2, "only 127.0.0.1 and ::1 are served"),
        (("--tcp", "192.0.2.7:8765"), 2, "only 127.0.0.1 and ::1 are served"),
        (("--token-file", "x"), 2, "--token-file is for --tcp"),
        (("--tcp", "127.0.0.1:0", "--token-file", "open"), 1, "is open to other users"),
    ],
)
async def test_what_would_not_be_safe_is_refused(options, code, says, tmp_path):
    (tmp_path / "open").write_text("x" * 40)
    (tmp_path / "open").chmod(0o644)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*SERVER, "lsp", *options, cwd=tmp_path, stderr=pipe, stdout=pipe)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, out) == (code, b"")
    assert says in err.decode()


PING = frame({"jsonrpc": "2.0", "id": 9, "method": "no/such", "params": {}})
FATAL = {
    "a length that is no number": (b"Content-Length: many\r\n\r\n{}", "is not a valid message length"),
    "a negative length": (b"Content-Length: -5\r\n\r\n{}", "is not a valid message length"),
    "two lengths": (b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "is not a valid message length"),
    "a length of a terabyte": (b"Content-Length: 1000000000000\r\n\r\n{}", "bytes are read"),
    "a length of more digits than a number has": (
        b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        "is not a valid message length",
    ),
    "no length": (b"Content-Type: x\r\n\r\n{}", "no Content-Length"),
    "a line that is no header": (b"hello\r\n\r\n{}", "'hello' is not a header"),
    "a line without end": (b"x" * 20000, "more than 8192 bytes"),
    "headers without end": (b"X: y\r\n" * 3000, "more than 8192 bytes"),
}
LASTING = {
    "a body that is no JSON": (b"{nonsense", -32700, None),
    "a body that is no text": (b"\xff\xfe\x00", -32700, None),
    "a body that nests without end": (b"[" * 200_000, -32700, None),
    "a list": (b"[1]", -32600, None),
    "another protocol": (b'{"id": 1}', -32600, None),
    "an id that is none": (b'{"jsonrpc": "2.0", "id": {}, "method": "shutdown"}', -32600, None),
    "a method that is none": (b'{"jsonrpc": "2.0", "id": 4, "method": 4}', -32600, 4),
    "parameters of another form": (b'{"jsonrpc": "2.0", "id": 5, "method": "initialize", "params": 3}', -32602, 5),
}


async def converse(*frames):
    """What a server on its standard streams answers to these bytes, and what comes of `PING` behind them."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*SERVER, "lsp", stdin=pipe, stdout=pipe, stderr=pipe)
    out, errors = await asyncio.wait_for(process.communicate(b"".join((*frames, PING))), 60)
    answers = []
    while out:
        headers, _, out = out.partition(b"\r\n\r\n")
        size = int(re.search(rb"Content-Length: (\d+)", headers)[1])
        answers.append(json.loads(out[:size]))
        out = out[size:]
    assert answers, errors
    return answers


@pytest.mark.parametrize("name", FATAL)
async def test_headers_that_cannot_be_read_get_an_error_and_the_end(name):
    said, told = FATAL[name]
    (answer,) = await converse(said)
    assert answer["id"] is None
    assert told in answer["error"]["message"]


async def test_bodies_that_are_no_message_get_an_error_each_and_the_stream_goes_on():
    answers = await converse(*(frame(body) for body, _, _ in LASTING.values()))
    told = [(answer["error"]["code"], answer["id"]) for answer in answers]
    assert told == [*((code, ident) for _, code, ident in LASTING.values()), (-32601, 9)]
    assert all(answer["error"]["message"] for answer in answers)


async def test_headers_may_end_in_line_feeds_and_come_in_any_case():
    answers = await converse(b"content-length: 2\n\n{}")
    assert [answer["error"]["code"] for answer in answers] == [-32600, -32601]
