"""Cancels, with two daemons: prefill, running, queued, not yet arrived, finished, twice; and who may cancel what."""

import asyncio
import secrets

import pytest
from private_broker import PrivateBroker

from tests.broker.conftest import AskFrom, StartDaemon
from tests.support.daemon_process import DaemonProcess
from tests.support.requester import Requester
from tests.support.wait import wait_until

LONG = {"stream": True, "max_new_tokens": 2000}
SHORT = {"max_new_tokens": 2}


@pytest.fixture
async def pair(start_daemon: StartDaemon) -> list[DaemonProcess]:
    """Two daemons on one queue."""
    daemons = [await start_daemon(until_ready=False) for _ in range(2)]
    await asyncio.gather(*(daemon.ready() for daemon in daemons))
    return daemons


def remembered(daemons: list[DaemonProcess]) -> list[float]:
    """How many cancels each daemon knows."""
    return [daemon.metric("leveret_remembered", table="cancels") for daemon in daemons]


@pytest.mark.usefixtures("pair")
async def test_a_running_request_ends_at_once_and_only_once(requester: Requester) -> None:
    """One terminal message with the text so far, also where the cancel comes twice; the daemon goes on."""
    asked = await requester.send(fields=LONG)
    await requester.until_chunks(asked, 3)
    await requester.cancel(asked)
    await requester.cancel(asked)
    final = await requester.terminal(asked, 5)
    assert final.code == "cancelled"
    assert final.text.startswith("Alpha bravo")
    assert final.body["partial"]["usage"]["completion_tokens"] < 100
    assert (await requester.terminal(await requester.send(fields=SHORT))).code == "ok"
    assert len(requester.terminals(asked)) == 1


async def test_a_request_whose_prompt_is_still_read_ends_at_once(
    pair: list[DaemonProcess], requester: Requester
) -> None:
    """Before the first token, in a prefill of fifteen seconds: an answer without text, and the daemon is free."""
    prompt = {"messages": [{"role": "user", "content": "Zebras hum. " * 400}]}
    asked = await requester.send(fields=LONG | prompt)
    await wait_until(lambda: any(daemon.health()["busy"] for daemon in pair), description="one of them works on it")
    await requester.cancel(asked)
    final = await requester.terminal(asked, 10)
    assert (final.code, final.text, len(requester.replies(asked))) == ("cancelled", "", 1)
    await wait_until(lambda: not any(daemon.health()["busy"] for daemon in pair), description="both are free")
    assert (await requester.terminal(await requester.send(fields=SHORT))).code == "ok"


@pytest.mark.usefixtures("pair")
async def test_a_queued_request_is_answered_without_work_when_its_turn_comes(requester: Requester) -> None:
    """Both daemons are busy; the third request is cancelled while it waits."""
    running = [await requester.send(fields=LONG) for _ in range(2)]
    for one in running:
        await requester.until_chunks(one, 1)
    queued = await requester.send(fields=LONG)
    await requester.cancel(queued)
    await requester.cancel(running[0])
    final = await requester.terminal(queued)
    assert (final.code, final.body["partial"], len(requester.replies(queued))) == ("cancelled", None, 1)
    await requester.cancel(running[1])
    for one in running:
        assert (await requester.terminal(one)).code == "cancelled"


async def test_a_cancel_may_come_before_its_request_or_after_its_end(
    pair: list[DaemonProcess], requester: Requester
) -> None:
    """Whichever daemon gets the request knows of the early cancel; a late one does nothing."""
    early = "not-yet-sent"
    await requester.cancel(early)
    await wait_until(lambda: remembered(pair) == [1, 1], description="both daemons know the cancel")
    await requester.send(fields=LONG, correlation_id=early)
    final = await requester.terminal(early)
    assert (final.code, final.body["partial"], len(requester.replies(early))) == ("cancelled", None, 1)
    done = await requester.send(fields=SHORT)
    assert (await requester.terminal(done)).code == "ok"
    await requester.cancel(done)
    await wait_until(lambda: remembered(pair) == [2, 2], description="both daemons know the late cancel")
    assert (await requester.terminal(await requester.send(fields=SHORT))).code == "ok"
    assert len(requester.replies(done)) == 1


async def test_only_its_own_user_cancels_a_request_that_names_one(
    broker: PrivateBroker, start_daemon: StartDaemon, ask_from: AskFrom, requester: Requester
) -> None:
    """The broker vouches for `user_id`; another user's cancel, or an anonymous one, does not reach the request."""
    name = f"alice{secrets.token_hex(3)}"
    alice = await ask_from(broker.add_user(name, "secret"))
    daemon = await start_daemon()
    asked = await alice.send(fields=LONG, user_id=name)
    await alice.until_chunks(asked, 1)
    await requester.cancel(asked)
    await requester.cancel(asked, user_id="guest")
    await wait_until(lambda: remembered([daemon]) == [2], description="both cancels have arrived")
    await alice.until_chunks(asked, len(alice.replies(asked)) + 5)
    assert alice.terminals(asked) == []
    await alice.cancel(asked, user_id=name)
    assert (await alice.terminal(asked)).code == "cancelled"
    anonymous = await requester.send(fields=LONG)
    await requester.until_chunks(anonymous, 1)
    await alice.cancel(anonymous, user_id=name)
    assert (await requester.terminal(anonymous)).code == "cancelled"
