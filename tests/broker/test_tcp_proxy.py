"""The proxy that breaks the line between a daemon and its broker."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import wait_until

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1024):
        writer.write(data)
    writer.close()


@pytest.fixture
async def proxy() -> AsyncIterator[TcpProxy]:
    """A proxy in front of a server that sends back what it gets."""
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    async with TcpProxy(server.sockets[0].getsockname()[1]) as running:
        yield running
    server.close()


async def _connect(proxy: TcpProxy) -> Streams:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def _echoes(streams: Streams, data: bytes) -> bool:
    streams[1].write(data)
    return await streams[0].readexactly(len(data)) == data


async def test_bytes_pass_both_ways_and_connections_are_counted(proxy: TcpProxy) -> None:
    """Guards the plain line: data, the count of open connections, and a close that reaches the other side."""
    streams = await _connect(proxy)
    assert await _echoes(streams, b"x" * 200_000)
    assert (proxy.connections, proxy.accepted) == (1, 1)
    streams[1].close()
    await wait_until(lambda: proxy.connections == 0, description="the connection is forgotten")


async def test_reset_all_is_a_reset_and_new_connections_work(proxy: TcpProxy) -> None:
    """A client must see ECONNRESET, not an orderly end, and be able to come back."""
    reader, writer = await _connect(proxy)
    assert await _echoes((reader, writer), b"before")
    proxy.reset_all()
    with pytest.raises(ConnectionResetError):
        await reader.read()
    assert await _echoes(await _connect(proxy), b"after")


async def test_a_blackhole_is_silent_and_ends(proxy: TcpProxy) -> None:
    """While the line is dead nothing arrives and nothing closes; afterwards the bytes arrive in order."""
    reader, writer = await _connect(proxy)
    assert await _echoes((reader, writer), b"before")
    proxy.blackhole()
    writer.write(b"one")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.2)
    proxy.restore()
    assert await reader.readexactly(3) == b"one"


async def test_refuse_keeps_open_connections(proxy: TcpProxy) -> None:
    """Refusing is about new connections only, and the port stays the same afterwards."""
    streams = await _connect(proxy)
    assert await _echoes(streams, b"before")
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await _connect(proxy)
    assert await _echoes(streams, b"still")
    await proxy.accept()
    assert await _echoes(await _connect(proxy), b"again")
