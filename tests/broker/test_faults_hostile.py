"""Hostile messages: no single one may stop a daemon, cut its connection, or loop."""

import asyncio
import json
import struct
import zlib
from collections.abc import Iterator

import aio_pika
import pytest
from private_broker import PrivateBroker

from tests.broker.conftest import AskFrom, StartDaemon
from tests.support.daemon_process import DaemonProcess
from tests.support.raw_publisher import RawPublisher, long_entry, nested, raw_publisher, short, table
from tests.support.requester import QUESTION, Requester
from tests.support.wait import wait_until

BODY = json.dumps(QUESTION | {"max_new_tokens": 2}).encode()


@pytest.fixture
async def daemon(start_daemon: StartDaemon) -> DaemonProcess:
    return await start_daemon()


@pytest.fixture
def raw(broker: PrivateBroker) -> Iterator[RawPublisher]:
    with raw_publisher(broker.url) as publisher:
        yield publisher


async def assert_unharmed(daemon: DaemonProcess, requester: Requester) -> None:
    """The same process answers the next request, and no connection was lost."""
    assert (await requester.terminal(await requester.send(fields={"max_new_tokens": 2}))).code == "ok"
    for link in ("consume", "publish"):
        assert daemon.metric("leveret_broker_reconnects_total", link=link) == 0


async def parked(broker: PrivateBroker, queue: str, count: int) -> list[aio_pika.abc.AbstractIncomingMessage]:
    """The parked requests, taken off their queue, once there are so many."""
    connection = await aio_pika.connect(broker.url)
    async with connection:
        channel = await connection.channel()
        found = await channel.get_queue(f"{queue.removesuffix('.requests')}.parked", ensure=False)
        async with found.iterator(no_ack=True, timeout=15) as messages:
            taken = [await anext(aiter(messages)) for _ in range(count)]
    return taken


async def test_reply_addresses_that_must_not_be_used_get_no_answer_and_make_no_loop(
    broker: PrivateBroker, queue: str, daemon: DaemonProcess, requester: Requester
) -> None:
    """The request queue, Leveret's other queues, none at all, the broker's own names: parked unanswered, once each."""
    prefix = queue.removesuffix(".requests")
    addresses = [
        queue,
        f"{prefix}.dead",
        f"{prefix}.parked",
        f"{prefix}.cancel.x",
        None,
        "amq.direct",
        "amq.rabbitmq.trace",
    ]
    for address in addresses:
        await requester.send(reply_to=address)
    letters = await parked(broker, queue, len(addresses))
    assert [letter.reply_to for letter in letters] == addresses
    assert {letter.headers["x-first-death-reason"] for letter in letters} == {"rejected"}
    assert daemon.metric("leveret_requests_total", code="no_reply_to") == len(addresses)
    await assert_unharmed(daemon, requester)


async def test_answers_into_another_models_request_queue_end_there(
    broker: PrivateBroker, queue: str, start_daemon: StartDaemon, daemon: DaemonProcess, requester: Requester
) -> None:
    """A reply is a request without reply_to: the other daemon parks it, and nothing comes back."""
    other = await start_daemon(queue=f"{queue}.other.requests")
    await requester.send(reply_to=f"{queue}.other.requests", fields={"max_new_tokens": 2})
    (letter,) = await parked(broker, f"{queue}.other.requests", 1)
    assert letter.type == "chat.completion"
    assert other.metric("leveret_requests_total", code="no_reply_to") == 1
    assert daemon.metric("leveret_requests_total", code="ok") == 1
    await assert_unharmed(daemon, requester)
    async with await aio_pika.connect(broker.url) as connection, connection.channel() as channel:
        for name in ("requests", "dead", "parked"):
            await channel.queue_delete(f"{queue}.other.{name}")
        for name in ("dlx", "cancel"):
            await channel.exchange_delete(f"{queue}.other.{name}")


async def test_forged_direct_reply_addresses_do_not_cost_the_connection(
    daemon: DaemonProcess, requester: Requester
) -> None:
    """RabbitMQ 3.10 closes the connection that publishes to one: it is probed first, elsewhere."""
    forged = ["junk", "g1h2AAAA==", "\x00\xff", "AAAA.BBBB.CCCC=="]
    for address in forged:
        await requester.send(reply_to=f"amq.rabbitmq.reply-to.{address}", fields={"stream": True})
    await wait_until(
        lambda: daemon.metric("leveret_requests_total", code="gone") == len(forged), description="all are settled"
    )
    await assert_unharmed(daemon, requester)


