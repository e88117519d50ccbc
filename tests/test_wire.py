"""Frames: whatever is sent arrives whole and in order, and what is no frame is refused by name."""

import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mase_server.protocol import wire

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
MESSAGES = st.lists(st.dictionaries(st.text(), PLAIN), max_size=6)


@given(MESSAGES, st.data())
def test_messages_arrive_whole_however_the_stream_is_cut(messages, data):
    stream = b"".join(map(wire.encode, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder, arrived = wire.Decoder(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        decoder.feed(stream[start:end])
        while (message := decoder.next()) is not None:
            arrived.append(message)
    decoder.close()
    assert arrived == messages


@given(st.dictionaries(st.text(), PLAIN))
def test_a_frame_is_a_big_endian_length_and_plain_msgpack(message):
    frame = wire.encode(message)
    assert struct.unpack(">I", frame[:4])[0] == len(frame) - 4
    assert msgpack.unpackb(frame[4:], strict_map_key=False, unicode_errors="surrogatepass") == message


@given(st.binary(min_size=1, max_size=200))
def test_garbage_is_a_wire_error_or_a_map_and_nothing_else(garbage):
    decoder = wire.Decoder()
    decoder.feed(struct.pack(">I", len(garbage)) + garbage)
    try:
        assert isinstance(decoder.next(), dict)
    except wire.WireError as error:
        assert str(error)  # noqa: PT017


def test_a_file_name_that_is_not_unicode_survives():
    name = b"caf\xe9.py".decode("utf-8", "surrogateescape")
    assert wire.unpack(wire.pack({"file": name})) == {"file": name}


def test_an_oversized_announcement_is_refused_before_it_is_read():
    decoder = wire.Decoder()
    decoder.feed(b"\xff\xff\xff\xff")
    with pytest.raises(wire.WireError, match=r"a frame announces 4294967295 bytes, the limit is 67108864"):
        decoder.next()


def test_an_oversized_message_is_refused_before_it_is_sent():
    with pytest.raises(wire.WireError, match=r"a frame of 671\d+ bytes is over the limit of 67108864; keys \['big'\]"):
        wire.encode({"big": b"\0" * wire.MAX_FRAME})


def test_what_is_no_map_is_refused():
    decoder = wire.Decoder()
    decoder.feed(struct.pack(">I", 1) + b"\x01")
    with pytest.raises(wire.WireError, match="a frame holds a int, expected a map"):
        decoder.next()


def test_what_msgpack_cannot_express_is_named():
    with pytest.raises(wire.WireError, match="cannot be packed: TypeError"):
        wire.encode({"odd": object()})


def test_a_stream_that_ends_inside_a_frame_is_told_from_one_that_ends_between():
    ours, theirs = socket.socketpair()
    frame = wire.encode({"a": 1})
    theirs.sendall(frame + frame[:-1])
    theirs.close()
    connection = wire.Connection(ours)
    assert connection.read() == {"a": 1}
    with pytest.raises(wire.WireError, match=rf"ended inside a frame, {len(frame) - 1} bytes"):
        connection.read()
    ours.close()


def test_a_blocking_connection_carries_what_is_bigger_than_any_socket_buffer():
    ours, theirs = socket.socketpair()
    message = {"data": b"x" * (4 << 20)}
    sender = threading.Thread(target=lambda: (wire.Connection(theirs).send(message), theirs.close()))
    sender.start()
    connection = wire.Connection(ours)
    assert connection.read() == message
    assert connection.read() is None
    sender.join()
    ours.close()


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-(2**53), 2**53) | st.text(
    st.characters(exclude_categories=["Cs"]))))  # fmt: skip
def test_blobs_of_either_codec_read_alike(details):
    assert wire.unpack_blob(wire.pack_blob(details)) == details
    assert wire.unpack_blob(__import__("json").dumps(details).encode()) == details


FALLBACK = """
import importlib, sys, types
sys.modules["msgpack"] = None
package = types.ModuleType("_mase_msgpack")
package.__path__ = [sys.argv[1]]
sys.modules["_mase_msgpack"] = package
importlib.import_module("_mase_msgpack.fallback")
from mase_server.protocol import wire
message = {"a": [1, -2, 2**40, "é", b"\\xff", None, True, 1.5, {"b": {}}]}
decoder = wire.Decoder()
decoder.feed(wire.encode(message))
assert decoder.next() == message
assert wire.pack_blob({"x": 1}) == b'{"x":1}'
for garbage in (b"\\xc1", b"\\x92\\x01", b"", b"\\x01\\x02"):
    try:
        wire.unpack(garbage)
    except wire.WireError:
        continue
    raise SystemExit(f"{garbage} was taken")
print(wire.CODEC, wire.encode(message).hex())
"""


def test_the_pure_python_codec_sends_the_same_bytes():
    folder = str(Path(msgpack.__file__).parent)
    done = subprocess.run([sys.executable, "-c", FALLBACK, folder], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    codec, sent = done.stdout.split()
    message = {"a": [1, -2, 2**40, "é", b"\xff", None, True, 1.5, {"b": {}}]}
    assert (codec, sent) == ("fallback", wire.encode(message).hex())
