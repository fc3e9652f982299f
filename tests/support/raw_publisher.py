"""Publishes messages whose properties no client library would write: bytes that are not UTF-8, absurd times, any table.

A blocking AMQP 0-9-1 client of one connection, one channel and one message at a time, with confirms.
"""

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from pamqp import body, commands, frame, header

_SECONDS = 30.0
_FLAGS = commands.Basic.Properties.flags


def short(data: bytes) -> bytes:
    """A short string of any bytes."""
    return bytes([len(data)]) + data


def table(entries: bytes) -> bytes:
    """A table of these encoded entries."""
    return struct.pack(">I", len(entries)) + entries


def long_entry(key: bytes, value: bytes) -> bytes:
    """A table's entry that is a long string."""
    return short(key) + b"S" + struct.pack(">I", len(value)) + value


def nested(depth: int) -> bytes:
    """An entry of so many tables, one in the other."""
    inner = table(b"")
    for _ in range(depth):
        inner = table(b"\x01aF" + inner)
    return b"\x01aF" + inner


class RawPublisher:
    """Publishes through the default exchange, or one that is named."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._unread = b""

    def publish(self, queue: str, content: bytes, *, exchange: str = "", **properties: bytes) -> bool:
        """Publish `content`; each property is given as its bytes on the wire. True where the broker confirmed it."""
        flags = sum(_FLAGS[name] for name in properties)
        values = b"".join(properties[name] for name in commands.Basic.Properties.attributes() if name in properties)
        payload = struct.pack(">HHQH", commands.Basic.frame_id, 0, len(content), flags) + values
        self._send(commands.Basic.Publish(exchange=exchange, routing_key=queue), 1)
        self._socket.sendall(struct.pack(">BHI", 2, 1, len(payload)) + payload + b"\xce")
        for begin in range(0, len(content), 100_000):
            self._socket.sendall(frame.marshal(body.ContentBody(content[begin : begin + 100_000]), 1))
        return isinstance(self._receive(), commands.Basic.Ack)

    def _call(self, request: Any, channel: int) -> None:
        self._send(request, channel)
        answer = self._receive()
        assert answer.name in request.valid_responses, answer.name

    def _send(self, request: Any, channel: int = 0) -> None:
        self._socket.sendall(frame.marshal(request, channel))

    def _receive(self) -> Any:
        while True:
            consumed, _, received = frame.unmarshal(self._unread) if len(self._unread) > 7 else (0, 0, None)
            if received is not None:
                self._unread = self._unread[consumed:]
                return received
            data = self._socket.recv(65_536)
            assert data, "the broker closed the connection"
            self._unread += data

    def open(self, user: str, password: str, vhost: str) -> None:
        """The handshake, one channel, and confirms."""
        self._socket.sendall(header.ProtocolHeader().marshal())
        assert isinstance(self._receive(), commands.Connection.Start)
        response = f"\x00{user}\x00{password}"
        self._send(commands.Connection.StartOk(client_properties={}, mechanism="PLAIN", response=response))
        tune = self._receive()
        self._send(commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0))
        self._call(commands.Connection.Open(virtual_host=vhost), 0)
        self._call(commands.Channel.Open(), 1)
        self._call(commands.Confirm.Select(), 1)


@contextlib.contextmanager
def raw_publisher(url: str) -> Iterator[RawPublisher]:
    """A publisher connected to `url`."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 5672), _SECONDS) as sock:
        sock.settimeout(_SECONDS)
        publisher = RawPublisher(sock)
        publisher.open(parts.username or "", parts.password or "", unquote(parts.path[1:]) or "/")
        yield publisher


__all__ = ["RawPublisher", "long_entry", "nested", "raw_publisher", "short", "table"]