async def test_properties_of_any_bytes_are_carried_and_the_request_is_answered(
    queue: str, daemon: DaemonProcess, requester: Requester, raw: RawPublisher
) -> None:
    """Ids of 255 bytes and of no UTF-8, a time of 2^63, a delivery mode of 7: echoed byte for byte, answered."""
    reply_to = short(requester.reply_to.encode())
    far = {"timestamp": struct.pack(">Q", 2**63), "priority": b"\xff", "message_type": short(b"\xff" * 255)}
    for wire in (b"\xff\xfe\x00\x80", b"\xc3" * 255, "é".encode() * 127):
        assert await asyncio.to_thread(
            raw.publish, queue, BODY, correlation_id=short(wire), message_id=short(b"\xfe"), reply_to=reply_to, **far
        )
        assert (await requester.terminal(wire.decode("utf-8", "surrogateescape"))).code == "ok"
    traced = table(long_entry(b"traceparent", b"\xff" * 60) + long_entry(b"tracestate", b"t" * 100_000))
    assert await asyncio.to_thread(
        raw.publish, queue, BODY, correlation_id=short(b"t"), reply_to=reply_to, headers=traced
    )
    assert (await requester.terminal("t")).code == "ok"
    await assert_unharmed(daemon, requester)


async def test_headers_that_cannot_be_decoded_are_refused(
    queue: str, daemon: DaemonProcess, requester: Requester, raw: RawPublisher
) -> None:
    """Tables nested in tables cost the reader its connection, again at every redelivery, where nobody minds them."""
    for number, headers in enumerate(
        (table(nested(3_000)), table(short(b"\xff\xfe") + b"F" + table(short(b"\xff") + b"V")))
    ):
        assert await asyncio.to_thread(
            raw.publish,
            queue,
            BODY,
            correlation_id=short(b"%d" % number),
            reply_to=short(requester.reply_to.encode()),
            headers=headers,
        )
        final = await requester.terminal(str(number))
        assert (final.code, final.body["error"]["param"]) == ("invalid_request", "headers")
    await assert_unharmed(daemon, requester)


async def test_whatever_is_rejected_is_parked_as_it_came(
    broker: PrivateBroker, queue: str, daemon: DaemonProcess, requester: Requester, raw: RawPublisher
) -> None:
    """Headers that pamqp decodes but cannot encode, and such as fill a frame, are parked all the same."""
    foreign = long_entry(b"foreign", b"\xff\xfe") + short(b"double") + b"d" + struct.pack(">d", 1e300)
    for headers in (foreign, long_entry(b"large", b"x" * 131_000)):
        sent = {"headers": table(headers), "correlation_id": short(b"\xff"), "timestamp": struct.pack(">Q", 2**63)}
        assert await asyncio.to_thread(raw.publish, queue, BODY, **sent)
    first, second = await parked(broker, queue, 2)
    assert first.headers["foreign"] == b"\xff\xfe"
    assert first.headers["double"] == 1e300
    assert "large" not in second.headers
    assert {letter.body for letter in (first, second)} == {BODY}
    assert {letter.correlation_id for letter in (first, second)} == {"\udcff"}
    await assert_unharmed(daemon, requester)


async def test_hostile_cancels_do_nothing_and_one_of_foreign_bytes_reaches_its_request(
    queue: str, daemon: DaemonProcess, requester: Requester, raw: RawPublisher
) -> None:
    """Whoever may publish to the exchange must not stop a daemon; ids are compared byte for byte here too."""
    wire = b"\xff\xfe" * 127
    reply_to = short(requester.reply_to.encode())
    long = json.dumps(QUESTION | {"stream": True, "max_new_tokens": 2000}).encode()
    assert await asyncio.to_thread(raw.publish, queue, long, correlation_id=short(wire), reply_to=reply_to)
    asked = wire.decode("utf-8", "surrogateescape")
    await requester.until_chunks(asked, 2)
    cancels = f"{queue.removesuffix('.requests')}.cancel"
    hostile: list[dict[str, bytes]] = [
        {},
        {"correlation_id": short(b""), "message_id": short(b"\xff")},
        {"correlation_id": short(wire[1:]), "timestamp": struct.pack(">Q", 2**63)},
        {"correlation_id": short(wire[:-1]), "headers": table(nested(3_000))},
        {"correlation_id": short(b"\xff"), "reply_to": short(cancels.encode()), "priority": b"\xff"},
    ]
    for properties in hostile:
        assert await asyncio.to_thread(raw.publish, "", bytes(1 << 20), exchange=cancels, **properties)
    await requester.until_chunks(asked, len(requester.replies(asked)) + 3)
    assert requester.terminals(asked) == []
    assert await asyncio.to_thread(raw.publish, "", b"", exchange=cancels, correlation_id=short(wire))
    assert (await requester.terminal(asked)).code == "cancelled"
    await assert_unharmed(daemon, requester)


