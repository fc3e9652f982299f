"""Three nodes: the one with the queue's leader is killed in the middle of two answers, and nothing is lost."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from private_broker import PrivateBroker

from tests.broker.conftest import StartDaemon
from tests.support.requester import Requester, check_protocol
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import wait_until

STREAMED = {"stream": True, "max_new_tokens": 80}


@pytest.fixture
def cluster() -> Iterator[list[PrivateBroker]]:
    """Three joined nodes on loopback; it takes about half a minute."""
    first = PrivateBroker("one")
    nodes = [first, PrivateBroker("two", beside=first), PrivateBroker("three", beside=first)]
    try:
        first.start()
        with ThreadPoolExecutor() as pool:
            list(pool.map(PrivateBroker.start, nodes[1:]))
        for node in nodes[1:]:
            node.join(first)
        yield nodes
    finally:
        for node in reversed(nodes):
            node.stop()


@pytest.fixture
async def line(cluster: list[PrivateBroker]) -> AsyncIterator[TcpProxy]:
    """A load balancer in front of the first node."""
    async with TcpProxy(cluster[0].port) as proxy:
        yield proxy


def leader(node: PrivateBroker, queue: str) -> str:
    """The node on which the queue's leader is, as any other node sees it; empty while there is none."""
    lines = node.ctl("list_queues", "name", "leader").splitlines()
    return next((line.split("\t")[1] for line in lines if line.startswith(f"{queue}\t")), "")


async def test_the_leader_is_killed_in_the_middle_of_two_answers(
    cluster: list[PrivateBroker], line: TcpProxy, queue: str, start_daemon: StartDaemon
) -> None:
    """One daemon loses its node and moves to another; the other daemon's delivery survives the change of leader."""
    first, second, third = cluster
    moving = await start_daemon(amqp_url=f"amqp://guest:guest@127.0.0.1:{line.port}/")
    staying = await start_daemon(amqp_url=second.url)
    assert await asyncio.to_thread(leader, third, queue) == first.node
    async with Requester(third.url, queue) as requester:
        asked = [await requester.send(fields=STREAMED) for _ in range(3)]
        for one in asked[:2]:
            await requester.until_chunks(one, 2)
        line.redirect(second.port)
        await asyncio.to_thread(first.kill)
        finals = [await requester.terminal(one, 120) for one in asked[:2]]
        assert {final.code for final in finals} == {"ok"}
        kept = next(final for final in finals if final.daemon == staying.daemon_id)
        assert kept.attempt == 1
        assert (await requester.terminal(asked[2], 120)).code == "ok"
        for one in asked:
            check_protocol(requester.replies(one), daemons=2)
        await moving.ready()
        await wait_until(lambda: leader(third, queue) in {second.node, third.node}, description="a new leader")
