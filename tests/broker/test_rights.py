"""deploy/rabbitmq loaded into a real broker: its rights are enough for everything, and none is spare."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aiormq.exceptions import ChannelAccessRefused, ChannelLockedResource
from private_broker import PrivateBroker

from daemon.app import App
from daemon.client import Client, ClientError
from daemon.errors import ConfigurationError
from tests.conftest import delete_topology
from tests.support.in_process import running_app
from tests.support.requester import Requester
from tests.support.rights import Lacking, lacking, load_definitions, url_of
from tests.support.scripted_model import write_scripted_model
from tests.support.wait import wait_until

QUEUE = "chat.requests"
ANSWER = "one two three"
QUESTION = {"messages": [{"role": "user", "content": "Count."}], "temperature": 0}
LACKING = {role: [one for one in lacking() if one.role == role] for role in ("leveret-daemon", "leveret-client")}


@pytest.fixture(scope="module")
def locked(broker: PrivateBroker) -> Iterator[PrivateBroker]:
    """The session's broker with the shipped definitions in its vhost `/`."""
    load_definitions(broker)
    yield broker
    asyncio.run(delete_topology(broker.url, "chat"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scripted_model(tmp_path_factory.mktemp("rights"), ["one", " two", " three"])


def settings(broker: PrivateBroker, user: str = "leveret-daemon", **others: Any) -> dict[str, Any]:
    return {"amqp_url": url_of(broker, user), "queue": QUEUE, "declare": False} | others


@pytest.fixture
async def daemon(locked: PrivateBroker, model: Path) -> AsyncIterator[App]:
    """A daemon with exactly the rights of `leveret-daemon`."""
    async with running_app(model, **settings(locked)) as app:
        yield app


async def use_everything(url: str) -> None:
    """All that clients do: ask, stream and cancel with the reference client, and ask over a robust connection."""
    async with await Client.connect(url, queue=QUEUE) as client:
        assert (await client.complete(QUESTION)).text == ANSWER
        async with await client.stream(QUESTION) as answer:
            assert "".join([chunk.text async for chunk in answer]) == ANSWER
        await client.cancel("nothing that runs")
    async with await aio_pika.connect_robust(url, timeout=30) as connection, connection.channel() as channel:
        replies = await channel.declare_queue(exclusive=True, timeout=30)
        assert replies.name.startswith("amq_")
        assert await replies.get(fail=False, timeout=30) is None


async def test_everything_works_with_the_least_rights(daemon: App, locked: PrivateBroker) -> None:
    """Request, stream, cancel and the reference client, on a topology that the daemon may not declare."""
    await use_everything(url_of(locked, "leveret-client"))


@pytest.mark.parametrize("kind", ["exclusive", "direct"])
async def test_cancel_and_dead_letters_work_with_the_least_rights(
    locked: PrivateBroker, model: Path, kind: Any
) -> None:
    """A cancel that came first, and a request that expired before any daemon was there, which ends in `chat.parked`."""
    requester = Requester(url_of(locked, "leveret-client"), QUEUE, kind=kind)
    await requester.connect()
    before = await messages(locked.url, "chat.parked")
    expired = await requester.send(expiration=0.001)
    async with running_app(model, **settings(locked)) as app:
        assert (await requester.terminal(expired)).code == "expired"
        await requester.cancel("to-be-cancelled")
        await wait_until(lambda: app._worker.tables["cancels"], description="the daemon has heard the cancel")
        cancelled = await requester.send(correlation_id="to-be-cancelled")
        assert (await requester.terminal(cancelled)).code == "cancelled"
        async with asyncio.timeout(30):
            while await messages(locked.url, "chat.parked") == before:
                pass
    await requester.close()


async def messages(url: str, queue: str) -> int:
    """How many messages wait in `queue`."""
    async with await aio_pika.connect(url, timeout=30) as connection, connection.channel() as channel:
        declared = await channel.declare_queue(queue, passive=True, timeout=30)
        return declared.declaration_result.message_count or 0


@pytest.mark.parametrize("one", LACKING["leveret-daemon"], ids=str)
async def test_no_right_of_the_daemon_is_spare(locked: PrivateBroker, model: Path, one: Lacking) -> None:
    """Without any one of them the daemon does not start: one sentence that names the refused right (status 78)."""
    with pytest.raises(ConfigurationError, match=f"refuses a right.*'{one.missing.replace('.*', '')}"):
        async with running_app(model, **settings(locked, one.user)):
            pass


@pytest.mark.parametrize("one", LACKING["leveret-client"], ids=str)
async def test_no_right_of_the_client_is_spare(daemon: App, locked: PrivateBroker, one: Lacking) -> None:
    """Without any one of them something that clients do is refused, here and now, by the broker."""
    with pytest.raises((ClientError, ChannelAccessRefused), match="ACCESS_REFUSED"):
        await use_everything(url_of(locked, one.user))


@pytest.mark.parametrize("name", ["chat.requests", "chat.dead", "chat.parked", "somebody's replies"])
async def test_a_client_cannot_read_other_queues(daemon: App, locked: PrivateBroker, name: str) -> None:
    """Neither what others ask, nor what failed, nor what others are answered."""
    somebody = Requester(url_of(locked, "leveret-client"), QUEUE)
    await somebody.connect()
    queue = somebody.reply_to if name == "somebody's replies" else name
    url = url_of(locked, "leveret-client")
    async with await aio_pika.connect(url, timeout=30) as connection, connection.channel() as channel:
        there = await channel.get_queue(queue, ensure=False)
        with pytest.raises((ChannelAccessRefused, ChannelLockedResource)):
            await there.get(timeout=30)
    await somebody.close()


async def test_a_client_cannot_listen_to_cancels(daemon: App, locked: PrivateBroker) -> None:
    """Cancels carry other requests' ids, with which they could be cancelled."""
    url = url_of(locked, "leveret-client")
    async with await aio_pika.connect(url, timeout=30) as connection, connection.channel() as channel:
        own = await channel.declare_queue(exclusive=True, timeout=30)
        with pytest.raises(ChannelAccessRefused):
            await own.bind("chat.cancel", timeout=30)


async def test_the_shipped_topology_is_what_a_daemon_would_declare(locked: PrivateBroker, model: Path) -> None:
    """With all rights and DECLARE=true it meets nothing that differs; the operator's policy is in force."""
    async with running_app(model, **settings(locked, declare=True, amqp_url=locked.url)) as app:
        assert app.lifecycle.not_ready() == []
    assert "leveret-disk" in locked.ctl("list_operator_policies")