async def test_hostile_requests_that_expire_are_answered_and_parked(
    broker: PrivateBroker, queue: str, daemon: DaemonProcess, requester: Requester, raw: RawPublisher
) -> None:
    """Dead letters carry the same bytes, with the broker's own history among them: none may go round for ever."""
    blocker = await requester.send(fields={"stream": True, "max_new_tokens": 40})
    await requester.until_chunks(blocker, 1)
    tables = [table(b""), table(long_entry(b"foreign", b"\xff\xfe")), table(nested(3_000))]
    wires = [b"\xff\xfe%d" % number for number in range(len(tables))]
    for wire, headers in zip(wires, tables, strict=True):
        sent = {"correlation_id": short(wire), "headers": headers, "timestamp": struct.pack(">Q", 2**63)}
        reply_to, gone = short(requester.reply_to.encode()), short(b"100")
        assert await asyncio.to_thread(raw.publish, queue, BODY, reply_to=reply_to, expiration=gone, **sent)
    letters = await parked(broker, queue, len(wires))
    assert {letter.headers["x-first-death-reason"] for letter in letters} == {"expired"}
    for wire in wires:
        final = await requester.terminal(wire.decode("utf-8", "surrogateescape"))
        assert (final.code, len(requester.terminals(wire.decode("utf-8", "surrogateescape")))) == ("expired", 1)
    assert (await requester.terminal(blocker)).code == "ok"
    await assert_unharmed(daemon, requester)


def gzip_bomb(mebibytes: int) -> bytes:
    """The beginning of gzip data that hold so many MiB of zeros: one block, again and again."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * mebibytes


async def test_bodies_that_are_too_large_are_refused_without_being_unpacked(
    daemon: DaemonProcess, requester: Requester
) -> None:
    """A gzip bomb of a gibibyte costs a few megabytes; so does a plain body above the limit."""
    before = daemon.rss_bytes
    bomb = gzip_bomb(1_000)
    assert len(bomb) < 1 << 20
    for body, encoding in ((bomb, "gzip"), (bytes(3 << 20), None), (b"\x1f\x8bnot gzip", "gzip")):
        asked = await requester.send(body, content_encoding=encoding)
        assert (await requester.terminal(asked)).code == "invalid_request"
    assert daemon.rss_bytes - before < 64 << 20
    await assert_unharmed(daemon, requester)


async def test_bodies_that_are_no_request_are_answered_once_each(daemon: DaemonProcess, requester: Requester) -> None:
    """Seen once, one structured error, settled: nothing circles."""
    bodies = [b"", b"[]", b"null", b'{"messages":', b'{"messages": 5}', b"[" * 1_000_000, b"\xff\xfe", b"1e999"]
    for body in bodies:
        final = await requester.terminal(await requester.send(body))
        assert (final.code, final.attempt, final.body["error"]["retryable"]) == ("invalid_request", 1, False)
    assert daemon.metric("leveret_requests_total", code="invalid_request") == len(bodies)
    await assert_unharmed(daemon, requester)


async def test_a_user_is_demanded_where_the_operator_says_so(start_daemon: StartDaemon, ask_from: AskFrom) -> None:
    """Without `user_id` the request is refused by name; with one, which the broker verified, it is answered."""
    await start_daemon(require_user_id=True)
    requester = await ask_from()
    final = await requester.terminal(await requester.send())
    assert (final.code, final.body["error"]["param"]) == ("invalid_request", "user_id")
    asked = await requester.send(fields={"max_new_tokens": 2}, user_id="guest")
    assert (await requester.terminal(asked)).code == "ok"
