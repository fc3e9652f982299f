"""Acks that never reach the broker: the request comes again, and is not answered again."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from private_broker import PrivateBroker

from daemon.app import App
from daemon.deliveries import AmqpDelivery
from tests.support.in_process import running_app
from tests.support.requester import QUESTION, Requester
from tests.support.scripted_model import write_scripted_model
from tests.support.wait import wait_until

SHORT = {"max_new_tokens": 3}


class LostAcks:
    """Counts the acks of daemons in this process; while `losing`, they are swallowed on their way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.losing, self.tried = True, 0
        send = AmqpDelivery.ack

        async def ack(delivery: AmqpDelivery) -> bool:
            self.tried += 1
            return True if self.losing else await send(delivery)

        monkeypatch.setattr(AmqpDelivery, "ack", ack)


@pytest.fixture
async def app(broker: PrivateBroker, queue: str, tmp_path: Path) -> AsyncIterator[App]:
    model = write_scripted_model(tmp_path / "model", ["Alpha", " bravo", " charlie"])
    async with running_app(model, amqp_url=broker.url, queue=queue) as running:
        yield running


@pytest.fixture
def acks(monkeypatch: pytest.MonkeyPatch) -> LostAcks:
    return LostAcks(monkeypatch)


async def lose_the_connection(app: App, acks: LostAcks) -> None:
    """After the swallowed ack; what was unacked is delivered again."""
    await wait_until(lambda: acks.tried == 1, description="the ack is sent")
    acks.losing = False
    app._broker.consuming.drop("the test drops it")
    await wait_until(lambda: acks.tried == 2, description="the redelivery is settled")


async def test_a_redelivery_of_an_answered_request_is_acked_and_nothing_is_sent(
    app: App, acks: LostAcks, requester: Requester
) -> None:
    """The record of the finished request settles it; then the ack is proven and the record is dropped."""
    asked = await requester.send(fields=SHORT)
    await requester.terminal(asked)
    await lose_the_connection(app, acks)
    assert len(app._worker.registry) == 1
    assert (await requester.terminal(await requester.send(fields=SHORT))).code == "ok"
    assert len(requester.replies(asked)) == 1
    assert len(app._worker.registry) <= 1
    await wait_until(lambda: acks.tried == 3, description="the last ack")


async def test_the_same_request_published_anew_is_a_new_request(app: App, acks: LostAcks, requester: Requester) -> None:
    """Same ids, same body, also right after the first one's ack was lost: each publish is answered."""
    body = json.dumps(QUESTION | SHORT).encode()
    for _ in range(2):
        await requester.send(body, correlation_id="twin")
    await wait_until(lambda: len(requester.terminals("twin")) == 1, description="the first answer")
    await lose_the_connection(app, acks)
    await wait_until(lambda: len(requester.terminals("twin")) == 2, description="the second answer")
    await wait_until(lambda: acks.tried == 3, description="the last ack")
    assert len({reply.message_id for reply in requester.replies("twin")}) == 2
