"""Daemons that are killed: nothing is lost, and the requester is answered once."""

from tests.broker.conftest import StartDaemon
from tests.support.requester import Requester, check_protocol
from tests.support.wait import wait_until

STREAMED = {"stream": True, "max_new_tokens": 20}


async def test_a_killed_daemon_starts_again_and_answers_with_attempt_two(
    start_daemon: StartDaemon, requester: Requester
) -> None:
    """SIGKILL in the middle of an answer: one terminal message, of the second attempt, numbered from 0."""
    daemon = await start_daemon()
    asked = await requester.send(fields=STREAMED)
    await requester.until_chunks(asked, 3)
    daemon.kill()
    daemon.start_again()
    final = await requester.terminal(asked)
    assert (final.code, final.attempt, len(requester.terminals(asked))) == ("ok", 2, 1)
    assert next(reply.seq for reply in requester.replies(asked) if reply.attempt == 2) == 0


async def test_a_request_that_kills_every_daemon_is_dead_lettered_and_answered(
    start_daemon: StartDaemon, requester: Requester
) -> None:
    """Poison must not circle for ever, and its requester must hear of it."""
    daemon = await start_daemon(delivery_limit=1)
    poison = await requester.send(fields={"stream": True, "max_new_tokens": 2000})
    for attempt in (1, 2):
        await requester.until_chunks(poison, 2, attempt=attempt)
        daemon.kill()
        daemon.start_again()
    final = await requester.terminal(poison)
    assert (final.code, final.body["error"]["retryable"]) == ("delivery_limit_exceeded", False)
    assert final.attempt > 2
    await wait_until(
        lambda: daemon.metric("leveret_dead_letters_total", reason="delivery_limit") == 1, description="it is parked"
    )
    assert (await requester.terminal(await requester.send(fields={"max_new_tokens": 2}))).code == "ok"


async def test_several_daemons_share_the_queue_and_a_killed_one_loses_nothing(
    start_daemon: StartDaemon, requester: Requester
) -> None:
    """Two daemons each take what they can; the killed one's request is answered by the other."""
    daemons = [await start_daemon(), await start_daemon()]
    asked = [await requester.send(fields=STREAMED) for _ in range(8)]
    first = [await requester.terminal(one) for one in asked[:2]]
    assert {final.daemon for final in first} == {daemon.daemon_id for daemon in daemons}
    await requester.until_chunks(asked[2], 2)
    victim = next(daemon for daemon in daemons if daemon.daemon_id == requester.replies(asked[2])[0].daemon)
    victim.kill()
    finals = [await requester.terminal(one) for one in asked]
    assert {final.code for final in finals} == {"ok"}
    assert (finals[2].attempt, finals[2].daemon == victim.daemon_id) == (2, False)
    for one in asked:
        check_protocol(requester.replies(one))
        assert len(requester.terminals(one)) == 1
