"""What the fault tests share: daemons that are checked when a test ends, and a broker that may be restarted."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from private_broker import PrivateBroker

from tests.support.chat_terminal import open_chat
from tests.support.daemon_process import DaemonProcess
from tests.support.pseudo_terminal import PseudoTerminal
from tests.support.requester import QUESTION, Requester
from tests.support.responder import Responder
from tests.support.scripted_model import write_scripted_model

ANSWER = ("Alpha", " bravo", " charlie", " zulu")
"""The answer of the scripted model; its last word repeats for ever."""

StartDaemon = Callable[..., Awaitable[DaemonProcess]]
Chat = Callable[..., PseudoTerminal]
AskFrom = Callable[..., Awaitable[Requester]]


@pytest.fixture
async def responder(broker: PrivateBroker, queue: str) -> AsyncIterator[Responder]:
    """Answers requests as the test says, where a daemon would."""
    async with Responder(broker.url, queue) as scripted:
        yield scripted


@pytest.fixture
def chat(broker: PrivateBroker, queue: str, tmp_path: Path) -> Chat:
    """Opens `leveret chat` in a pseudo-terminal."""
    return partial(open_chat, broker.url, queue, tmp_path)


@pytest.fixture(scope="session")
def endless_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scripted model whose answers run to their limit."""
    return write_scripted_model(tmp_path_factory.mktemp("endless"), ANSWER, default=ANSWER[-1], context_tokens=100_000)


@pytest.fixture
async def start_daemon(broker: PrivateBroker, queue: str, endless_model: Path) -> AsyncIterator[StartDaemon]:
    """Start daemons on the scripted model, ready unless `until_ready` is false; settings may be overridden.

    When the test ends, the internal tables of each one that still runs must be empty, it must end well, and no
    daemon may have logged anything but JSON, or a prompt or an answer.
    """
    started: list[DaemonProcess] = []

    async def start(*, until_ready: bool = True, **settings: Any) -> DaemonProcess:
        daemon = DaemonProcess(**{"amqp_url": broker.url, "queue": queue, "model": endless_model, **settings})
        started.append(daemon)
        if until_ready:
            await daemon.ready()
        return daemon

    yield start
    try:
        for daemon in started:
            await _check(daemon)
    finally:
        for daemon in started:
            daemon.close()


async def _check(daemon: DaemonProcess) -> None:
    if daemon.signalled and daemon.process.poll() is None:
        assert await daemon.status() == 0
    if daemon.process.poll() is None:
        await daemon.idle()
        assert daemon.metric("leveret_remembered", table="held") == 0
        unacked = len(list(daemon.logged("the delivery is gone")))
        assert daemon.metric("leveret_remembered", table="finished") <= unacked + 1
        daemon.signal()
        assert await daemon.status() == 0
    assert daemon.lines, "a daemon says what it does"
    assert daemon.errors == ""
    words = [*QUESTION["messages"][0]["content"].split(), "charlie", "zulu"]
    assert [word for word in words if word in daemon.output] == []


@pytest.fixture
async def ask_from(broker: PrivateBroker, queue: str) -> AsyncIterator[AskFrom]:
    """Connect requesters, which leave when the test ends."""
    made: list[Requester] = []

    async def make(url: str = broker.url, **options: Any) -> Requester:
        requester = Requester(url, queue, **options)
        made.append(requester)
        await requester.connect()
        return requester

    yield make
    for requester in made:
        await requester.close()


@pytest.fixture
async def requester(ask_from: AskFrom) -> Requester:
    """A connected requester with an exclusive reply queue."""
    return await ask_from()


@pytest.fixture(scope="session")
def _second_broker() -> Iterator[PrivateBroker]:
    with PrivateBroker("restartable") as node:
        yield node


@pytest.fixture
def restartable(_second_broker: PrivateBroker) -> PrivateBroker:
    """A running broker that a test may kill and restart; data survive from test to test."""
    _second_broker.start()
    return _second_broker
