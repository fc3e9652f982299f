"""The start: a broker that is down is waited for; what cannot work ends with status 78 and one line that says why."""

import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from private_broker import PrivateBroker

from tests.broker.conftest import StartDaemon
from tests.support.requester import Requester
from tests.support.tcp_proxy import TcpProxy
from tests.support.topology import request_queue_arguments
from tests.support.wait import wait_until

EX_CONFIG = 78
SHORT = {"max_new_tokens": 2}


async def test_a_broker_that_is_down_is_waited_for(
    broker: PrivateBroker, start_daemon: StartDaemon, requester: Requester
) -> None:
    """Not ready, alive, and says why; then it serves. A line that breaks in the handshake is no wrong password."""
    async with TcpProxy(broker.port) as proxy:
        proxy.refuse()
        daemon = await start_daemon(until_ready=False, amqp_url=f"amqp://guest:guest@127.0.0.1:{proxy.port}/")
        await daemon.until_logged("no connection to the broker", times=4)
        assert (daemon.get("/readyz")[0], daemon.get("/livez")[0]) == (503, 200)
        assert "not consuming" in " ".join(daemon.health()["reasons"])
        proxy.blackhole()
        await proxy.accept()
        await wait_until(lambda: proxy.accepted >= 2, description="it tries")
        proxy.reset_all()
        proxy.restore()
        await daemon.ready()
        assert (await requester.terminal(await requester.send(fields=SHORT))).code == "ok"
        daemon.signal()
        assert await daemon.status() == 0


@dataclass(frozen=True)
class Unusable:
    """A set-up that cannot work, and what the one line must say."""

    says: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)


@pytest.fixture
def users(broker: PrivateBroker) -> dict[str, str]:
    """Addresses of users who lack one right each."""
    none = "^$"
    return {
        right: broker.add_user(f"no{right}{secrets.token_hex(3)}", "secret", **{right: none})
        for right in ("configure", "write", "read")
    }


@pytest.fixture
async def odd_queue(broker: PrivateBroker, queue: str) -> str:
    """A request queue with arguments of somebody else's."""
    name = f"odd.{queue}"
    async with await aio_pika.connect(broker.url) as connection, connection.channel() as channel:
        await channel.declare_queue(
            name, durable=True, arguments=request_queue_arguments(name) | {"x-delivery-limit": 3}
        )
    return name


@pytest.fixture
def taken_port() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def test_what_cannot_work_ends_with_78_and_one_line(  # noqa: PLR0913, PLR0917 - fixtures
    broker: PrivateBroker,
    start_daemon: StartDaemon,
    users: dict[str, str],
    odd_queue: str,
    taken_port: int,
    tmp_path: Path,
) -> None:
    """A supervisor must not restart it for ever, and the operator reads one sentence, not a traceback."""
    here = f"127.0.0.1:{broker.port}"
    cases = [
        Unusable(("credentials", "AMQP_URL"), {"amqp_url": f"amqp://guest:wrong@{here}/"}),
        Unusable(("virtual host", "nowhere"), {"amqp_url": f"amqp://guest:guest@{here}/nowhere"}),
        *(Unusable(("right", "refused for user", right), {"amqp_url": url}) for right, url in users.items()),
        Unusable(("missing.", "LEVERET_DECLARE=true"), {"queue": "missing.requests", "declare": "false"}),
        Unusable(("x-delivery-limit", "3", "10"), {"queue": odd_queue}),
        Unusable(("HEALTH_PORT", str(taken_port)), {"health_port": taken_port}),
        Unusable(("model", "no-such-model"), {"model": "no-such-model"}),
        Unusable(("config.json",), {"model": tmp_path}),
        Unusable(
            ("LEVERET_SYSTEM_PROMPT", "exceeds the context"), {"system_prompt": "long " * 20, "context_tokens": 64}
        ),
        Unusable(("LEVERET_DRAIN_SECONDS", "soon"), {"drain_seconds": "soon"}),
        Unusable(("LEVERET_AMQP_URL",), {"amqp_url": "http://example.org/"}),
    ]
    started = [(case, await start_daemon(until_ready=False, **case.settings)) for case in cases]
    for case, daemon in started:
        assert await daemon.status(120) == EX_CONFIG, daemon.output
        critical = [line for line in daemon.lines if line["level"] == "critical"]
        assert len(critical) == 1, daemon.output
        assert [word for word in case.says if word not in critical[0]["event"]] == [], critical[0]["event"]
        assert "\n" not in critical[0]["event"]
        assert "Traceback" not in daemon.output
        assert "secret" not in daemon.output
        assert "wrong" not in daemon.output
    async with await aio_pika.connect(broker.url) as connection, connection.channel() as channel:
        await channel.queue_delete(odd_queue)
